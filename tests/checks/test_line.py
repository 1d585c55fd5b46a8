"""The cells of `make line` say what the line carries, and falls are found; that links hold it is for the command."""

from __future__ import annotations

import os
import socket
from collections import deque
from pathlib import Path

import pytest

from checks.lab.convergence_ways import ALONE
from checks.line import __main__ as line
from checks.line import launched, machines, relay, targets
from checks.line.cells import CELLS, REPEATS, SHARE, Cell
from switchsum.planning.topology import load

STAR = Cell(name="star", workers=4, mbit=100, lanes=256)


def test_the_line_carries_1024_of_1114_bytes() -> None:
    assert STAR.bytes_per_s == pytest.approx(100e6 / 8 * 1024 / 1114)
    assert STAR.call_bytes == pytest.approx(2 * STAR.bytes_per_s, abs=4)
    assert STAR.options("") == ["-n", "4", "--lanes", "256", "--slots", "auto", "--links", "veth", "--rate", "100mbit"]


def test_cells_are_of_both_mtus_and_of_stars_and_racks() -> None:
    assert {cell.lanes for cell in CELLS} == {256, 2048}
    assert {cell.workers for cell in CELLS} >= {4, 8}
    assert {cell.mbit for cell in CELLS} >= {2, 5, 100}
    assert len({cell.name for cell in CELLS}) == len(CELLS) == 8


def test_racks_have_trunks_ten_times_slower_than_their_hosts(tmp_path: Path) -> None:
    (racks,) = (cell for cell in CELLS if cell.racks)
    path = tmp_path / "network.yaml"
    path.write_text(racks.topology())
    network = load(path)
    rates = {cable.ends: cable.mbit for cable in network.cables}
    assert {rate for ends, rate in rates.items() if "root" in ends} == {racks.mbit}
    assert {rate for ends, rate in rates.items() if "root" not in ends} == {10 * racks.mbit}
    assert len(network.hosts) == racks.workers
    assert racks.options(str(path))[-2:] == ["--topology", str(path)]


@pytest.mark.parametrize(
    ("outcome", "holds"),
    [
        (line.Outcome((1.0, SHARE, 0.9), REPEATS), True),
        (line.Outcome((1.0, SHARE - 0.01, 0.9), 0.0), False),
        (line.Outcome((1.0, 1.0, 1.0), REPEATS + 0.01), False),
        (line.Outcome(error="not done within 180 s"), False),
    ],
)
def test_a_cell_falls_for_one_slow_call_many_repeats_or_an_error(outcome: line.Outcome, holds: bool) -> None:
    assert outcome.holds is holds


def test_a_cell_gets_a_second_try_and_no_third(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = line.Outcome((0.5,) * 3), line.Outcome((1.0,) * 3)
    for outcomes, held, left in (([fast, slow], True, 1), ([slow, fast], True, 0), ([slow, slow, fast], False, 1)):
        monkeypatch.setattr(line, "measure", lambda cell, found=outcomes: found.pop(0))
        assert line.hold(STAR) is held
        assert len(outcomes) == left


def test_cells_are_skipped_by_name_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (line.MOST_LOAD + 1, 0.0, 0.0))
    monkeypatch.setattr("sys.argv", ["line"])
    assert line.main() == 0
    assert capsys.readouterr().out.count("skipped: ") == len(CELLS)


def test_what_is_promised_is_a_row_each() -> None:
    names = [row.name for row in targets.rows(jobs=1)]
    assert len(set(names)) == len(names)
    queues = [name for name in names if name.startswith("queue ")]
    assert len(queues) == 3 * 2 * len(targets.QUEUES_S)
    assert {name.partition(",")[0] for name in names} >= {"plainest", "jumbo", "machines", "4 bytes"}


@pytest.mark.parametrize(
    ("seconds", "holds"),
    [([0.87, 0.84, 0.91], True), ([0.87, 0.92, 0.87], False), ([0.82, 0.87, 0.87], False)],
)
def test_each_call_of_the_plainest_jobs_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: list[float], holds: bool
) -> None:
    monkeypatch.setattr(targets, "calls", lambda *_: seconds)
    assert targets.plainest(2)[0] is holds


@pytest.mark.parametrize(
    ("rates", "holds"),
    [([1.0, 12.3, 12.2, 11.5], True), ([12.3, 12.0, 12.0, 12.2], False), ([12.3, 12.3, 10.9], False)],
)
def test_the_median_and_the_slowest_of_jumbo_calls_count_and_the_first_does_not(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], holds: bool
) -> None:
    monkeypatch.setattr(targets, "calls", lambda *_: [10.0 / rate for rate in rates])
    assert targets.jumbo("auto")[0] is holds


def test_the_99th_percentile_of_small_sums_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for late, holds in ((10, True), (11, False)):
        seconds = [1e-4] * (1000 - late) + [5e-3] * late
        monkeypatch.setattr(targets, "calls", lambda *_, found=seconds: found)
        assert targets.small("udp")[0] is holds


def test_a_way_that_is_behind_gloo_on_a_far_path_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    for own, holds in ((90.0, True), (110.0, False)):
        steps = {
            "gloo": dict.fromkeys(targets.PAIRS.values(), 100.0),
            "switchsum": dict.fromkeys([ALONE, *targets.PAIRS], own),
        }
        monkeypatch.setattr(machines, "steps", lambda backend, *_, found=steps, **__: found[backend])
        assert targets.far(0.2)[0] is holds


def test_a_relay_hands_frames_on_in_order_and_not_before_their_time() -> None:
    sent: list[bytes] = []
    held: relay.Waiting = deque((at, sent.append, frame) for at, frame in ((1.0, b"a"), (2.0, b"b"), (3.0, b"c")))
    assert relay.hand_on(held, 2.5) == 0.5
    assert sent == [b"a", b"b"]
    assert relay.hand_on(held, 3.0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_relay_holds_all_that_an_interfaces_queue_does_not_take_yet() -> None:
    """A socket counts frames in that queue as its own: with a usual buffer it refused the 93rd, and dropped it."""
    with relay.opened("lo") as end:
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > 32 << 20


def test_links_are_laid_with_queues_of_another_time() -> None:
    laid = ["tc", "qdisc", "replace", "dev", "sum0", "root", "tbf", "rate", "2mbit", "latency", "100ms"]
    assert launched.with_queue(laid, 1.5) == [*laid[:-1], "1500ms"]
    assert launched.with_queue(["ip", "link", "set", "lo", "up"], 1.5) == ["ip", "link", "set", "lo", "up"]
