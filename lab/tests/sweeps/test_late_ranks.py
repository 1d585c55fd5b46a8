"""Cells whose ranks begin at different times, half collectives, and what links and switches do besides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from switchsum_lab.sweeps import lateness, simulated
from switchsum_lab.sweeps.axes import AXES, Cell, Impossible
from switchsum_lab.sweeps.checks import check
from switchsum_protocol.errors import UsageError

CELL = Cell(workers=4, bytes=40_000)


def test_lateness_is_drawn_from_the_seed_and_begins_with_the_first_rank() -> None:
    for text, least, most in (("exponential:1ms", 0.8e-3, 1.2e-3), ("uniform:1ms", 0.4e-3, 0.6e-3)):
        late = lateness.drawn(text, 10_000, seed=3)
        assert late == lateness.drawn(text, 10_000, seed=3) != lateness.drawn(text, 10_000, seed=4)
        assert min(late) == 0.0
        assert least < np.mean(late) < most
    assert sorted(lateness.drawn("one:1ms", 4, seed=1)) == [0.0, 0.0, 0.0, 1e-3]
    assert lateness.drawn(None, 3, seed=1) == [0.0] * 3
    for wrong in ("exponential", "normal:1ms", "one:soon"):
        with pytest.raises(UsageError, match="written like"):
            lateness.parse(wrong)


@pytest.mark.parametrize("protocol", ["switchsum", "ring", "halving-doubling", "tree", "switchml", "parameter_server"])
def test_a_sum_takes_as_much_longer_as_one_rank_is_late(protocol: str) -> None:
    together, late = (
        simulated.run(replace(CELL, protocol=protocol, late_ranks=text), 0) for text in (None, "one:500us")
    )
    assert (together.late_ms, late.late_ms) == (None, 0.5)
    assert 0.5 < late.ms < together.ms + 0.55
    assert late.right == together.right


def test_a_sum_of_several_steps_has_late_ranks_too() -> None:
    cell = replace(CELL, collective="topk", density=0.1)
    together, late = (simulated.run(replace(cell, late_ranks=text), 0) for text in (None, "one:500us"))
    assert (late.late_ms, late.right) == (0.5, True)
    assert 0.5 < late.ms < together.ms + 0.55


def test_half_of_an_allreduce_takes_hosts_half_of_the_time() -> None:
    cells = {name: replace(CELL, collective=name) for name in ("allreduce", "reduce_scatter", "allgather")}
    for protocol in ("ring", "ideal-ring"):
        whole, *halves = (simulated.run(replace(cell, protocol=protocol), 0).ms for cell in cells.values())
        assert [*halves] == pytest.approx([whole / 2] * 2, rel=0.1)
    for name in ("reduce_scatter", "allgather"):
        check(cells[name])
        assert simulated.run(cells[name], 0).right


def test_marks_overhead_and_failures_reach_the_simulation() -> None:
    plain, bare = (simulated.run(replace(CELL, overhead=overhead), 0) for overhead in (None, 0))
    assert bare.ms < plain.ms
    assert simulated.scenario_of(replace(CELL, mark="20KB")).conditions.mark_bytes == 20_000
    failing = replace(CELL, topology="leaf-spine,2,2,2", bytes=4_000_000, fail="s1@1ms")
    check(failing)
    assert simulated.scenario_of(failing).failures == (("s1", 1e-3),)
    assert simulated.run(failing, 0).ms > simulated.run(replace(failing, fail=None), 0).ms


@pytest.mark.parametrize("protocol", ["switchsum", "ring"])
def test_streams_of_other_hosts_slow_the_links_that_they_share(protocol: str) -> None:
    """The link between the leaves is shared with streams; the job has the same hosts without any."""
    cell = Cell(protocol=protocol, workers=4, topology="leaf-spine,2,1,4", bytes=400_000, rate_mbit=1000.0, queue="64f")
    check(cell)
    alone, beside = (simulated.run(replace(cell, background=count), 0) for count in (0, 2))
    assert beside.ms > 1.2 * alone.ms
    assert beside.right == alone.right
    assert simulated.run(replace(cell, background=2), 0) == beside
    with pytest.raises(Impossible, match="needs two hosts that belong to no job, and 4 are left") as refused:
        check(replace(cell, background=3))
    assert refused.value.axis == "background"
    with pytest.raises(Impossible, match="streams fill queues that have no limit") as refused:
        check(replace(cell, background=1, queue=None))
    assert refused.value.axis == "background"


@pytest.mark.parametrize(
    ("axis", "change"),
    [
        ("fail", {"fail": "s1@1ms", "protocol": "ring"}),
        ("fail", {"fail": "s1@1ms", "collective": "topk"}),
        ("late_ranks", {"late_ranks": "one:1ms", "shared_slots": 16}),
        ("late_ranks", {"late_ranks": "one:1ms", "links": "shm"}),
        ("late_ranks", {"late_ranks": "one:1ms", "protocol": "oktopk", "collective": "topk"}),
        ("background", {"background": 1, "protocol": "switchml"}),
        ("background", {"background": 1, "links": "shm"}),
        ("pause", {"late_ranks": "one:1ms", "pause": "h1@1ms+1ms"}),
        ("collective", {"collective": "allgather", "protocol": "tree"}),
        ("collective", {"collective": "allgather", "protocol": "switchml"}),
        ("collective", {"collective": "allgather", "links": "shm"}),
        ("bytes", {"collective": "reduce_scatter", "workers": 3}),
    ],
)
def test_what_has_none_of_it_is_refused(axis: str, change: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as refused:
        check(replace(CELL, **change))
    assert refused.value.axis == axis


def test_values_in_a_file_are_checked() -> None:
    assert AXES["late_ranks"].read("none") is None
    assert AXES["late_ranks"].read("uniform:1ms") == "uniform:1ms"
    for name, wrong in (("late_ranks", "late"), ("mark", "x"), ("overhead", "-1"), ("fail", "s1")):
        with pytest.raises(UsageError):
            AXES[name].read(wrong)
