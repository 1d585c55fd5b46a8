"""Links that lose frames, by what was lost within the last seconds; one sentence for each cause."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from switchsum.protocol import rpc
from switchsum.view.facts import Facts
from switchsum.view.findings import Finding
from switchsum.view.late import stands
from switchsum.view.words import called, capital, percent, places, ranks_text, verb

LOSSY: Final = 0.001
"""Frames that a link may lose before it is named."""
FEW_FRAMES: Final = 32
"""Number of lost frames that say nothing about a link. A report is not of one moment, either."""
NO_WAIT: Final = "no rank waits for long"
LEAST_FRAMES: Final = 4
"""Number of lost frames that say nothing about a link with little traffic."""


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


def explain_links(facts: Facts) -> list[Finding]:
    """Say which links lose frames, each way, and how many."""
    losses = [one for worker in facts.workers if (one := loss_of(facts, worker)) is not None and one.is_worth_saying]
    groups: dict[str, list[Loss]] = {}
    for one in losses:
        groups.setdefault(_cause(facts, one, losses), []).append(one)
    return [_finding(facts, of_group, cause) for cause, of_group in groups.items()]


def _cause(facts: Facts, loss: Loss, losses: list[Loss]) -> str:
    """Return what lossy links have in common: the drop simulator, their host, or a switch with all its ranks."""
    if text := simulated(facts, loss.rank):
        return text
    hosts = {one.rank: one.host for one in facts.workers}
    switches = {one.rank: one.switch for one in facts.job.members}
    lossy = {one.rank for one in losses}
    for what, at in (("host", hosts), ("switch", switches)):
        here = [rank for rank, place in at.items() if place == at.get(loss.rank)]
        if at.get(loss.rank) and len(here) > 1 and lossy.issuperset(here):
            return f"{what} {at[loss.rank]}"
    return f"rank {loss.rank} of {facts.job.job}"


def _finding(facts: Facts, losses: list[Loss], cause: str) -> Finding:
    ranks = [one.rank for one in losses]
    there, back, sent = (sum(getattr(one, name) for one in losses) for name in ("there", "back", "sent"))
    share, switch_off = (there + back) / sent, simulated(facts, ranks[0])
    lose = f"{verb(ranks, 'loses', 'lose')} {percent(share)}"
    if len(losses) == 1:
        who = f"the link of {called(facts, ranks)}"
    else:
        where = f", all at {cause}," if cause.startswith(("host ", "switch ")) else ""
        who = f"the links of {ranks_text(ranks)}{where}"
    if switch_off:
        which = f" of port {_port_of(facts, ranks[0]).port}" if len(ranks) == 1 else ""
        text = f"The drop simulator{which} is on: {who} {lose}"
    else:
        text = f"{capital(who)} {lose}"
    text += "." if stands(facts.workers) else f"; {NO_WAIT}."
    details = f"{there + back} of {sent} contributions or their answers were lost"
    seconds = max(one.seconds for one in losses)
    details += f" in the last {seconds:.0f} s" if seconds else ""
    if all(one.is_known for one in losses):
        details += f": about {there} on the way to the switch, {back} on the way back"
    details += f".{' ' if switch_off else ''}{switch_off}{places(facts, ranks) if len(ranks) == 1 else ''}"
    first = next(one for one in facts.workers if one.rank == ranks[0])
    advice, command = _mend(facts, first)
    common = "" if cause.startswith("rank ") else cause
    return Finding(
        kind="link",
        text=text,
        details=details,
        advice=advice,
        command=command,
        ranks=ranks,
        cause=common,
        share=share,
    )


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


def _port_of(facts: Facts, rank: int) -> rpc.PortInfo:
    behind = f"{facts.job.job}/{rank}"
    return next((port for port in facts.ports.ports if behind in port.members), rpc.PortInfo(port=-1))


def simulated(facts: Facts, rank: int) -> str:
    """Say what the drop simulator loses on a rank's port; empty: nothing."""
    port = _port_of(facts, rank)
    if not (port.ingress_loss or port.egress_loss):
        return ""
    there, back = port.ingress_loss, port.egress_loss
    lost = 1 - (1 - there) * (1 - back)
    return (
        f"The drop simulator loses {percent(there)} on the way to the switch and {percent(back)} on the way back, "
        f"{percent(lost)} in all."
    )


def _mend(facts: Facts, worker: rpc.WorkerInfo) -> tuple[str, str]:
    """Return advice, and its command."""
    if simulated(facts, worker.rank):
        return "Switch it off:", "switchsum drop-probability 0"
    if worker.link.startswith("packet"):
        return f"See what the card has dropped, on {worker.host}, and at the switch's port:", "ip -s link show"
    return f"See what its socket has dropped (d in skmem), on {worker.host or 'its machine'}:", "ss -uam"
