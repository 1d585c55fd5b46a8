"""The rules of the model's workers, made from the table that the engine's kernels look up: neither can change alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchsum_host.engine.rules import ACTIONS, Action, Event
from switchsum_host.engine.state import Phase

Changes = Mapping[tuple[Phase, Event], Action]
"""Entries of the table that are to be other ones."""

_NOTES: Final = (Action.NOTE_OUTSTANDING, Action.NOTE_AND_REPEAT)
QUESTIONS: Final[Mapping[str, tuple[Phase, Event, tuple[Action, ...]]]] = {
    "TAKES_RESULT": (Phase.WAITING, Event.RESULT, (Action.TAKE,)),
    "REPEATS_WAITING": (Phase.WAITING, Event.TIMED_OUT, (Action.REPEAT,)),
    "REPEATS_BOTH": (Phase.WAITING, Event.REPEATED, (Action.REPEAT_FORMER,)),
    "NOTES_WAITING": (Phase.WAITING, Event.RESTARTED, _NOTES),
    "NOTES_IDLE": (Phase.IDLE, Event.RESTARTED, _NOTES),
    "RESENDS_IDLE": (Phase.IDLE, Event.RESEND_DUE, (Action.REPEAT_FORMER,)),
    "ANSWER_ACKNOWLEDGES": (Phase.IDLE, Event.FORMER, (Action.ACKNOWLEDGE,)),
    "NEXT_ACKNOWLEDGES": (Phase.WAITING, Event.CONTRIBUTED, (Action.ACKNOWLEDGE,)),
}
"""Macros of worker.pml: 1 if the entry is one of these actions, else 0."""

NOT_MODELLED: Final[Mapping[Event, str]] = {
    Event.MISMATCH: "the model's result says so, and taking it ends the worker",
    Event.HELD: "changes when a repeat comes; in the model one may come at any time",
    Event.REJECT: "admitted members' contributions are well-formed",
    Event.CONTRADICTION: "the model has no broken frames; a wrong result violates an assertion",
    Event.FORMER_REJECT: "as REJECT",
    Event.OLDER: "is counted only",
    Event.NEWER: "comes from no switch",
    Event.SUBMITTED: "a worker contributes at any time",
    Event.ROW_FREE: "as SUBMITTED: a blocked slot is one that has not contributed yet",
    Event.ROW_HELD: "as ROW_FREE",
    Event.COLUMNS_OVER: "a worker contributes at any time, or never again",
    Event.OVERTAKEN: "as TIMED_OUT: it is another time for the same repeat",
    Event.ASKED: "as TIMED_OUT, where jobs share slots; passing.pml has these",
    Event.FORMER_ASKED: "likewise",
}
"""Events without a macro, and why they cannot matter to what is searched for."""


def macros(changes: Changes) -> dict[str, int]:
    """Return the macros of the table, with some entries changed."""
    found = {}
    for name, (phase, event, actions) in QUESTIONS.items():
        action = changes.get((phase, event), Action(int(ACTIONS[phase, event])))
        found[name] = int(action in actions)
    return found
