"""Cells in virtual time have the figures of `switchsum simulate`, and arrays as their axes say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.timing import patience
from switchsum_lab.options import SimulateOptions
from switchsum_lab.simulation import scenario, sums
from switchsum_lab.sweeps import counted, real, simulated, supports
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.sparse_hosts import Peers, Stream, topk_allgather
from switchsum_protocol.errors import LocalError

EXAMPLES = Path(__file__).parents[3] / "examples" / "topologies"

SIZE = 40_000


def test_a_cell_is_what_the_command_simulates() -> None:
    options = SimulateOptions(topology="star,4", size="40kB", loss=0.01, against="ring", seed=3)
    ours, ring = scenario.simulate(options.scenario())
    cell = Cell(workers=4, bytes=SIZE, loss=0.01)
    found = simulated.run(cell, 3)
    assert (found.ms, found.frames, found.repeats) == (1e3 * ours.simulated_s, ours.frames, ours.repeats)
    assert found.right
    other = simulated.run(Cell(workers=4, bytes=SIZE, loss=0.01, protocol="ring"), 3)
    assert (other.ms, other.right) == (1e3 * ring.simulated_s, None)
    ideal = simulated.run(Cell(workers=4, bytes=SIZE, protocol="ideal-ring"), 0)
    assert ideal.ms == 1e3 * scenario.ideals(options.scenario())["ideal-ring"]


def test_zero_blocks_are_skipped_and_fusion_packs_those_that_are_left() -> None:
    whole, sparse, fused, topk = (
        simulated.run(cell, 0)
        for cell in (
            Cell(workers=2, bytes=SIZE, block=32),
            Cell(workers=2, bytes=SIZE, block=32, density=0.1),
            Cell(workers=2, bytes=SIZE, block=32, density=0.1, fusion=True),
            Cell(workers=2, bytes=SIZE, density=0.01, collective="topk"),
        )
    )
    assert all(one.right for one in (whole, sparse, fused, topk))
    sent = [one.sent_mb or 0.0 for one in (whole, sparse, fused, topk)]
    assert all(more > less for more, less in pairwise(sent))


def test_an_mtu_chooses_the_frames_lanes_and_the_packets_of_rivals() -> None:
    assert simulated.lanes_of(Cell(mtu=9000)) == (2048, "int32")
    assert simulated.lanes_of(Cell(mtu=1500, lanes="int8")) == (256, "int8")
    small, large = (simulated.run(Cell(workers=2, bytes=SIZE, mtu=mtu, protocol="ring"), 0) for mtu in (1500, 9000))
    assert (small.frames or 0) > 3 * (large.frames or 0)


@pytest.mark.parametrize("overlap", ["random", "all", "none"])
def test_overlap_says_which_blocks_workers_have_in_common(overlap: str) -> None:
    how: dict[str, Any] = {"ranks": 4, "values": 40_000, "block": 10, "density": 0.2, "overlap": overlap, "seed": 1}
    masks = np.array([*supports.masks(**how)])
    assert masks.mean() == pytest.approx(0.2, abs=0.02)
    union = masks.any(axis=0).mean()
    assert union == pytest.approx({"random": 1 - 0.8**4, "all": 0.2, "none": 0.8}[overlap], abs=0.02)
    arrays, total = supports.arrays(**how)
    assert np.array_equal(np.sum(arrays, axis=0), total)
    for rank in (0, 3):
        own, whole = supports.own_and_sum(rank, **how)
        assert np.array_equal(own, arrays[rank])
        assert np.array_equal(whole, total)


def test_jobs_share_slots_and_the_aggregator_adds_what_finds_them_taken() -> None:
    cell = Cell(workers=2, jobs=2, rate_mbit=100_000.0, shared_slots=104)
    few, fast = (simulated.run(replace(cell, aggregator_mbit=rate), 0) for rate in (None, 400_000.0))
    ample = simulated.run(replace(cell, shared_slots=512), 0)
    own = simulated.run(replace(cell, shared_slots=None), 0)
    assert few.right
    assert fast.ms < few.ms
    assert own.ms < ample.ms < few.ms
    assert (few.taken or 0.0) > 0.05
    assert (ample.taken, own.taken) == (0.0, None)
    wrong: list[tuple[str, Cell]] = [
        ("aggregator_mbit", replace(cell, shared_slots=None, aggregator_mbit=1e5)),
        ("shared_slots", replace(cell, protocol="ring")),
        ("shared_slots", replace(cell, protocol="switchml", jobs=1)),
        ("shared_slots", replace(cell, collective="topk", jobs=1)),
        ("shared_slots", replace(cell, shared_slots=2000)),
        ("slots", replace(cell, slots=200)),
        ("topology", replace(cell, topology=str(EXAMPLES / "sharded.yaml"))),
        ("workers", replace(cell, topology="leaf-spine,4,1,20", workers=33)),
        ("shared_slots", Cell(links="shm", shared_slots=104)),
    ]
    for axis, one in wrong:
        with pytest.raises(Impossible) as refused:
            check(one)
        assert refused.value.axis == axis
    check(cell)


def test_jobs_of_two_racks_share_the_slots_of_the_spine_while_leaves_forward() -> None:
    """A job has a worker in each rack.  The way is longer than at one switch, and the spine alone adds."""
    cell = Cell(workers=2, jobs=2, rate_mbit=100_000.0, shared_slots=512, slots=64, topology="leaf-spine,2,1,2")
    check(cell)
    shared, near = simulated.run(cell, 0), simulated.run(replace(cell, topology=None), 0)
    assert shared.right
    assert shared.ms > near.ms
    assert (shared.repeats, shared.taken) == (0, 0.0)
    few = simulated.run(replace(cell, shared_slots=48, slots=48), 0)
    assert few.right
    assert (few.taken or 0.0) > 0.05


def test_a_sum_is_near_where_no_value_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_PIECE", 7)
    right = np.arange(20, dtype=np.float32)
    off = right.copy()
    off[-1] += np.float32(0.5)
    assert sums.is_near(right.copy(), right, 1e-5)
    assert sums.error_of(right.copy(), right) == 0
    assert not sums.is_near(off, right, 1e-2)
    assert sums.is_near(off, right, 0.03)
    assert sums.error_of(off, right) == pytest.approx(0.25 / np.sum(right**2))
    off[3] = np.nan
    assert not sums.is_near(off, right, 1.0)


COUNTED = """
import numpy as np
from switchsum_lab.sweeps import memory
if memory.count_anew():
    before = memory.held_bytes()
    np.ones(20_000_000)  # freed at once
    most = memory.most_bytes()
    print(most - before, memory.count_anew() and memory.most_bytes() - before)
