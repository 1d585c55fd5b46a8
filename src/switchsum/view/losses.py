"""Links that lose frames, by what was lost within the last seconds, and what such links have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from switchsum.view.facts import Facts
from switchsum.view.words import percent
from switchsum_protocol import rpc

LOSSY: Final = 0.001
"""Frames that a link may lose before it is named."""
FEW_FRAMES: Final = 32
"""Number of lost frames that say nothing about a link. A report is not of one moment, either."""
LEAST_FRAMES: Final = 4
"""Number of lost frames that say nothing about a link with little traffic."""


class CauseKind(Enum):
    """What kind of thing loses frames."""

    SIMULATOR = "the drop simulator"
    PLACE = "a host or a switch, with all ranks there"
    PORT = "a port of the switch"
    RANK = "the link of one rank"


class Cause(NamedTuple):
    """What links have in common that lose frames."""

    kind: CauseKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What the link of a rank has lost."""

    rank: int
    sent: int
    there: int
    """About how many contributions did not come to the switch."""
    back: int
    """About how many answers did not come back."""
    is_known: bool
    """True: the direction of the loss is known. Else all of it is in `back`."""
    seconds: float
    """Within so many; 0: since it was connected, a moment ago."""

    @property
    def lost(self) -> int:
        """Return how many frames, both ways."""
        return self.there + self.back

    @property
    def is_worth_saying(self) -> bool:
        """Whether it is more than what may be seen where nothing is lost."""
        few = min(FEW_FRAMES, max(LEAST_FRAMES, self.sent // 50))
        return self.lost > max(few if self.seconds else FEW_FRAMES, LOSSY * self.sent)

    @property
    def share(self) -> float:
        """Return which part of the contributions that is."""
        return self.lost / self.sent if self.sent else 0.0


def lossy_groups(facts: Facts, *, without: Iterable[int] = ()) -> list[tuple[Cause, list[Loss]]]:
    """Return links that lose frames, together where they have one cause, `without` those of some ranks."""
    found = (loss_of(facts, worker) for worker in facts.workers if worker.rank not in without)
    losses = [one for one in found if one is not None and one.is_worth_saying]
    groups: dict[Cause, list[Loss]] = {}
    for one in losses:
        groups.setdefault(_cause(facts, one, losses), []).append(one)
    return list(groups.items())


def _cause(facts: Facts, loss: Loss, losses: list[Loss]) -> Cause:
    """Return what lossy links have in common: the drop simulator, their host, or a switch with all its ranks."""
    if text := simulated(facts, loss.rank):
        return Cause(CauseKind.SIMULATOR, text)
    hosts = {one.rank: one.host for one in facts.workers}
    switches = {one.rank: one.switch for one in facts.job.members}
    lossy = {one.rank for one in losses}
    for what, at in (("host", hosts), ("switch", switches)):
        here = [rank for rank, place in at.items() if place == at.get(loss.rank)]
        if at.get(loss.rank) and len(here) > 1 and lossy.issuperset(here):
            return Cause(CauseKind.PLACE, f"{what} {at[loss.rank]}")
    return Cause(CauseKind.RANK, f"rank {loss.rank} of {facts.job.job}")


def lost_of(facts: Facts, worker: rpc.WorkerInfo) -> int:
    """Return about how many frames a rank's link has lost since it was connected; 0: nothing is known of it."""
    counters = facts.counters.get(worker.rank)
    if counters is None or worker.age_s < 0:
        return 0
    return sum(lost_frames(worker, counters, in_tree=bool(facts.job.tree)))


def loss_of(facts: Facts, worker: rpc.WorkerInfo) -> Loss | None:
    """Return what a rank's link has lost within the last seconds; None: nothing is known of it."""
    counters, recent, in_tree = facts.counters.get(worker.rank), worker.recent, bool(facts.job.tree)
    if worker.age_s < 0 or counters is None or not worker.frames_sent:
        return None
    there, back = lost_frames(worker, counters, in_tree=in_tree)
    is_known = arrived(worker, counters) - worker.frames_sent <= there + back
    if not recent.seconds:
        return Loss(rank=worker.rank, sent=worker.frames_sent, there=there, back=back, is_known=is_known, seconds=0.0)
    # The switch's counters are of all the time; what they say of it holds for the last seconds by and large.
    stale = _stale(counters) * recent.repeats / max(1, worker.repeats)
    unanswered = recent.waiting_slots + stale + (recent.recalled if in_tree else 0)
    lost = max(0, round(recent.frames_sent - recent.frames_received - unanswered))
    before = (there + back) / worker.frames_sent
    is_known = is_known and there + back > 0 and before * recent.frames_sent >= lost / 2
    part = round(lost * there / (there + back)) if is_known else 0
    return Loss(
        rank=worker.rank,
        sent=recent.frames_sent,
        there=part,
        back=lost - part,
        is_known=is_known,
        seconds=recent.seconds,
    )


def _stale(counters: rpc.MemberCounters) -> int:
    return sum(count.packets for count in counters.reasons if count.reason == "stale")


def lost_frames(worker: rpc.WorkerInfo, counters: rpc.MemberCounters, *, in_tree: bool = False) -> tuple[int, int]:
    """Return about how many contributions and answers a link has lost since it was connected.

    Each contribution that the switch takes is answered once, repeats too, but for those that are too old, and those of
    a round whose result the worker holds, which a switch below another one sends up (row 14 of p4src/slot.p4); so the
    worker's own counters say how many got lost.  The switch's are of a later moment: how many contributions come to it
    for each result says which part of that was lost on the way there.
    """
    unanswered = worker.waiting_slots + _stale(counters) + (worker.recalled if in_tree else 0)
    lost = max(0, worker.frames_sent - worker.frames_received - unanswered)
    there = min(lost, round(max(0.0, worker.frames_sent - arrived(worker, counters))))
    return there, lost - there


def arrived(worker: rpc.WorkerInfo, counters: rpc.MemberCounters) -> float:
    """Return about how many contributions of the results that a rank reports came to the switch; inf: not known."""
    if not worker.rounds or not counters.results:
        return math.inf
    return counters.contributions / counters.results * worker.rounds


def split_repeated(repeated: int, workers: Iterable[rpc.WorkerInfo]) -> tuple[int, int]:
    """Divide answers to repeats of complete rounds: asked again although nothing was lost, and results that were lost.

    A worker that gets a result a second time had lost nothing; it counts those.  The reports are up to a second older
    than the switch's counter, so that at most that much of a healthy job is taken for lost.
    """
    again = min(repeated, sum(one.duplicates for one in workers if one.age_s >= 0))
    return again, repeated - again


def port_of(facts: Facts, rank: int) -> rpc.PortInfo:
    """Return the port behind which a rank is; its number is -1 where that is not known."""
    behind = f"{facts.job.job}/{rank}"
    return next((port for port in facts.ports.ports if behind in port.members), rpc.PortInfo(port=-1))


def simulated(facts: Facts, rank: int) -> str:
    """Say what the drop simulator loses on a rank's port; empty: nothing."""
    port = port_of(facts, rank)
    if not (port.ingress_loss or port.egress_loss):
        return ""
    there, back = port.ingress_loss, port.egress_loss
    lost = 1 - (1 - there) * (1 - back)
    return (
        f"The drop simulator loses {percent(there)} on the way to the switch and {percent(back)} on the way back, "
        f"{percent(lost)} in all."
    )
