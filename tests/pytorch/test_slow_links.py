"""How soon a loss is reached on slow links: trainings of real optimizers, the formula, and the page's table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from checks.bench.records import provenance
from checks.lab import in_turns, machine_trainings, slow_links
from checks.lab.convergence_results import Results
from checks.lab.convergence_tasks import TASKS
from checks.lab.convergence_times import Measured
from checks.lab.convergence_ways import ALONE_OVER
from checks.lab.outer_ways import LANES, OUTER, train_outer
from checks.lab.slow_links import BEGIN, END, KEPT, MEASURED_WAYS, PAGE, measure_slow, of_task, seconds, table, tables
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

STEPS, EVERY = 9, 4


def test_ways_that_synchronise_now_and_then_move_a_share_of_the_bytes_and_learn() -> None:
    ways = {
        name: replace(OUTER[name], every=EVERY, delay=min(OUTER[name].delay, 1))
        for name in ("gloo, DiLoCo 10", "DiLoCo 10", "DiLoCo 10, int10", "streaming 50 in 4, int10")
    }
    runs = {name: train_outer(TASKS["digits"], way, 1, STEPS, ranks=2) for name, way in ways.items()}
    whole = 4 * runs["DiLoCo 10"]["parameters"]
    for name, run in runs.items():
        assert run["losses"][:2] == runs["DiLoCo 10"]["losses"][:2], name  # the same models and batches
        assert run["losses"][-1] < run["losses"][0], name
    assert runs["gloo, DiLoCo 10"]["losses"] == pytest.approx(runs["DiLoCo 10"]["losses"], rel=1e-3)
    assert runs["gloo, DiLoCo 10"]["up"] == pytest.approx(whole / EVERY, rel=0.2)
    assert runs["DiLoCo 10"]["up"] == pytest.approx(whole * 2 / STEPS, rel=0.1)  # two outer steps in nine
    assert runs["DiLoCo 10, int10"]["up"] == pytest.approx(whole * 2 / STEPS * 1.39 / 4, rel=0.1)
    # Nine outer steps of a quarter, the last one begun behind the last step: 13 frames of words and one of scales each.
    frame = FRAME_BYTES + payload_bytes(LANES)
    assert runs["streaming 50 in 4, int10"]["up"] == pytest.approx(9 * 14 * frame / STEPS, rel=0.02)


def run(down: float, losses: list[float]) -> dict[str, Any]:
    on = {"machine": "a machine", "date": "2026-01-01"}
    return {"up": down, "down": down, "parameters": 10, "losses": losses, "on": on}


def few() -> tuple[Results, Results]:
    falling = [float(10 - step) for step in range(10)]
    plain = Results(trained={"gpt/gloo/1": run(1e6, falling)}, times={})
    kept = Results(trained={f"gpt/{way}/1": run(2e4, falling) for way in OUTER}, times={})
    return plain, kept


def test_an_average_that_may_take_some_steps_costs_what_it_takes_beyond_them() -> None:
    plain, kept = few()
    ways = of_task(plain.trained | kept.trained, "gpt")
    # A step of 6 ms, and 20 kB a step, which are 16 ms at 10 Mbit/s and 1.6 ms at 100.
    assert seconds("DiLoCo 50, int10", ways["DiLoCo 50, int10"], 100, 10) == pytest.approx(2.2)
    # Twice in 50 steps 500 kB, which are 400 ms at 10 Mbit/s, of which 12 steps hide 72.
    streaming = ways["streaming 50, int10"]
    assert seconds("streaming 50, int10", streaming, 100, 10) == pytest.approx(0.6 + 4 * 0.328)
    assert seconds("streaming 50, int10", streaming, 100, 100) == pytest.approx(0.6)
    assert seconds("gloo", ways["gloo"], 100, 100) == pytest.approx(100 * (0.006 + 0.08))


def test_the_table_has_each_way_with_its_seconds() -> None:
    text = "\n".join(table(*few(), "gpt"))
    assert "| gloo | 1,000 | 4 (4 to 4) | 3.22 |" in text
    assert "| DiLoCo 50, int10 | 20 | 4 (4 to 4) | 0.09 |" in text
    # 6 ms and 1 MB a step, which are 806 ms; beside it 6 ms, and four times in 50 steps 128 ms beyond 12 steps.
    assert "| gloo | 49.6 |  |\n| gloo, streaming 50 in 4 | 1.0 |  |" in text
    assert "measured on" not in text
    ms = {"gloo": 571.25, "streaming 50 in 4, int10": 10.0, "alone": 8.0}
    row: dict[str, Any] = {"machine": "a machine", "ms": {name: {"median": one} for name, one in ms.items()}}
    plain, kept = few()
    text = "\n".join(table(plain, replace(kept, times={"gpt/10mbit": row}), "gpt"))
    assert "| gloo | 49.6 | 57.1 |" in text
    assert "Steps at 10 Mbit/s were measured on a machine" in text
    assert " Without communication a step took 8.0 ms.  " in text
    assert "| gloo | 571.2 | 2.29 |" in text
    row["ms"]["alone, gloo"] = {"median": 7.0}
    text = "\n".join(table(plain, replace(kept, times={"gpt/10mbit": row}), "gpt"))
    assert "Without communication a step took 8.0 ms, and 7.0 ms in the job of gloo." in text


def test_measuring_goes_on_where_it_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs: list[tuple[str, str]] = []
    left: list[int] = []

    def trained(backend: str, rate: str, asked: Measured) -> tuple[Any, int]:
        jobs.append((backend, rate))
        has_failed = len(jobs) == 2
        ways = asked.ways[: 1 if has_failed else None]
        left.append(len(asked.ways))
        return {asked.tasks[0]: {way: [5.0, 6.0, 7.0] for way in ways}}, 3 * has_failed

    monkeypatch.setattr(slow_links, "trained", trained)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = tmp_path / "results.json"
    assert measure_slow(("gpt",), ("10mbit",), minutes=0, path=path) == []
    assert jobs == []
    assert measure_slow(("gpt",), ("10mbit",), path=path) == ["gpt/10mbit: gloo ended with code 3"]
    assert measure_slow(("gpt",), ("10mbit", "50mbit"), minutes=60, path=path) == []
    first, second = (backend for backend in MEASURED_WAYS)
    assert jobs == [(first, "10mbit"), (second, "10mbit"), (second, "10mbit"), (first, "50mbit"), (second, "50mbit")]
    assert left[2] == left[1] - 1
    kept = Results.read(path).times["gpt/10mbit"]["ms"]
    assert kept.keys() == {*MEASURED_WAYS[first], *MEASURED_WAYS[second]}
    assert kept["gloo"]["median"] == 6.0


def test_each_way_of_the_page_is_measured_on_one_backend_but_torchft() -> None:
    ways = [*MEASURED_WAYS["switchsum"], *MEASURED_WAYS["gloo"]]
    assert len(ways) == len({*ways})
    assert {*ways} == {*ALONE_OVER.values(), *slow_links.EVERY_STEP, *OUTER} - {"gloo, torchft DiLoCo 50"}


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated:DeprecationWarning")  # torchft 0.2 calls it
def test_torchft_trains_as_our_own_diloco_does() -> None:
    pytest.importorskip("torchft", reason="torchft is not installed")
    ways = [replace(OUTER[name], every=EVERY) for name in ("gloo, torchft DiLoCo 50", "gloo, DiLoCo 50")]
    theirs, ours = (train_outer(TASKS["digits"], way, 1, STEPS, ranks=2) for way in ways)
    assert theirs["losses"] == pytest.approx(ours["losses"], rel=1e-3)
    assert theirs["up"] == ours["up"]


def test_the_page_has_what_was_trained() -> None:
    found = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert found == tables(Results.read(), Results.read(KEPT))


def test_machines_with_an_ordinary_switch_are_the_first_table_of_the_page() -> None:
    row = {
        "machine": "a machine",
        "date": "a day",
        "load": [1.0, 2.0],
        "ms": {"gloo": {"median": 316.0}, "dense": {"median": 320.0}, "alone": {"median": 9}},
    }
    text = "\n".join(machine_trainings.table({"1": row}))
    assert "| ms a step | 1 rank a machine |" in text
    assert "| here, float32 | 320 (0.99) |" in text
    assert "Computing takes 9 ms" in text
    page = machine_trainings.PAGE.read_text()
    found = page.partition(machine_trainings.BEGIN)[2].partition(machine_trainings.END)[0]
    assert found == machine_trainings.between(Results.read(machine_trainings.KEPT))
    assert "|---" not in page.partition(machine_trainings.BEGIN)[0]


def in_turns_results(turns: int) -> Results:
    """Return turns at 10 Mbit/s in which we are twice as fast, and half a turn at 200."""
    times: dict[str, dict[str, Any]] = {}
    for turn in range(1, turns + 1):
        for backend, ms in (("switchsum", 20.0 + turn), ("gloo", 40.0 + 2 * turn)):
            ways = {ALONE_OVER[backend]: 12.0, in_turns.STREAMED[backend]: ms}
            times[f"gpt/10mbit/{backend}/{turn}"] = {**provenance(None), "ms": ways}
    times["gpt/200mbit/switchsum/1"] = {**provenance(None), "ms": {"alone": 12.0}}
    return Results(trained={}, times=times)


def test_turns_are_compared_one_by_one_and_half_a_turn_counts_for_nothing(tmp_path: Path) -> None:
    kept = in_turns_results(5)
    assert in_turns.taken_of(kept, "200mbit") == {}
    assert in_turns.taken_of(kept, "10mbit")["gloo, streaming 50 in 4"] == [42.0, 44.0, 46.0, 48.0, 50.0]
    *_, row = in_turns.table(kept)
    assert "| 23 ms a step | gloo 46 | gloo 2 (2 to 2) | 5 turns" in row
    assert "a step takes 1.92 times as long here, and 3.83 times over gloo |" in row
    page = tmp_path / "page.md"
    page.write_text(f"before {in_turns.BEGIN}{in_turns.END} after")
    for _ in range(2):  # a second time in place of the first
        in_turns.publish(kept, [page])
        text = page.read_text()
        assert (text.count(in_turns.BEGIN), text.count(row)) == (1, 1)
    in_turns.publish(Results(trained={}, times={}), [page])
    assert page.read_text() == f"before {in_turns.BEGIN}{in_turns.END} after"
    assert all(one.read_text().count(in_turns.BEGIN) == 1 for one in in_turns.PAGES)


def test_turns_go_on_where_they_ended_and_keep_no_half_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    played: list[tuple[str, str]] = []

    def trained(backend: str, rate: str, asked: Measured) -> tuple[dict[str, dict[str, list[float]]], int]:
        played.append((backend, rate))
        fails = len(played) == 2
        return ({} if fails else {in_turns.TASK: {way: [1.0, 3.0] for way in asked.ways}}), int(fails)

    monkeypatch.setattr(in_turns, "trained", trained)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = tmp_path / "kept.json"
    failed = in_turns.measure(("10mbit",), 2, path)
    assert failed == ["gpt/10mbit/gloo/1 ended with code 1, and has []"]
    assert len(played) == 4
    assert in_turns.measure(("10mbit",), 2, path) == []
    assert played[4:] == [("gloo", "10mbit")]
    assert all(row["ms"].keys() and {*row["ms"].values()} == {2.0} for row in Results.read(path).times.values())
