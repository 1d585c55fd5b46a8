"""Rules of the controller changed in its code alone or in the model alone; what it does is replayed in the model."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Final, NamedTuple
from unittest.mock import patch

from checks.verify.hand_over import Move, moves
from checks.verify.replay import differences
from switchsum_controller.jobs import registry as jobs
from switchsum_controller.jobs import slots
from switchsum_controller.service import reconciler
from switchsum_controller.switches import fleet
from switchsum_protocol.errors import SwitchsumError

from .mutant import Mutant, edited
from .slot import expected_steps


class Change(NamedTuple):
    """Another text in a module of the controller, of which another module then uses a name."""

    module: types.ModuleType
    before: str
    after: str
    user: types.ModuleType
    name: str


CODE: Final[dict[str, Change]] = {
    "the first member that goes gives the slot away": Change(
        jobs, "if incarnation.ranks(MemberState.ADMITTED):", "if False:", reconciler, "Jobs"
    ),
    "entries stay when the last member has gone": Change(
        jobs,
        "job.live, job.has_ended, job.fault = None,",
        "job.live, job.has_ended, job.fault = job.live,",
        reconciler,
        "Jobs",
    ),
    "an incarnation has the epoch of the one before": Change(
        jobs,
        "incarnation, new_incarnation(incarnation.epoch + 1,",
        "incarnation, new_incarnation(incarnation.epoch,",
        reconciler,
        "Jobs",
    ),
    "cells are read before the gate is closed": Change(
        reconciler, "self.fleet.is_up:\n                self.synchronise()\n", "True:\n", reconciler, "Reconciler"
    ),
    "who is admitted before cells are read": Change(
        reconciler,
        "            first_number = self.fleet.hand_over(job.reserved, there, self.fabric.fallback)\n",
        "            self.jobs.make_live(job, 0)\n            self.synchronise()\n"
        "            first_number = self.fleet.hand_over(job.reserved, there, self.fabric.fallback)\n"
        "            return\n",
        reconciler,
        "Reconciler",
    ),
    "numbers start anew with each incarnation": Change(slots, "if not used:", "if True:", fleet, "plan_numbers"),
    "the newest number is used again": Change(
        slots,
        "serial.advance(serial.newest([cell.number for cell in used]))",
        "serial.newest([cell.number for cell in used])",
        fleet,
        "plan_numbers",
    ),
    "the oldest number counts": Change(
        slots,
        "serial.newest([cell.number for cell in used])",
        "min(cell.number for cell in used)",
        fleet,
        "plan_numbers",
    ),
}
"""Changes of the controller's code."""

MODEL: Final[dict[str, tuple[str, str]]] = {
    "the first member that goes gives the slot away": ("(ALL_LEFT || lost)", "(ANY_LEFT || lost)"),
    "a third member does not count": ("(left[0] && left[1] && (WORKERS < 3 || left[2]))", "(left[0] && left[1])"),
    "only a loss closes the gate": ("(ALL_LEFT || lost)", "lost"),
    "no loss closes the gate": ("(ALL_LEFT || lost)", "ALL_LEFT"),
    "the gate stays open": ("    gate = CLOSED\n", "    gate = OPEN\n"),
    "the slot passes while the gate is open": ("HAND_OVER (gate == CLOSED)", "HAND_OVER (gate != HANDED_OVER)"),
    "numbers start anew with each incarnation": ("(queried == NUMBERS -> FIRST : (queried + 1) % NUMBERS)", "FIRST"),
    "the newest number is used again": ("(queried + 1) % NUMBERS", "queried"),
    "the oldest number counts": ("NUMBERS < NUMBERS / 2", "NUMBERS >= NUMBERS / 2"),
    "all epochs are admitted": ("(gate == OPEN && (i) == 0) || (gate == HANDED_OVER && (i) == 1)", "true"),
}
"""Changes of `checks/verify/controller.pml`."""


def mutants() -> Iterator[Mutant]:
    """Yield each change."""
    for name, change in CODE.items():
        yield Mutant(side="controller", name=name, is_noticed=functools.partial(code_differs, change))
    for name, texts in MODEL.items():
        yield Mutant(side="model's controller", name=name, is_noticed=functools.partial(model_differs, texts))


@functools.cache
def expected() -> list[Move]:
    """Return what the controller does."""
    return moves()


def code_differs(change: Change) -> bool:
    """Tell whether a changed controller does anything that the model does not allow, or nothing where it must."""
    made = edited(change.module, change.before, change.after)
    with patch.object(change.user, change.name, getattr(made, change.name)):
        try:
            found = moves()
        except (SwitchsumError, AssertionError):
            return True
    return bool(differences([], found))


def model_differs(texts: tuple[str, str]) -> bool:
    """Tell whether a changed model does not allow what the controller does, or does not do it."""
    return bool(differences(expected_steps(), expected(), {"controller.pml": texts}))
