"""What is checked: each model with its macros, and what the search must come to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from switchsum_host.engine.rules import Action, Event
from switchsum_host.engine.state import Phase

from .worker_rules import Changes


class Outcome(StrEnum):
    """What a search finds."""

    HOLDS = "holds"
    """All runs end with every worker served, and no result was wrong."""
    DEAD_END = "dead end"
    """Some run ends while a worker still waits."""
    DOUBLE_ADDITION = "double addition"
    """A worker took a result in which a contribution was added twice."""
    MISSING = "missing contribution"
    FOREIGN_LANES = "lanes of another round"
    WRONG_NEXT = "wrong next block or exponent"
    WRONG_FLAGS = "wrong mismatch flag"
    DISAGREEMENT = "ranks that disagree on who takes part"
    LACKING = "a result that nobody has"


FAULTS: Mapping[str, Outcome] = {
    r"!=1\)$": Outcome.DOUBLE_ADDITION,
    r"!=2\)$": Outcome.MISSING,
    r"!=3\)$": Outcome.FOREIGN_LANES,
    r"!=4\)$": Outcome.WRONG_NEXT,
    r"!=5\)$": Outcome.WRONG_FLAGS,
    r"added_twice": Outcome.DOUBLE_ADDITION,
    r"mixed": Outcome.FOREIGN_LANES,
    r"truth\[|<=latest": Outcome.DISAGREEMENT,
    r"has\[|after\[": Outcome.LACKING,
    r"foreign|lanes_job": Outcome.FOREIGN_LANES,
    r"f_added": Outcome.DOUBLE_ADDITION,
}
"""By a pattern of the violated assertion, in which slot.pml's names of faults are spelled out as numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One exhaustive search."""

    name: str
    outcomes: tuple[Outcome, ...] = (Outcome.HOLDS,)
    """What may be found; a broken rule shows in one way or another, whichever the search meets first."""
    macros: Mapping[str, int | None] = field(default_factory=dict)
    """Preprocessor definitions; None: without a value."""
    changes: Changes = field(default_factory=dict)
    """Of the worker's rules."""
    model: str = "model.pml"
    ignores_dead_ends: bool = False
    """Look for wrong results only."""
    is_long: bool = False
    """Left out of the subset for continuous integration."""


WRONG = (Outcome.DOUBLE_ADDITION, Outcome.MISSING, Outcome.FOREIGN_LANES, Outcome.WRONG_NEXT, Outcome.WRONG_FLAGS)
STUCK = (Outcome.DEAD_END,)


def _holds(name: str, *, is_long: bool = False, **macros: int | None) -> Configuration:
    return Configuration(name=name, macros=macros, is_long=is_long)


def _fails(name: str, outcomes: tuple[Outcome, ...], **macros: int | None) -> Configuration:
    return Configuration(name=name, outcomes=outcomes, macros=macros)


def _changed(name: str, phase: Phase, event: Event, action: Action) -> Configuration:
    """Return a search with another entry in the table of the worker's rules."""
    return Configuration(name=name, outcomes=STUCK, macros={"CLEARS": 1}, changes={(phase, event): action})


CONFIGURATIONS: tuple[Configuration, ...] = (
    _holds("2 workers, 6 rounds"),
    _holds("2 workers, 9 rounds", OPERATIONS=3, is_long=True),
    _holds("3 workers, 4 rounds", WORKERS=3, BLOCKS=1),
    _holds("3 workers, 6 rounds", WORKERS=3, is_long=True),
    _holds("mixed operations, 2 workers", MIXED=None),
    _holds("mixed operations, 3 workers", WORKERS=3, BLOCKS=1, MIXED=None, is_long=True),
    _holds("switch cleared once, 2 workers", CLEARS=1),
    _holds("switch cleared twice, 2 workers", CLEARS=2, is_long=True),
    _holds("switch cleared twice, 3 workers", WORKERS=3, BLOCKS=1, CLEARS=2, is_long=True),
    _holds("switch cleared once, 3 workers", WORKERS=3, OPERATIONS=1, CLEARS=1, is_long=True),
    _holds("slot handed over, 2 to 2 workers", HAND_OVER=None, BLOCKS=1),
    _holds("slot handed over, 2 to 3 workers", HAND_OVER=None, BLOCKS=1, OPERATIONS=1, WORKERS_AFTER=3),
    _holds(
        "slot handed over, 3 to 2 workers",
        HAND_OVER=None,
        BLOCKS=1,
        OPERATIONS=1,
        WORKERS=3,
        WORKERS_AFTER=2,
        is_long=True,
    ),
    _holds("member killed, new epoch", HAND_OVER=None, KILLS=None, BLOCKS=1),
    _holds("member killed, switch cleared", HAND_OVER=None, KILLS=None, CLEARS=1, BLOCKS=1, OPERATIONS=1, is_long=True),
    _changed("nothing is repeated", Phase.WAITING, Event.TIMED_OUT, Action.NOTHING),
    _changed("results are not taken", Phase.WAITING, Event.RESULT, Action.STALE),
    _changed("only the last contribution is repeated", Phase.WAITING, Event.REPEATED, Action.NOTHING),
    _fails("`held` ends the repetition of the former", STUCK, CLEARS=1, BREAK_HELD_STOPS=None),
    _changed("idle slots are silent after a clear", Phase.IDLE, Event.RESEND_DUE, Action.NOTHING),
    _changed("idle slots ignore a clear", Phase.IDLE, Event.RESTARTED, Action.NOTHING),
    _changed("an old answer acknowledges", Phase.IDLE, Event.FORMER, Action.ACKNOWLEDGE),
    _changed("slots that wait ignore a clear", Phase.WAITING, Event.RESTARTED, Action.REPEAT),
    _fails("repeats without lanes", WRONG, CLEARS=1, BREAK_PROBES_WITHOUT_LANES=None),
    _fails("numbers start anew with each job", (*STUCK, *WRONG), HAND_OVER=None, BLOCKS=1, BREAK_START_AT_ONE=None),
    _fails("first to leave gives the slot away", STUCK, HAND_OVER=None, BLOCKS=1, BREAK_EARLY_HAND_OVER=None),
    _fails(
        "cells queried before the gate is closed",
        WRONG,
        HAND_OVER=None,
        KILLS=None,
        BLOCKS=1,
        BREAK_QUERY_BEFORE_CLOSE=None,
    ),
    _fails(
        "epoch ignored, switch cleared",
        (*STUCK, *WRONG),
        HAND_OVER=None,
        KILLS=None,
        CLEARS=1,
        BLOCKS=1,
        BREAK_EPOCH_IGNORED=None,
    ),
    _fails("row 3 broken: old numbers count", (*STUCK, *WRONG), BREAK_ROW_3=None),
    _fails("rows 4 and 5 broken: no fresh start", (*STUCK, *WRONG), BREAK_ROWS_4_5=None),
    _fails("rows 10 and 11 broken: repeats are combined", WRONG, BREAK_ROWS_10_11=None),
    Configuration(
        name="SwitchML's one bit", model="one_bit.pml", outcomes=(Outcome.DOUBLE_ADDITION,), ignores_dead_ends=True
    ),
    Configuration(name="SwitchML's one bit, packets in order", model="one_bit.pml", macros={"IN_ORDER": None}),
)