"""


def test_the_most_memory_is_counted_anew() -> None:
    # In a process of its own: this one may get or give back memory at any time.
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    if not done.stdout:
        pytest.skip("the kernel does not let the count begin anew")
    most, most_anew = map(int, done.stdout.split())
    assert most > 100_000_000
    assert most_anew < 100_000_000


def test_cells_that_differ_in_bytes_and_loss_share_a_job_of_the_right_command() -> None:
    cell = Cell(links="veth", workers=2, rate_mbit=200.0, bytes=8, loss=0.01)
    assert real.Setting.of(cell) == real.Setting.of(Cell(links="veth", workers=2, rate_mbit=200.0, density=0.5))
    words = " ".join(real.Setting.of(cell).command(cell, Path("/turns")))
    assert "run -n 2 --links veth --lanes 256 --slots auto --switch embedded --timeout 60.0 --rate 200mbit --" in words
    assert words.endswith("-m switchsum_lab.sweeps.rank switchsum /turns")
    gloo = Cell(links="veth", workers=2, protocol="gloo", rate_mbit=200.0, mtu=9000)
    words = " ".join(real.Setting.of(gloo).command(gloo, Path("/turns")))
    assert "-m switchsum_lab.sweeps.star gloo 2 200mbit 9000" in words


def test_sparse_sums_of_hosts_are_counted() -> None:
    cell = Cell(workers=4, bytes=SIZE, collective="topk", density=0.05, values="normal")
    k = np.count_nonzero(supports.arrays(ranks=1, values=SIZE // 4, block=1, density=0.05, overlap="random", seed=0)[0])
    found = {name: simulated.run(replace(cell, protocol=name), 0) for name in counted.WAYS}
    for name, one in found.items():
        lossy = name in ("gtopk", "oktopk")
        is_exact = not lossy and name != "sparcml-split-q4"
        assert (one.right, (one.sum_error or 0.0) > 0.1) == (True if is_exact else None, lossy)
    sent = {name: 1e6 * (one.sent_mb or 0.0) / (8 * k) for name, one in found.items()}  # in pairs, for each of k
    assert 3 < sent["topka"] < 3.4
    assert 1.4 < sent["oktopk"] < 1.9  # 2 (P - 1) / P, of packets with headers
    union = 4 * (1 - 0.95**4) / 0.2  # of random places: a quarter of it goes from each rank to three
    assert 0.75 + 0.75 * union < sent["sparcml-split"] < 1.1 * (0.75 + 0.75 * union)
    assert found["topka"].ms > found["oktopk"].ms
    with pytest.raises(LocalError, match="no value that is not zero"):
        simulated.run(replace(cell, density=0.0, protocol="oktopk"), 0)
    wrong: list[tuple[str, Any]] = [("collective", "allreduce"), ("loss", 0.1), ("workers", 3)]
    for axis, value in wrong:
        with pytest.raises(Impossible) as refused:
            check(replace(cell, protocol="gtopk", **{axis: value}))
        assert refused.value.axis == axis


def test_errors_of_narrow_lanes_and_thc_are_figures() -> None:
    cell = Cell(workers=4, bytes=SIZE, values="normal")
    ways = {lanes: replace(cell, lanes=lanes) for lanes in ("int32", "int16", "int8")}
    ways["thc"] = replace(cell, collective="thc")
    errors = {name: simulated.run(way, 0).sum_error or 0.0 for name, way in ways.items()}
    assert errors["int32"] < 1e-12 < errors["int16"] < 1e-5 < errors["int8"] < errors["thc"]
    assert errors["thc"] == pytest.approx(1e-3, rel=0.3)  # what Max's table says of 64 levels
    with pytest.raises(Impossible, match="at most 16 ranks"):
        check(replace(cell, collective="thc", workers=32))


def test_workers_may_send_more_slowly_than_they_receive() -> None:
    cell = Cell(workers=4, bytes=SIZE, rate_mbit=100.0, values="normal")
    ways = ("allreduce", "int10", "thc", "thc:4")
    slow, equal = (
        [simulated.run(replace(cell, collective=way, uplink_mbit=mbit), 0).ms for way in ways] for mbit in (5.0, None)
    )
    assert all(more > 1.3 * less for more, less in pairwise(slow))  # 4.35, 1.52, 1.09 and 0.59 bytes a value go up
    assert equal[3] > 0.9 * equal[2]  # and with thc:4 1.09 come down
    plain = replace(cell, values="whole", uplink_mbit=5.0)
    ours, ring = (simulated.run(replace(plain, protocol=name), 0).ms for name in ("switchsum", "ring"))
    assert ours > 8e-3 * SIZE * 1114 / 1024 / 5.0
    assert ring > 1.3 * ours
    wrong: list[tuple[str, Cell]] = [
        ("uplink_mbit", replace(plain, protocol="switchml")),
        ("uplink_mbit", replace(plain, protocol="oktopk", collective="topk")),
        ("uplink_mbit", Cell(links="udp", uplink_mbit=5.0)),
        ("workers", replace(cell, collective="thc:4", workers=32)),
    ]
    for axis, one in wrong:
        with pytest.raises(Impossible) as refused:
            check(one)
        assert refused.value.axis == axis


@pytest.mark.parametrize(
    ("axis", "cell"),
    [
        ("workers", Cell(links="shm", workers=40)),
        ("workers", Cell(links="veth", workers=300, topology="leaf-spine,16,1,20")),
        ("rate_mbit", Cell(links="shm", rate_mbit=100.0)),
        ("mtu", Cell(links="udp", mtu=9000)),
        ("mtu", Cell(links="veth", mtu=70_000)),
        ("switch", Cell(links="udp", switch="bmv2")),
        ("switch", Cell(links="veth", switch="no-such-switch")),
        # The sentence speaks of a rate, and it is the links that do not go with a topology.
        ("links", Cell(links="veth@200,veth@100", workers=4, topology="leaf-spine,2,1,2")),
    ],
)
def test_options_of_run_that_do_not_go_together_are_reported_at_the_axis_that_sets_them(axis: str, cell: Cell) -> None:
    with pytest.raises(Impossible) as refused:
        real.check(cell)
    assert refused.value.axis == axis


def test_another_systems_protocol_adds_the_same_arrays_on_the_same_links() -> None:
    ours, other = (simulated.run(Cell(workers=3, bytes=SIZE, protocol=name), 0) for name in ("switchsum", "switchml"))
    assert other.right
    assert SIZE / 1e6 < (other.sent_mb or 0.0) < 2 * (ours.sent_mb or 0.0)
    cell = Cell(links="veth", workers=2, protocol="switchml", rate_mbit=200.0, loss=0.01, bytes=8)
    words = " ".join(real.Setting.of(cell).command(cell, Path("/turns")))
    assert "run --baseline switchml -n 2 --links veth --switch embedded --lanes 256 --timeout 60.0 --loss 0.01" in words
    assert real.Setting.of(cell) != real.Setting.of(replace(cell, loss=0.0))  # it is told when it starts


def test_the_cause_is_raised_where_a_counted_rank_fails_or_all_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(peers: Peers, own: Stream, size: int) -> Callable[[], counted.Total]:
        if peers.rank == 2:
            raise ValueError("the cause")
        return lambda: topk_allgather(peers, own)

    def waiting(peers: Peers, own: Stream, size: int) -> Callable[[], counted.Total]:
        return lambda: topk_allgather(peers, own) if peers.rank else own

    monkeypatch.setattr(counted, "_WAIT_S", patience(0.2))
    cell = Cell(protocol="topka", collective="topk", workers=3, bytes=4000, density=0.1)
    for way, error, words in ((failing, ValueError, "the cause"), (waiting, LocalError, "topka stands still: ranks")):
        monkeypatch.setitem(counted.WAYS, "topka", way)
        with pytest.raises(error, match=words):
            simulated.run(cell, 0)


def test_a_later_call_of_several_steps_is_measured_on_virtual_links() -> None:
    cell = Cell(collective="topk", workers=2, bytes=800_000, density=0.02, overlap="random", block=1)
    first, later = (simulated.run(replace(cell, calls=calls), 0) for calls in (1, 2))
    assert later.ms < first.ms - 2e-3, "its pairs go along with the first step: a round trip less"
    with pytest.raises(Impossible) as refused:
        simulated.check(Cell(calls=2))
    assert refused.value.axis == "calls"
