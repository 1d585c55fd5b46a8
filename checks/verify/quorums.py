"""What is checked of agreements on who takes part: quorum.pml with its macros, and what each search must come to."""

from __future__ import annotations

from typing import Final

from .configurations import STUCK, Configuration, Outcome

APART: Final = (Outcome.DISAGREEMENT,)


def _quorum(
    name: str, *, outcomes: tuple[Outcome, ...] = (Outcome.HOLDS,), is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"quorum: {name}", model="quorum.pml", outcomes=outcomes, macros=macros, is_long=is_long)


QUORUMS: Final = (
    _quorum("3 operations"),
    _quorum("4 operations", OPERATIONS=4),
    _quorum("4 operations, results are kept for none", OPERATIONS=4, KEEPS=0),
    _quorum("2 operations, switch cleared", OPERATIONS=2, CLEARS=1),
    _quorum("3 operations, switch cleared", CLEARS=1, is_long=True),
    _quorum("closing is no single step", outcomes=APART, BREAK_NOT_ATOMIC=None),
    _quorum("ranks are told before entries stand", outcomes=(*APART, *STUCK), BREAK_TELLS_FIRST=None),
    _quorum("a rank that stops is left out afterwards", outcomes=APART, BREAK_DECIDES_AGAIN=None),
    _quorum("a result is not kept for the last rank", outcomes=STUCK, BREAK_NOT_KEPT=None),
    _quorum(
        "a round from before a clear is closed", outcomes=APART, OPERATIONS=2, CLEARS=1, BREAK_CLOSE_AFTER_CLEAR=None
    ),
    _quorum(
        "entries do not stop a round that is closed", outcomes=APART, OPERATIONS=2, CLEARS=1, BREAK_ENTRIES_IGNORED=None
    ),
)
