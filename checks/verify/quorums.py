"""What is checked of operations that may go on without some ranks (quorum.pml), and what each search must come to."""

from __future__ import annotations

from typing import Final

from .configurations import STUCK, Configuration, Outcome

HOLDS: Final = (Outcome.HOLDS,)
APART: Final = (Outcome.DISAGREEMENT,)
LACKING: Final = (Outcome.LACKING,)


def _quorum(
    name: str, *, outcomes: tuple[Outcome, ...] = HOLDS, is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"quorum: {name}", model="quorum.pml", outcomes=outcomes, macros=macros, is_long=is_long)


QUORUMS: Final = (
    _quorum("3 operations", is_long=True),
    _quorum("any rank alone is a quorum", QUORUM=1, is_long=True),
    _quorum("controller killed", CRASHES=1),
    _quorum("controller killed, any rank alone is a quorum", QUORUM=1, CRASHES=1, is_long=True),
    _quorum("a write fails, controller killed", FAILURES=1, CRASHES=1, is_long=True),
    _quorum("a rank dies, controller killed", DEATHS=1, CRASHES=1, is_long=True),
    _quorum("a rank dies, a write fails", DEATHS=1, FAILURES=1),
    _quorum("switch cleared, controller killed twice", CLEARS=1, CRASHES=2, is_long=True),
    _quorum("4 operations, a write fails, controller killed twice", OPERATIONS=4, FAILURES=1, CRASHES=2, is_long=True),
    _quorum(
        "ranks that are too late are given the model",
        OPERATIONS=5,
        KEEP=2,
        QUORUM=1,
        GIVES_MODEL=None,
        is_long=True,
    ),
    _quorum(
        "the model is given alone",
        outcomes=LACKING,
        OPERATIONS=5,
        KEEP=2,
        QUORUM=1,
        GIVES_MODEL=None,
        BREAK_MODEL_ALONE=None,
    ),
    _quorum("ranks are told before entries stand", outcomes=(*APART, *STUCK), CRASHES=1, BREAK_TELLS_FIRST=None),
    _quorum(
        "a new controller tells what not all switches have",
        outcomes=APART,
        CLEARS=1,
        CRASHES=2,
        BREAK_TELLS_UNSETTLED=None,
        is_long=True,
    ),
    _quorum("a decision names a job that is made later", outcomes=STUCK, CRASHES=1, BREAK_JOB_LAST=None),
    _quorum("nobody need have the latest result", outcomes=LACKING, QUORUM=1, BREAK_NOBODY_KNOWS=None),
    _quorum("a rank may lack any number of results", outcomes=LACKING, BREAK_NO_LIMIT=None, is_long=True),
)
