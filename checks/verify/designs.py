"""What is checked of designs that are not built: quorum.pml and shared.pml, and what each search must come to."""

from __future__ import annotations

from typing import Final

from .configurations import STUCK, Configuration, Outcome

HOLDS: Final = (Outcome.HOLDS,)
APART: Final = (Outcome.DISAGREEMENT,)


def _quorum(
    name: str, *, outcomes: tuple[Outcome, ...] = HOLDS, is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"quorum: {name}", model="quorum.pml", outcomes=outcomes, macros=macros, is_long=is_long)


def _shared(
    name: str, *, outcomes: tuple[Outcome, ...] = HOLDS, is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"shared: {name}", model="shared.pml", outcomes=outcomes, macros=macros, is_long=is_long)


DESIGNS: Final = (
    _quorum("3 operations"),
    _quorum("4 operations", OPERATIONS=4, is_long=True),
    _quorum("4 operations, results are kept for none", OPERATIONS=4, KEEPS=0, is_long=True),
    _quorum("2 operations, switch cleared", OPERATIONS=2, CLEARS=1, is_long=True),
    _quorum("3 operations, switch cleared", CLEARS=1, is_long=True),
    _quorum("closing is no single step", outcomes=APART, BREAK_NOT_ATOMIC=None),
    _quorum("ranks are told before entries stand", is_long=True, outcomes=(*APART, *STUCK), BREAK_TELLS_FIRST=None),
    _quorum("a rank that stops is left out afterwards", is_long=True, outcomes=APART, BREAK_DECIDES_AGAIN=None),
    _quorum("a result is not kept for the last rank", outcomes=STUCK, BREAK_NOT_KEPT=None),
    _quorum(
        "a round from before a clear is closed",
        is_long=True,
        outcomes=APART,
        OPERATIONS=2,
        CLEARS=1,
        BREAK_CLOSE_AFTER_CLEAR=None,
    ),
    _quorum(
        "entries do not stop a round that is closed",
        is_long=True,
        outcomes=APART,
        OPERATIONS=2,
        CLEARS=1,
        BREAK_ENTRIES_IGNORED=None,
    ),
    _shared("1 operation", OPERATIONS=1),
    _shared("2 operations", is_long=True),
    _shared("switch cleared", OPERATIONS=1, CLEARS=1, is_long=True),
    _shared("fallback cleared", OPERATIONS=1, FALLBACK_CLEARS=1),
    _shared("member killed", is_long=True, OPERATIONS=1, KILLS=1),
    _shared("2 operations, member killed", KILLS=1, is_long=True),
    _shared("switch and fallback cleared", OPERATIONS=1, CLEARS=1, FALLBACK_CLEARS=1, is_long=True),
    _shared(
        "contributions carry no epoch", outcomes=(Outcome.FOREIGN_LANES,), OPERATIONS=1, CLEARS=1, BREAK_NO_EPOCH=None
    ),
    _shared(
        "who has finished helps nobody",
        is_long=True,
        outcomes=STUCK,
        OPERATIONS=1,
        CLEARS=1,
        BREAK_FINISHED_ARE_SILENT=None,
    ),
    _shared("the first to finish gives the cell away", is_long=True, outcomes=STUCK, BREAK_FIRST_RELEASES=None),
    _shared("releases carry no epoch", is_long=True, outcomes=STUCK, BREAK_RELEASE_WITHOUT_EPOCH=None),
    _shared("orphans do not expire", is_long=True, outcomes=STUCK, BREAK_ORPHANS_STAY=None),
    _shared(
        "nobody reminds the fallback",
        is_long=True,
        outcomes=STUCK,
        OPERATIONS=1,
        FALLBACK_CLEARS=1,
        BREAK_NO_REMINDER=None,
    ),
    _shared("one stamp `ours` is enough", is_long=True, OPERATIONS=1, CLEARS=1, BREAK_ANY_OURS=None),
    _shared("stamps of two epochs are taken for one", is_long=True, OPERATIONS=1, CLEARS=1, BREAK_EPOCHS_DIFFER=None),
)
