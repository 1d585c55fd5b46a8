"""Each entry of the worker's rules changed to each other action, which the entry's test must notice.

Kernels run as plain Python, which reads the table at each step.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from switchsum_host.engine.rules import ACTIONS, PHASES, RULES, Action, Event
from switchsum_host.engine.state import Phase
from switchsum_protocol.frame import Kind
from tests.host import test_rules

from .mutant import Mutant

FRAMES = tuple(event for event in Event if event <= Event.NEWER)
VALUES: dict[str, list[Any]] = {"phase": list(Phase), "kind": [Kind.RESULT, Kind.HELD, Kind.REJECT], "slots": [16]}
EQUAL = {
    (Phase.IDLE, Event.ROW_FREE): "rows are looked at only while some slot is blocked; this bench has one slot",
    (Phase.WAITING, Event.ROW_FREE): "as an idle slot",
    (Phase.IDLE, Event.RESTARTED): "what has no contribution in flight is not repeated: NEVER is beyond every sequence",
    (Phase.BLOCKED, Event.RESTARTED): "as an idle slot",
}
"""Entries of which a change makes no difference here, and why."""


def mutants() -> Iterator[Mutant]:
    """Yield each change that makes a difference."""
    for rule, phase in itertools.product(RULES, Phase):
        was = Action(int(ACTIONS[phase, rule.event]))
        if was is Action.NEVER or (phase, rule.event) in EQUAL:
            continue
        for action in sorted(others(rule.event, was)):
            name = f"{phase.name} {rule.event.name}: {action.name} for {was.name}"
            noticed = functools.partial(is_noticed, rule.test, phase, rule.event, action)
            yield Mutant(side="worker's rules", name=name, is_noticed=noticed)
    for rule, phase in itertools.product(RULES, Phase):
        if rule.then is not None and ACTIONS[phase, rule.event] != Action.NEVER:
            for then in set(Phase) - {rule.then}:
                name = f"{phase.name} {rule.event.name}: then {then.name} for {rule.then.name}"
                noticed = functools.partial(is_noticed, rule.test, phase, rule.event, then, PHASES)
                yield Mutant(side="worker's rules", name=name, is_noticed=noticed)


def is_noticed(
    test: str, phase: Phase, event: Event, entry: Action | Phase, table: npt.NDArray[np.int64] = ACTIONS
) -> bool:
    """Tell whether a test fails with another entry in the table of actions, or of phases."""
    was = int(table[phase, event])
    table[phase, event] = entry
    try:
        return fails(test)
    finally:
        table[phase, event] = was


def others(event: Event, was: Action) -> set[Action]:
    """Return what an entry may be changed to: what other entries say about events of its kind."""
    events = FRAMES if event in FRAMES else (event,)
    found = {Action(int(ACTIONS[phase, other])) for phase in Phase for other in events}
    if event not in FRAMES:
        found.add(Action.NOTHING)
    return found - {was, Action.NEVER}


def fails(name: str) -> bool:
    """Tell whether a test fails, in a process of its own: a changed rule may write anywhere."""
    child = os.fork()
    if child == 0:
        try:
            run(name)
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] != 0


def run(name: str) -> None:
    """Run a test with all of its parameters."""
    test: Any = getattr(test_rules, f"test_{name}")
    names = inspect.signature(test).parameters
    for values in itertools.product(*(VALUES[name] for name in names)):
        test(**dict(zip(names, values, strict=True)))
