"""The rules of a worker's slot as one table: what the slot does when something happens.

A slot is *idle*, *waiting* for the result of the round that it has contributed to, or *blocked*: its next contribution
cannot be packed yet, for the transport still reads the row.  `switchsum_protocol.slot_rules` has the switch's half.

Why this is right, whatever the network loses, repeats or delays.  A slot contributes to round k+1 only after it took
result k, and repeats contribution k until then.  So the switch has every contribution once or several times, and counts
it once; and members of a slot differ by one round at most.  A frame about any round but the one that the slot waits for
is therefore old, or none of ours, and is only counted.  A result that contradicts the contribution is not believed:
the right one still comes, since the slot goes on to repeat.

A switch that was restarted has forgotten every round.  Who waits repeats his contribution, and, from the second time
on, the one before it, which a member that is one round behind may need (HELD says nothing about that one).  Who does
not wait repeats the last one.  The last round of a slot is therefore *outstanding* from the notice of the restart
until the slot contributes anew: nobody begins that round without the result of the last one.  An answer about the
last round is no acknowledgement, as it may be a copy from before the restart; it only makes the repeats rarer.

Where jobs share a slot (`switchsum_protocol.shared_rules`), another one may take it in the middle of a round.  HELD
then says whose contribution is missing, and who is asked so repeats it: that of his round, or of the one before.

The phase changes with three events alone, each of which leads to one phase.  They follow on the actions TAKE, BEGIN and
PACK, which prepare a contribution: it has gone (CONTRIBUTED), it must wait for its row (ROW_HELD), or there is nothing
to contribute (COLUMNS_OVER).

The kernels look actions up in `ACTIONS`, and phases in `PHASES`; tests/host/test_rules.py has a test of each row.
`checks/mutate` changes one entry after the other, which the row's test must notice.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from .state import Phase


class Event(IntEnum):
    """What happens to a slot; the first ones are frames that came from its switch."""

    RESULT = 0
    """The result of the slot's round; it agrees with what was contributed."""
    MISMATCH = 1
    """The result says that members contributed different operations."""
    HELD = 2
    """The switch has the contribution to the slot's round, and waits for others."""
    REJECT = 3
    """The switch refuses the contribution to the slot's round."""
    CONTRADICTION = 4
    """A result or refusal of the slot's round that does not agree with what was contributed."""
    FORMER = 5
    """RESULT or HELD of the round before."""
    FORMER_REJECT = 6
    OLDER = 7
    """Any frame about a round before that."""
    NEWER = 8
    """Any frame about a round that is yet to come."""
    SUBMITTED = 9
    """There is an operation with a column for the slot."""
    ROW_FREE = 10
    """The transport may have let go of the row."""
    CONTRIBUTED = 11
    """The contribution to the slot's round has been packed and queued."""
    ROW_HELD = 12
    """It cannot be packed, for the transport still reads the row, or the window is full."""
    COLUMNS_OVER = 13
    """No operation has a column for the slot that it has not looked at."""
    OVERTAKEN = 14
    """Results of later frames have come: the contribution or its result is taken for lost."""
    TIMED_OUT = 15
    """Nothing has come for a time-out, and it is this slot's turn to be repeated."""
    REPEATED = 16
    """The contribution is being repeated, and not for the first time."""
    RESTARTED = 17
    """The controller says that the switch was restarted."""
    RESEND_DUE = 18
    """It is time to repeat what is outstanding."""
    ASKED = 19
    """HELD of the slot's round, without this member's contribution: a shared slot has changed hands."""
    FORMER_ASKED = 20
    """The same of the round before, whose result another member has not got."""


class Action(IntEnum):
    """What the slot does."""

    NOTHING = 0
    TAKE = 1
    """Write the sums to the array, and contribute to the next round or begin the next column."""
    NOTE_HELD = 2
    """Remember for whom the switch waits, and ask less often."""
    FAIL_MISMATCH = 3
    """Give the operation up: OperationMismatch."""
    FAIL_REJECTED = 4
    """Give the operation up: the switch says why."""
    UNEXPECTED = 5
    """Count the frame under this name and drop it; the next three do the same under theirs."""
    DUPLICATE = 6
    STALE = 7
    FOREIGN = 8
    NOTE_ANSWER = 9
    """Like DUPLICATE. If the last round is outstanding, repeat it less and less often from now on."""
    BEGIN = 10
    """Take the next column and contribute to its first round."""
    PACK = 11
    """Pack the contribution and queue it, if the row is free."""
    REPEAT = 12
    """Queue the contribution once more, as it was packed but for the flag that says so."""
    REPEAT_FORMER = 13
    """The same with the contribution to the round before."""
    NOTE_OUTSTANDING = 14
    """The last round is outstanding."""
    NOTE_AND_REPEAT = 15
    """The last round and the slot's own round are outstanding; the slot's own one is repeated at once."""
    ACKNOWLEDGE = 16
    """Nothing is outstanding any more."""
    PUT_OFF = 17
    """Count that the contribution had to wait."""
    NEVER = 18
    """Cannot happen in this phase: only a waiting slot repeats its contribution, or has one to compare frames with.  In
    the other phases a frame about the slot's round is RESULT or HELD."""


