"""Starts in which parts are killed and stopped: the short form of `make soak-starts`, and how it judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checks.soak.starts import RANKS, Starts, StartWorld, Trial
from checks.soak.world import leftovers
from support.timing import patience
from switchsum_switch.process.children import Children

DONE = {"outcome": "done", "reformed": False}
REFORMED = {"outcome": "done", "reformed": True}


def error(name: str) -> dict[str, Any]:
    return {"outcome": "error", "error": name}


@pytest.mark.parametrize(
    ("part", "act", "reports", "problem"),
    [
        ("controller", "kill", [DONE] * 4, ""),
        ("leaf0", "kill", [DONE, DONE, DONE, error("SwitchLost")], "does not explain"),
        ("root", "stop", [error("SwitchLost")] * 4, "does not explain"),
        ("root", "kill", [DONE] * 3, "1 ranks hang"),
        ("standby", "stop", [DONE] * 3 + [{"outcome": "wrong: 5 for 6"}], "does not explain"),
        ("rank 1", "kill", [REFORMED] * 3, ""),
        ("rank 1", "kill", [error("CollectiveTimeout")] * 3, ""),
        ("rank 1", "kill", [DONE] * 3, ""),
        ("rank 1", "kill", [error("CollectiveTimeout"), REFORMED, REFORMED], "not the same"),
        ("rank 1", "kill", [error("NotAdmitted")] * 3, "does not explain"),
        ("rank 1", "stop", [REFORMED] * 4, "does not explain"),
    ],
)
def test_a_trial_is_well_only_if_all_ranks_end_in_the_same_way_and_for_a_reason(
    part: str, act: str, reports: list[dict[str, Any]], problem: str
) -> None:
    trial = Trial(0, part, act, dict(enumerate(reports)), 10.0)
    lived = RANKS - trial.kills_rank
    assert problem in trial.problem(lived, 20.0)
    assert bool(problem) == bool(trial.problem(lived, 20.0))
    assert "are stated" in Trial(0, part, act, dict(enumerate([DONE] * lived)), 21.0).problem(lived, 20.0)


INJURIES = (
    *(("root", "kill"), ("root", "stop"), ("leaf0", "kill"), ("leaf1", "stop")),
    *(("controller", "kill"), ("controller", "stop"), ("standby", "kill"), ("standby", "stop")),
    *(("rank 1", "kill"), ("rank 2", "kill"), ("rank 3", "stop")),
)
"""Each kind of part, killed and stopped; ranks 0 and 1 use shared memory, 2 and 3 UDP."""


@pytest.mark.timeout(400)
def test_starts_outlive_each_kind_of_part_being_killed_and_stopped(tmp_path: Path) -> None:
    with Children() as children:
        world = StartWorld(children, tmp_path)
        starts = Starts(world, seed=20, patience=patience(1.0))
        for number, injury in enumerate(INJURIES):
            starts.run(number, injury)
        starts.finish()
    assert starts.problems == []
    assert leftovers(world.mark) == []
    assert [(trial.part, trial.act) for trial in starts.trials] == [*INJURIES]
