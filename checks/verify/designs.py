"""What is checked of designs (shared.pml, passing.pml), and what each search must come to."""

from __future__ import annotations

from typing import Final

from .configurations import STUCK, Configuration, Outcome

HOLDS: Final = (Outcome.HOLDS,)


def _shared(
    name: str, *, outcomes: tuple[Outcome, ...] = HOLDS, is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(name=f"shared: {name}", model="shared.pml", outcomes=outcomes, macros=macros, is_long=is_long)


def _passing(
    name: str, *, outcomes: tuple[Outcome, ...] = HOLDS, is_long: bool = False, **macros: int | None
) -> Configuration:
    return Configuration(
        name=f"passing: {name}", model="passing.pml", outcomes=outcomes, macros=macros, is_long=is_long
    )


DESIGNS: Final = (
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
    _passing("1 operation", LEAVES=1),
    _passing("1 operation of 4 rounds", LEAVES=1, PER=4),
    _passing("1 operation of 4 rounds, slot expires early", is_long=True, LEAVES=1, PER=4, EXPIRIES=1),
    _passing("switch cleared", is_long=True, LEAVES=1, CLEARS=1),
    _passing("fallback cleared", is_long=True, FALLBACK_CLEARS=1),
    _passing("slot expires early", is_long=True, LEAVES=1, EXPIRIES=1),
    _passing("a frame comes again late", is_long=True, LEAVES=1, STRAYS=1),
    _passing("member killed", is_long=True, LEAVES=1, KILLS=1),
    _passing("the slot gives the last result", outcomes=STUCK, LEAVES=1, BREAK_LAST_FROM_SLOT=None),
    _passing("a slot is anybody's", outcomes=(Outcome.FOREIGN_LANES,), BREAK_NO_OWNER=None),
    _passing("a slot is not emptied when it is taken", outcomes=(Outcome.FOREIGN_LANES,), BREAK_NOT_EMPTIED=None),
    _passing("HELD goes to its asker alone", outcomes=STUCK, EXPIRIES=1, BREAK_HELD_ALONE=None),
)
