"""Each state of a cell with each event: cases that follow from two tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from switchsum_protocol.frame import Flag, LaneFormat, Operator

from .case import Case
from .play import Play

BLOCK, NEXT = 3, 9
OTHER_TAGS: Final[tuple[dict[str, int], ...]] = (
    {"digest": 0x0BAD},
    {"block": BLOCK + 1},
    {"exponent": 5},
    {"operator": Operator.MAX},
    {"format": LaneFormat.INT16},
)
"""Each of the five parts of a tag, when it is another one."""


def _nothing(_play: Play) -> None:
    """Leave the cell at a round of long ago."""


def _first(play: Play) -> None:
    play.contribute(0, play.lanes(), next_block=NEXT, next_exponent=7)


def _first_without_lanes(play: Play) -> None:
    play.contribute(0, None, next_block=NEXT, next_exponent=7)


def _all_but_last(play: Play) -> None:
    for rank in play.ranks[:-1]:
        play.contribute(rank, play.lanes(), next_block=NEXT + rank)


def _mismatch(play: Play) -> None:
    play.contribute(0, play.lanes(), next_block=NEXT)
    for rank in play.ranks[1:-1]:
        play.contribute(rank, play.lanes(), digest=0x0BAD)


def _complete(play: Play) -> None:
    play.round()


def _complete_without_lanes(play: Play) -> None:
    play.round(without=play.ranks)


def _complete_with_flags(play: Play) -> None:
    most = b"\x7f\xff\xff\xff" * play.facts.lanes
    for rank in play.ranks:
        wrong = {"digest": 0x0BAD} if rank == play.ranks[-1] else {}
        play.contribute(rank, most, flags=Flag.PAYLOAD | Flag.MARK, **wrong)


STATES: Final[dict[str, tuple[Callable[[Play], None], bool | None]]] = {
    "a cell of an older round": (_nothing, None),
    "an open cell, which rank 0 has sent lanes to": (_first, False),
    "an open cell, which rank 0 has contributed to without lanes": (_first_without_lanes, False),
    "an open cell, where the last rank misses": (_all_but_last, False),
    "an open cell, where other tags came": (_mismatch, False),
    "a complete cell": (_complete, True),
    "a complete cell without lanes": (_complete_without_lanes, True),
    "a complete cell with all flags": (_complete_with_flags, True),
}
"""States of a cell: how it is brought there, and whether its round is complete. None: it is not the case's round."""

EVENTS: Final[dict[str, tuple[int, bool, bool]]] = {
    "its own number": (0, True, False),
    "its own number, without lanes": (0, False, False),
    "its own number with another tag": (0, True, True),
    "its own number with another tag, without lanes": (0, False, True),
    "an older number": (-2, True, False),
    "a number that is older by 1,000": (-1000, True, False),
    "a newer number": (2, True, False),
    "a newer number, without lanes and with another tag": (2, False, True),
    "a number that is newer by 1,000": (1000, True, False),
}
"""Contributions that may come: how many rounds later, whether with lanes, and whether with another tag."""


def table() -> Iterator[Case]:
    """Yield a case for each state and each event, from a member that has contributed, and from one that has not."""
    count = 0
    for state, (prepare, is_complete) in STATES.items():
        for event, (step, has_lanes, is_other) in EVENTS.items():
            for has_sent in (True,) if is_complete else (True, False):
                if is_complete is None and (step != 0 or has_sent):
                    continue  # what the cell holds is older than all of these
                rule = _rule(step, is_complete, has_lanes=has_lanes, is_other=is_other, has_sent=has_sent)
                who = "rank 0" if has_sent else "the last rank"
                other = OTHER_TAGS[count % len(OTHER_TAGS)] if is_other else {}

                def act(
                    play: Play,
                    prepare: Callable[[Play], None] = prepare,
                    rank: int = 0 if has_sent else -1,
                    step: int = step,
                    has_lanes: bool = has_lanes,
                    other: dict[str, int] = other,
                ) -> None:
                    _act(play, prepare, play.ranks[rank], step, has_lanes, other)

                yield Case(rule=rule, title=f"{state}: {who} sends {event}", act=act, version=count % 2)
                count += 1


def _rule(step: int, is_complete: bool | None, *, has_lanes: bool, is_other: bool, has_sent: bool) -> str:
    """Return the row that an event is about."""
    if is_complete is None or step > 0:
        return "row 5"
    if step < 0:
        return "row 3"
    if has_sent:
        return "row 11" if is_complete else "row 10"
    if is_other:
        return "row 9"
    return "row 6" if has_lanes else "row 7"


def _act(
    play: Play, prepare: Callable[[Play], None], rank: int, step: int, has_lanes: bool, other: dict[str, int]
) -> None:
    """Bring both cells of a slot into their states, let the event come, and look at everything that is left."""
    play.round(-1)
    prepare(play)
    play.event = len(play.steps)
    fields: dict[str, int] = {"next_block": NEXT - 1, "next_exponent": 3} | other
    play.contribute(rank, play.lanes() if has_lanes else None, step, **fields)
    reveal(play, max(step, 0))


def reveal(play: Play, step: int = 0) -> None:
    """Have everybody contribute, or repeat, and then ask for the results of this cell and of the other one."""
    for rank in play.ranks:
        play.contribute(rank, play.lanes(), step, next_block=NEXT + 1)
    play.contribute(0, play.lanes(), step)
    play.contribute(play.ranks[-1], None, -1)
