"""Change each entry of the worker's rules to each other action, and run the entry's test: `python -m checks.mutate`.

Kernels run as plain Python, which reads the table at each step.  Exits with 1 when a change goes unnoticed.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"

from switchsum.host.engine.rules import ACTIONS, RULES, Action, Event
from switchsum.host.engine.state import Phase
from switchsum.protocol.frame import Kind
from tests.host import test_rules

FRAMES = tuple(event for event in Event if event <= Event.NEWER)
VALUES: dict[str, list[Any]] = {"phase": list(Phase), "kind": [Kind.RESULT, Kind.HELD, Kind.REJECT]}
EQUAL = {
    (Phase.IDLE, Event.ROW_FREE): "rows are looked at only while some slot is blocked; this bench has one slot",
    (Phase.WAITING, Event.ROW_FREE): "as an idle slot",
    (Phase.IDLE, Event.RESTARTED): "what has no contribution in flight is not repeated: NEVER is beyond every sequence",
    (Phase.BLOCKED, Event.RESTARTED): "as an idle slot",
}
"""Entries of which a change makes no difference here, and why."""


def main() -> None:
    """Print every change that no test has noticed."""
    tried, unnoticed = 0, []
    for rule, phase in itertools.product(RULES, Phase):
        was = Action(int(ACTIONS[phase, rule.event]))
        if was is Action.NEVER:
            continue
        for action in others(rule.event, was):
            tried += 1
            ACTIONS[phase, rule.event] = action
            if not fails(rule.test) and (phase, rule.event) not in EQUAL:
                unnoticed.append(f"{phase.name} {rule.event.name}: {action.name} for {was.name}")
        ACTIONS[phase, rule.event] = was
    for line in unnoticed:
        print(line)
    print(f"{tried} changes, {len(unnoticed)} unnoticed")
    sys.exit(1 if unnoticed else 0)


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


if __name__ == "__main__":
    main()
