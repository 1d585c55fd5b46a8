"""All-to-all as a collective of sweeps: ways of hosts, what ours does, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from switchsum_lab.simulation import peers
from switchsum_lab.sweeps import simulated
from switchsum_lab.sweeps.axes import ALL_TO_ALL, Cell, Impossible
from switchsum_lab.sweeps.checks import check
from switchsum_lab.sweeps.outcome import Outcome

CELL = Cell(collective=ALL_TO_ALL, workers=8, bytes=400_000)


def run(**change: Any) -> Outcome:
    cell = replace(CELL, **change)
    check(cell)
    return simulated.run(cell, 0)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 12])
def test_every_part_comes_to_its_host(ranks: int) -> None:
    """Parts are pairs of hosts, from and to; a step of Bruck's moves those that still have its distance to go."""
    pairwise = {(step.source, rank) for rank in range(ranks) for step in peers.pairwise(rank, ranks)}
    assert pairwise == {(a, b) for a in range(ranks) for b in range(ranks) if a != b}
    held = [[(rank, other) for other in range(ranks)] for rank in range(ranks)]
    for bit, steps in enumerate(zip(*(peers.bruck(rank, ranks) for rank in range(ranks)), strict=True)):
        moved = [[part for part in held[rank] if (part[1] - part[0]) % ranks >> bit & 1] for rank in range(ranks)]
        for rank, step in enumerate(steps):
            assert step.share == pytest.approx(len(moved[rank]) / ranks)
            assert steps[step.to].source == rank
        kept = [[part for part in held[rank] if part not in moved[rank]] for rank in range(ranks)]
        held = [kept[rank] + moved[steps[rank].source] for rank in range(ranks)]
    assert [sorted(parts) for parts in held] == [[(other, rank) for other in range(ranks)] for rank in range(ranks)]
    for rank in range(ranks):
        for number, stream in enumerate(peers.direct(rank, ranks)):
            [step] = stream.steps
            far = peers.direct(step.to, ranks)[stream.far]
            assert (far.steps[0].to, far.far) == (rank, number)


def test_large_parts_take_what_links_need_and_small_ones_what_steps_need() -> None:
    ideal = run(protocol="ideal-ring").ms
    assert ideal == pytest.approx(7 / 8 * 400_000 * 8 / 1e10 * 1e3, rel=0.06), "headers and gaps are 5 %"
    for protocol in ("pairwise", "direct"):
        assert ideal < run(protocol=protocol).ms < 1.15 * ideal
    assert run(protocol="bruck").ms > 1.5 * ideal, "each of three steps has half of the array"
    small = {name: run(protocol=name, bytes=32).ms for name in ("pairwise", "bruck", "direct")}
    assert small["direct"] < small["bruck"] < small["pairwise"]


def test_ours_sends_to_all_others_as_gloo_does_and_repeats_what_is_lost() -> None:
    assert run(protocol="switchsum") == run(protocol="direct")
    assert run(loss=0.01).repeats
    assert run(workers=4, jobs=2).ms > 0
    assert run(topology="leaf-spine,4,1,2", workers=8).ms > 1.5 * run().ms, "uplinks carry two hosts' parts"


@pytest.mark.parametrize(
    ("axis", "change"),
    [
        ("collective", {"protocol": "ring"}),
        ("collective", {"protocol": "switchml"}),
        ("collective", {"protocol": "topka"}),
        ("collective", {"links": "shm"}),
        ("collective", {"protocol": "pairwise", "collective": "allreduce"}),
        ("collective", {"protocol": "direct", "collective": "allgather"}),
        ("bytes", {"bytes": 400_004}),
        ("workers", {"workers": 66, "topology": "leaf-spine,33,1,2", "bytes": 264_000}),
        ("lanes", {"lanes": "int8"}),
        ("fail", {"fail": "s1@1ms"}),
        ("shared_slots", {"shared_slots": 16}),
        ("density", {"density": 0.1}),
    ],
)
def test_what_an_all_to_all_has_not_is_refused(axis: str, change: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as refused:
        check(replace(CELL, **change))
    assert refused.value.axis == axis
