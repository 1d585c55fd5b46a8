"""Ranks that have left in order, and for which this one waits in vain: it says so, long before its time-out.

A rank leaves when all collectives have ended that it had begun, so nobody waits for it in those.  Where ranks begin
different numbers of collectives (one has fewer batches, or returns early), the others wait in one that it never begins.
The controller says who has left, the switch for whom a slot waits: both together say that the wait is in vain.

An answer of the switch may be older than the news, and the rank's contribution may have come in between.  So answers
count from the news on, and not before a second has passed, in which older ones have arrived.

Nothing is concluded in two cases, and the time-out ends the wait: where the switch was restarted, for there another
member that has the result may bring back what a rank contributed that has left since; and of ranks at other switches
of a tree, for which the bitmap of this one has no places.
"""

from __future__ import annotations

from typing import Final

from switchsum.protocol.errors import WorkerLost

from ..engine.worker import Engine

OLDER_S: Final = 1.0
"""So long after the news older answers of the switch may still arrive."""
LOOK_S: Final = 0.25
"""Pause between two looks at what the switch has answered."""


class Departures:
    """What one rank concludes from others' departures."""

    def __init__(self, engine: Engine, loads: int) -> None:
        """Watch what the switch answers, which has been given its program `loads` times."""
        self._engine = engine
        self._loads = loads
        self._left: frozenset[int] = frozenset()
        self._look_at_s = 0.0

    def check(self, left: frozenset[int], loads: int, now_s: float) -> None:
        """Raise WorkerLost if this rank waits for one of the ranks that have left."""
        if loads != self._loads:
            return
        if left != self._left:
            self._left = left
            self._engine.rank_left()
            self._look_at_s = now_s + OLDER_S
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        if awaited := {rank for _, _, missing in self._engine.held_slots(earlier=False) for rank in missing} & left:
            raise _in_vain(sorted(awaited))


def _in_vain(ranks: list[int]) -> WorkerLost:
    who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
    return WorkerLost(
        f"{who} left the job in order and will not begin the collective in which this rank waits: have all ranks call "
        "the same collectives, as often as each other",
        ranks[0],
    )