class Rule(NamedTuple):
    """A row: what each phase does about an event; `test` names the one of tests/host/test_rules.py that sees it."""

    event: Event
    then: Phase | None
    """The next phase; None: as before."""
    idle: Action
    waiting: Action
    blocked: Action
    test: str


_E, _A, _P = Event, Action, Phase
# fmt: off
RULES: Final = (
    #    what happens       then        idle                 waiting              blocked              test
    Rule(_E.RESULT,         None,       _A.FOREIGN,          _A.TAKE,             _A.FOREIGN,          "results"),
    Rule(_E.MISMATCH,       None,       _A.NEVER,            _A.FAIL_MISMATCH,    _A.NEVER,            "results"),
    Rule(_E.HELD,           None,       _A.FOREIGN,          _A.NOTE_HELD,        _A.FOREIGN,          "held"),
    Rule(_E.REJECT,         None,       _A.NEVER,            _A.FAIL_REJECTED,    _A.NEVER,            "rejects"),
    Rule(_E.CONTRADICTION,  None,       _A.NEVER,            _A.UNEXPECTED,       _A.NEVER,            "results"),
    Rule(_E.FORMER,         None,       _A.NOTE_ANSWER,      _A.NOTE_ANSWER,      _A.NOTE_ANSWER,      "former"),
    Rule(_E.FORMER_REJECT,  None,       _A.DUPLICATE,        _A.DUPLICATE,        _A.DUPLICATE,        "former"),
    Rule(_E.OLDER,          None,       _A.STALE,            _A.STALE,            _A.STALE,            "other_rounds"),
    Rule(_E.NEWER,          None,       _A.FOREIGN,          _A.FOREIGN,          _A.FOREIGN,          "other_rounds"),
    Rule(_E.SUBMITTED,      None,       _A.BEGIN,            _A.NOTHING,          _A.NOTHING,          "submitted"),
    Rule(_E.ROW_FREE,       None,       _A.NOTHING,          _A.NOTHING,          _A.PACK,             "row_free"),
    Rule(_E.CONTRIBUTED,    _P.WAITING, _A.ACKNOWLEDGE,      _A.ACKNOWLEDGE,      _A.ACKNOWLEDGE,      "contributed"),
    Rule(_E.ROW_HELD,       _P.BLOCKED, _A.PUT_OFF,          _A.PUT_OFF,          _A.NOTHING,          "row_held"),
    Rule(_E.COLUMNS_OVER,   _P.IDLE,    _A.NEVER,            _A.NOTHING,          _A.NEVER,            "columns_over"),
    Rule(_E.OVERTAKEN,      None,       _A.NEVER,            _A.REPEAT,           _A.NEVER,            "overtaken"),
    Rule(_E.TIMED_OUT,      None,       _A.NEVER,            _A.REPEAT,           _A.NEVER,            "timed_out"),
    Rule(_E.REPEATED,       None,       _A.NEVER,            _A.REPEAT_FORMER,    _A.NEVER,            "repeated"),
    Rule(_E.RESTARTED,      None,       _A.NOTE_OUTSTANDING, _A.NOTE_AND_REPEAT,  _A.NOTE_OUTSTANDING, "restarted"),
    Rule(_E.RESEND_DUE,     None,       _A.REPEAT_FORMER,    _A.NOTHING,          _A.REPEAT_FORMER,    "resend_due"),
    Rule(_E.ASKED,          None,       _A.FOREIGN,          _A.REPEAT,           _A.FOREIGN,          "asked"),
    Rule(_E.FORMER_ASKED,   None,       _A.REPEAT_FORMER,    _A.REPEAT_FORMER,    _A.REPEAT_FORMER,    "former_asked"),
)
# fmt: on


def actions_of(rules: tuple[Rule, ...]) -> npt.NDArray[np.int64]:
    """Return a table as kernels index it: the action by phase and event."""
    actions = np.full((len(Phase), len(Event)), Action.NOTHING, np.int64)
    for rule in rules:
        actions[Phase.IDLE, rule.event] = rule.idle
        actions[Phase.WAITING, rule.event] = rule.waiting
        actions[Phase.BLOCKED, rule.event] = rule.blocked
    return actions


def phases_of(rules: tuple[Rule, ...]) -> npt.NDArray[np.int64]:
    """Return the next phase by phase and event."""
    phases = np.repeat(np.arange(len(Phase), dtype=np.int64)[:, None], len(Event), axis=1)
    for rule in rules:
        if rule.then is not None:
            phases[:, rule.event] = rule.then
    return phases


ACTIONS: Final = actions_of(RULES)
"""The action by phase and event; kernels hold it as a constant."""
PHASES: Final = phases_of(RULES)
"""The next phase by phase and event; kernels hold it as a constant."""
