"""What is measured of a job: symptoms, each with the share of time that it takes up and the words for its sentence.

Each function has the name of its rows in `rules` (`SYMPTOMS`) and returns what it sees, one entry for each cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Final

from switchsum.view.facts import Facts
from switchsum.view.late import (
    COMPUTES,
    SHARES_S,
    WAITING_S,
    find_late,
    find_wandering,
    more_said,
    said,
    shares_of_job,
    stands,
    steps_of,
)
from switchsum.view.losses import Cause, CauseKind, Loss, loss_of, lossy_groups, port_of, simulated
from switchsum.view.rounds import newest_rounds
from switchsum.view.rules import SIMULATOR_ON, WAITS
from switchsum.view.words import called, capital, duration, listed, names, percent, places, ranks_text, runs, verb
from switchsum_protocol import rpc
from switchsum_protocol.frame import Reason
from switchsum_protocol.reports import CallSpan
from switchsum_protocol.states import LIVE, STALLED, MemberState

OLD_S: Final = 5.0
"""Reports come once a second; older ones are of a worker that is stopped, or cannot reach the controller."""
PROFILE_S: Final = 30
"""A profile of so many seconds has many steps in it."""
MOST_NAMED: Final = 3
"""Number of ranks of which it is told what each has begun."""
BUSY: Final = 0.5
"""A process that takes this part of a core's time between its calls computes there; one that takes less waits."""
GRACE_S: Final = 60.0
"""Ranks that are still to come are not missed before so many seconds after the first one."""
TAKEN: Final = Reason.TAKEN.name.lower()
"""The counter of contributions that a shared slot's owner did not let in."""
FEW_ROUNDS: Final = 40
"""Rounds under way that say nothing about whose contributions come last."""
FEW_LOOKS: Final = 4
"""Nor do rounds of so few readings: each sees one moment."""
LAST: Final = 0.8
"""The rank whose contributions come last is missing in this part of the rounds that are under way."""
NOT_LAST: Final = 0.4
"""And every other rank in less than this part."""
HELD: Final = 0.005
"""In this part of their rounds ranks ask again for a result, on average, and hear that somebody is missing ..."""
NOT_HELD: Final = 0.15
"""... and the rank that is missing hears so in less than this part of that."""
FEW_MARKS: Final = 32
"""Marked results that say nothing about a queue."""
MARKED: Final = 0.02
"""Share of marked results from which a queue is said to be long."""
ALIKE: Final = 0.5
"""Where each rank has at least this part of the marks of the one that has most, they come from a way that all share."""
MUCH: Final = 0.1
"""A queue that is full drops at least this part of what comes; a smaller loss may have any cause."""
BAD: Final = 0.01
"""A link that loses this part makes ranks wait, now this one, now that one."""
READ_S: Final = 0.3
"""Seconds between the reading of reports and of counters, at most."""
BACK: Final = 0.8
"""Of what a port's queue drops, all is on the way back; of what is lost at a link by chance, about half."""
TRAVELS: Final = 0.5
"""Share of the time from which it is told that sums travel for so long."""
NO_WAIT: Final = "no rank waits for long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """One thing that was measured."""

    words: Mapping[str, object] = field(default_factory=dict)
    """What fills the templates of its row."""
    share: float = 1.0
    """Share of the last ten seconds, about."""
    ranks: list[int] = field(default_factory=list)
    since_s: float = 0.0
    slots: list[int] = field(default_factory=list)
    operation: str = ""
    cause: str = ""
    lost: float = 0.0
    """Share of frames that are lost."""


def of_ranks(facts: Facts, ranks: list[int]) -> dict[str, object]:
    """Return the words that depend on how many ranks there are, and those of where the first one is."""
    worker = next((one for one in facts.workers if one.rank == ranks[0]), None)
    hosts = {one.host for one in facts.workers if one.rank in ranks}
    return {
        "who": ranks_text(ranks),
        "Who": capital(called(facts, ranks)),
        "are": verb(ranks, "is", "are"),
        "have": verb(ranks, "has", "have"),
        "it": verb(ranks, "it", "them"),
        "rank": ranks[0],
        "host": (hosts.pop() if len(hosts) == 1 else "") or verb(ranks, "its machine", "their machines"),
        "its": verb(ranks, "its", "their"),
        "s": verb(ranks, "", "s"),
        "pid": (worker.pid if worker else 0) or "PID",
    }


def effect(facts: Facts) -> str:
    """Say what a fault that slows a job down does to its ranks."""
    if stands(facts.workers):
        return ""
    spent = shares_of_job(facts.calls, facts.workers)
    if spent["waiting"] >= WAITS:
        return f"; ranks wait {percent(spent['waiting'])} of the time"
    if spent["moving"] >= TRAVELS:
        return f"; sums travel {percent(spent['moving'])} of the time"
    return f"; {NO_WAIT}"


def _moving(facts: Facts) -> float:
    return shares_of_job(facts.calls, facts.workers)["moving"]


# Switches and members.


def has_lost_fallback(facts: Facts) -> bool:
    """Whether the aggregator of a job's shared slots is away."""
    job = facts.job
    return bool(job.fallback) and job.fallback in facts.away and job.state in (STALLED, *LIVE)


def _aggregator_away(facts: Facts) -> list[Symptom]:
    if not has_lost_fallback(facts):
        return []
    words = {"fallback": repr(facts.job.fallback), "members": _members_wait(facts)}
    return [Symptom(words=words, cause=f"aggregator {facts.job.fallback}")]


def _switch_away(facts: Facts) -> list[Symptom]:
    job = facts.job
    is_needed = job.state in LIVE and (bool(facts.trouble) or "" in facts.away)
    if job.state != STALLED and not is_needed:
        return []
    which = listed([_switch(facts, name) for name in facts.away or [""]])
    several = len(facts.away) > 1
    trouble = f"{capital(facts.trouble.rstrip('.'))}." if facts.trouble else ""
    words = {"Switches": capital(which), "do": "do" if several else "does", "it": "them" if several else "it"}
    return [Symptom(words=words | {"members": _members_wait(facts), "trouble": trouble}, cause=which)]


def _members_wait(facts: Facts) -> str:
    count = len(facts.job.members)
    return "1 rank waits" if count == 1 else f"{count} ranks wait"


def _switch(facts: Facts, name: str) -> str:
    at = facts.addresses.get(name, "")
    return f"{f'switch {name}' if name else 'the switch'}{f' at {at}' if at else ''}"


def _differ(facts: Facts) -> list[Symptom]:
    """Ranks have called different collectives, and nobody has begun anew."""
    job = facts.job
    if job.broken != "mismatch" or (job.has_ended and not _is_empty(facts)):
        return []
    ranks = job.broken_ranks
    return [Symptom(words={"issued": job.broken_text, "places": places(facts, ranks).strip()}, ranks=ranks)]


def _is_empty(facts: Facts) -> bool:
    return all(one.state == MemberState.EXPECTED for one in facts.job.members)


def _ended_with_lost(facts: Facts) -> list[Symptom]:
    job = facts.job
    if not job.has_ended or job.broken != "lost" or not _is_empty(facts):
        return []
    ranks = job.broken_ranks
    return [Symptom(words=of_ranks(facts, ranks) | {"were": verb(ranks, "was", "were")}, ranks=ranks)]


def _lost(facts: Facts) -> list[Symptom]:
    lost = [one.rank for one in facts.job.members if one.state == MemberState.LOST]
    if not lost or facts.job.broken == "mismatch":  # which has ended them
        return []
    return [Symptom(words=of_ranks(facts, lost) | {"places": places(facts, lost).strip()}, ranks=lost)]


def _absent(facts: Facts, *states: MemberState) -> list[int]:
    return [one.rank for one in facts.job.members if one.state in states]


def _starts(facts: Facts) -> bool:
    return 0 <= facts.job.starting_s < GRACE_S


def _nobody(facts: Facts, *, again: bool) -> list[Symptom]:
    """Nobody is there: before a job begins, or `again` after it has ended in order."""
    expected = _absent(facts, MemberState.EXPECTED)
    if not expected or not _is_empty(facts) or facts.job.has_ended != again or facts.job.broken:
        return []
    return [Symptom(words=of_ranks(facts, expected) | {"job": quote(facts.job.job)}, ranks=expected)]


def _starting(facts: Facts) -> list[Symptom]:
    absent = _absent(facts, MemberState.EXPECTED, MemberState.JOINED)
    if not absent or not _starts(facts):
        return []
    absent = _absent(facts, MemberState.EXPECTED) or absent  # whose frames have not come has joined
    here = len(facts.job.members) - len(_absent(facts, MemberState.EXPECTED))
    words = of_ranks(facts, absent) | {"here": here, "members": len(facts.job.members)}
    return [Symptom(words=words | {"since": f"{facts.job.starting_s:.0f} s"}, ranks=absent)]


def _not_joined(facts: Facts) -> list[Symptom]:
    expected = _absent(facts, MemberState.EXPECTED)
    here = [one.rank for one in facts.job.members if one.rank not in expected]
    if not expected or not here or _starts(facts):
        return []
    words = of_ranks(facts, expected) | {"Who": capital(ranks_text(expected)), "here": len(here)}
    waits = f"{ranks_text(here)} {verb(here, 'waits', 'wait')}"
    return [Symptom(words=words | {"waits": waits, "job": quote(facts.job.job)}, ranks=expected)]


def _not_joined_here(facts: Facts) -> list[Symptom]:
    return [] if facts.job.ephemeral else _not_joined(facts)


def _not_joined_launched(facts: Facts) -> list[Symptom]:
    return _not_joined(facts) if facts.job.ephemeral else []


def _unseen(facts: Facts) -> list[Symptom]:
    unseen = _absent(facts, MemberState.JOINED)
    if not unseen or _starts(facts):
        return []
    return [Symptom(words=of_ranks(facts, unseen) | {"places": places(facts, unseen).strip()}, ranks=unseen)]


def _all_come(facts: Facts) -> list[Symptom]:
    if not _absent(facts, MemberState.SEEN) or _absent(facts, MemberState.EXPECTED, MemberState.JOINED):
        return []
    which = f"switch {listed(facts.away)}" if any(facts.away) else "a switch to be set up for them"
    return [Symptom(words={"switches": which})]


# A job that stands still.


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Who holds up a job that stands still."""

    since_s: float
    missing: list[int]
    others: list[int]
    slots: list[int]
    operation: str


def unfinished(facts: Facts) -> tuple[list[int], list[int]]:
    """Return the slots whose newest round is not complete, and the ranks that are missing in some of them."""
    lacking = [one for one in newest_rounds(facts.job, facts.slots or []) if one.contributed and not one.is_complete]
    missing = {rank for one in lacking for rank in one.missing}
    return [one.slot for one in lacking], sorted(missing)


def standing(facts: Facts) -> Standing | None:
    """Return who holds up a job; None: it does not stand still."""
    waiting = [one for one in facts.workers if one.age_s >= 0 and one.waiting_s > 0]
    since_s = max((one.waiting_s for one in waiting), default=0.0)
    if since_s < WAITING_S:
        return None
    open_slots, missing = unfinished(facts)
    if not missing:  # nothing of the round is in the switch
        behind = min(one.begun for one in facts.workers)
        missing = [one.rank for one in facts.workers if one.begun == behind and one not in waiting]
    others = [one.rank for one in waiting if one.rank not in missing]
    operation = next((one.operation for one in waiting if one.operation and one.rank not in missing), "")
    return Standing(since_s=since_s, missing=missing, others=others, slots=open_slots, operation=operation)


def _no_sums(facts: Facts) -> list[Symptom]:
    found = standing(facts)
    if found is None or found.missing:
        return []
    return [Symptom(words={"since": f"{found.since_s:.0f} s"}, since_s=found.since_s)]


def _held_up(facts: Facts, is_so: Callable[[list[rpc.WorkerInfo]], bool], *earlier: str) -> list[Symptom]:
    """Return what holds a job up if that is so of all ranks that are missing, and nothing of the rows before is."""
    found = standing(facts)
    if found is None or not found.missing:
        return []
    rows = [one for one in facts.workers if one.rank in found.missing]
    if not is_so(rows) or any(_HOLDS_UP[name](rows) for name in earlier):
        return []
    others, missing, begun = found.others, found.missing, max(one.begun for one in facts.workers)
    having = others or missing
    waits = f"; {ranks_text(others)} {verb(others, 'waits', 'wait')} for {verb(missing, 'it', 'them')}"
    behind = [one for one in rows[:MOST_NAMED] if one.begun < begun]
    repeats = sum(one.recent.repeats for one in rows)
    words = of_ranks(facts, missing) | {
        "it_is": verb(missing, "the rank is", "the ranks are"),
        "and_asks": f" and {verb(missing, 'has', 'have')} repeated {repeats:,} contributions" if repeats else "",
        "since": f"{found.since_s:.0f} s",
        "silent": f"{min(one.age_s for one in rows):.0f} s",
        "idle": f"{min(one.idle_s for one in rows):.0f} s",
        "others_wait": waits if others else "",
        "Others": capital(ranks_text(having)),
        "Have": verb(having, "has", "have"),
        "begun": begun,
        "operation": f", {found.operation}" if found.operation else "",
        "slots": f" (slot {runs(found.slots)})" if found.slots else "",
        "behind": "".join(f" Rank {one.rank} has begun {one.begun} collectives." for one in behind),
        "places": places(facts, missing),
    }
    return [Symptom(words=words, ranks=missing, since_s=found.since_s, slots=found.slots, operation=found.operation)]


_HOLDS_UP: Final[dict[str, Callable[[list[rpc.WorkerInfo]], bool]]] = {
    "silent": lambda rows: all(one.age_s > OLD_S for one in rows),
    "dead": lambda rows: all(0 <= one.age_s <= OLD_S and one.waiting_s >= WAITING_S for one in rows),
    "idle": lambda rows: all(one.idle_s > 0 for one in rows),
}
"""What a rank does for which others wait; where nothing of this is so, it is just missing."""


def _dead_link(facts: Facts) -> list[Symptom]:
    return _held_up(facts, _HOLDS_UP["dead"])


def _reports_nothing(facts: Facts) -> list[Symptom]:
    return _held_up(facts, _HOLDS_UP["silent"])


def _outside(facts: Facts) -> list[Symptom]:
    return _held_up(facts, _HOLDS_UP["idle"], "silent", "dead")


def _missing(facts: Facts) -> list[Symptom]:
    return _held_up(facts, lambda _: True, "silent", "dead", "idle")


def _silent(facts: Facts) -> list[Symptom]:
    silent = [one.rank for one in facts.workers if one.age_s > OLD_S]
    if not silent:
        return []
    words = of_ranks(facts, silent) | {"least": f"{OLD_S:.0f} s", "places": places(facts, silent).strip()}
    return [Symptom(words=words, ranks=silent)]


# A job that is slow.


def marks(facts: Facts) -> dict[int, float]:
    """Return which part of the latest results of each rank was marked, of ranks that have had some."""
    reported = [one for one in facts.workers if one.age_s >= 0 and one.recent.rounds > 0]
    return {one.rank: one.recent.marked / one.recent.rounds for one in reported}


def congested(facts: Facts) -> tuple[dict[int, float], bool]:
    """Return the ranks behind a long queue with their shares of marked results, and whether all ranks share it."""
    found = marks(facts)
    counts = {one.rank: one.recent.marked for one in facts.workers}
    most = max(found.values(), default=0.0)
    ranks = {
        rank: share for rank, share in found.items() if share >= max(MARKED, ALIKE * most) and counts[rank] >= FEW_MARKS
    }
    return ranks, len(ranks) > 1 and len(ranks) == len(facts.workers)


def _port_congested(facts: Facts) -> list[Symptom]:
    ranks, is_shared = congested(facts)
    return [] if is_shared else [_queue(facts, [rank], share) for rank, share in ranks.items()]


def _way_congested(facts: Facts) -> list[Symptom]:
    ranks, is_shared = congested(facts)
    return [_queue(facts, [*ranks], sum(ranks.values()) / len(ranks))] if is_shared else []


def _queue(facts: Facts, ranks: list[int], marked: float) -> Symptom:
    losses = [one for worker in facts.workers if worker.rank in ranks and (one := loss_of(facts, worker)) is not None]
    lost, sent = sum(one.lost for one in losses), sum(one.sent for one in losses)
    is_lossy = any(one.is_worth_saying for one in losses)
    rows = [one for one in facts.workers if one.rank in ranks]
    counted = f"{sum(one.recent.marked for one in rows):,} of {sum(one.recent.rounds for one in rows):,} results"
    counted += f" were marked (ECN) in the last {max(one.recent.seconds for one in rows):.0f} s"
    counted += f", and {lost:,} of {sent:,} frames were lost" if is_lossy else ""
    member = next((one for one in facts.job.members if one.rank == ranks[0]), None)
    port = member.ingress_port if member is not None and member.ingress_port >= 0 else port_of(facts, ranks[0]).port
    at = f" of switch {member.switch}" if member is not None and member.switch else " of the switch"
    words = of_ranks(facts, ranks) | {
        "who": called(facts, ranks),
        "port": f"port {port}{at}" if port >= 0 else "the switch",
        "marked": percent(marked),
        "members": len(facts.job.members),
        "drops": f" and drops {percent(lost / sent)} of the frames" if is_lossy and sent else "",
        "effect": effect(facts),
        "counted": f"{counted}.",
        "places": places(facts, ranks) if len(ranks) == 1 else "",
    }
    share = max(marked * max(_moving(facts), MARKED), lost / sent if is_lossy and sent else 0.0)
    return Symptom(words=words, ranks=ranks, share=share)


def _lossy(facts: Facts, kind: str) -> list[Symptom]:
    if has_lost_fallback(facts) or _switch_away(facts):
        return []  # frames that wait there look like lost ones
    found = []
    for cause, losses in lossy_groups(facts, without=[*congested(facts)[0], *_dropped_at_ports(facts)]):
        first = next(one for one in facts.workers if one.rank == losses[0].rank)
        is_of = "simulated" if simulated(facts, first.rank) else first.link.partition(":")[0]
        if kind == (is_of if is_of in ("simulated", "packet") else "socket"):
            found.append(_loss(facts, cause, losses))
    return found


def _dropped_at_ports(facts: Facts) -> dict[int, int]:
    """Return ranks whose frames a full queue of their common port drops, with that port.

    Of several ranks behind one port all lose frames, and on the way back alone: what they send arrives.
    """
    if simulated(facts, facts.workers[0].rank if facts.workers else 0):
        return {}
    ports: dict[int, list[int]] = {}
    for member in facts.job.members:
        ports.setdefault(member.ingress_port, []).append(member.rank)
    back_alone = {worker.rank for worker in facts.workers if _loses_back_alone(facts, worker)}
    found: dict[int, int] = {}
    for port, ranks in ports.items():
        if port >= 0 and len(ranks) > 1 and back_alone.issuperset(ranks):
            found |= dict.fromkeys(ranks, port)
    return found


def _loses_back_alone(facts: Facts, worker: rpc.WorkerInfo) -> bool:
    """Whether a link loses much, and what the rank sends comes to the switch all the same."""
    loss, counters, recent = loss_of(facts, worker), facts.counters.get(worker.rank), worker.recent
    if loss is None or counters is None or not loss.is_worth_saying or loss.share < MUCH:
        return False
    if loss.is_known:
        return loss.back >= BACK * loss.lost
    # The switch has counted since the report: what may have come since then is taken off.
    since = (worker.age_s + READ_S) * recent.frames_sent / recent.seconds if recent.seconds else 0.0
    return counters.contributions - since >= worker.frames_sent * (1.0 - (1.0 - BACK) * loss.share)


def _port_drops(facts: Facts) -> list[Symptom]:
    at, found = _dropped_at_ports(facts), []
    for port in sorted({*at.values()}):
        losses = [one for worker in facts.workers if at.get(worker.rank) == port and (one := loss_of(facts, worker))]
        seen = _loss(facts, Cause(CauseKind.PORT, f"port {port}"), losses)
        words = {**seen.words, "port": f"port {port} of the switch", "who": ranks_text(seen.ranks)}
        found.append(replace(seen, words=words, cause=""))
    return found


def _loss(facts: Facts, cause: Cause, losses: list[Loss]) -> Symptom:
    ranks = [one.rank for one in losses]
    there, back, sent = (sum(getattr(one, name) for one in losses) for name in ("there", "back", "sent"))
    share, dropped = (there + back) / sent, simulated(facts, ranks[0])
    where = f", all at {cause.text}," if len(ranks) > 1 and cause.kind is CauseKind.PLACE else ""
    who = f"the link of {called(facts, ranks)}" if len(ranks) == 1 else f"the links of {ranks_text(ranks)}{where}"
    seconds = max(one.seconds for one in losses)
    counted = f"{there + back} of {sent} contributions or their answers were lost"
    counted += f" in the last {seconds:.0f} s" if seconds else ""
    if all(one.is_known for one in losses):
        counted += f": about {there} on the way to the switch, {back} on the way back"
    again = sum(one.recent.repeats for one in facts.workers if one.rank in ranks)
    if seconds and again > there + back:
        counted += f". {again - there - back} more were asked for again, and nothing was lost"
    words = of_ranks(facts, ranks) | {
        "who": who,
        "Who": capital(who),
        "lose": verb(ranks, "loses", "lose"),
        "lost": percent(share),
        "effect": effect(facts),
        "counted": counted,
        "simulated": dropped,
        "port": f" of port {port_of(facts, ranks[0]).port}" if dropped and len(ranks) == 1 else "",
        "places": places(facts, ranks) if len(ranks) == 1 else "",
    }
    shared = "" if cause.kind is CauseKind.RANK else cause.text
    return Symptom(words=words, ranks=ranks, share=_cost(facts, share), cause=shared, lost=share)


def _cost(facts: Facts, lost: float) -> float:
    """Return about which share of the time a loss costs: the slots that it meets wait for a repeat."""
    return min(1.0, lost * MOST_WINDOW) * _moving(facts) if facts.calls.spans else lost


MOST_WINDOW: Final = 32
"""Of so many frames that are in flight together, one that is lost holds up the others."""


def _late(facts: Facts) -> list[Symptom]:
    late = None if standing(facts) is not None else find_late(facts.calls)
    if late is None:
        return []
    worker = next((one for one in facts.workers if one.rank == late.rank), None)
    does, busy = "is outside calls", None
    if worker is not None and worker.recent.seconds > 0:
        busy = worker.recent.cpu_s / worker.recent.seconds
        does = COMPUTES if busy >= BUSY * late.own_share else "sleeps, or waits for data or a lock,"
    words = of_ranks(facts, [late.rank]) | {
        "said": said(late, called(facts, [late.rank])),
        "more": more_said(late, does, busy),
        "profile_s": PROFILE_S,
        "places": places(facts, [late.rank]),
    }
    return [Symptom(words=words, ranks=[late.rank], share=late.share, since_s=late.since_s)]


def last_to_come(facts: Facts) -> tuple[int, str] | None:
    """Return the rank whose contributions come last although it is not late itself, and the sign; None: nobody's do."""
    found, late = _missing_most(facts) or _heard_least(facts), find_late(facts.calls)
    if found is None:
        return None
    rank, _ = found
    is_blamed = (late is not None and late.rank == rank) or rank in congested(facts)[0]
    lossy = {one.rank for _, losses in lossy_groups(facts) for one in losses}
    return None if is_blamed or rank in lossy else found


def _missing_most(facts: Facts) -> tuple[int, str] | None:
    """Return the rank that is missing in nearly all slots that are under way, if the others are not."""
    seen = facts.arrivals
    if seen.looks < FEW_LOOKS or seen.rounds < FEW_ROUNDS or not seen.missing:
        return None
    last, *others = sorted((one.rank for one in facts.workers), key=seen.share, reverse=True)
    if seen.share(last) < LAST or any(seen.share(rank) > NOT_LAST for rank in others):
        return None
    return last, f"its contributions come last in {percent(seen.share(last))} of the rounds"


def _heard_least(facts: Facts) -> tuple[int, str] | None:
    """Return the rank that hardly ever hears from the switch that others are missing, if the others do.

    They have contributed, and ask again.  While they catch up with a rank that is far off, slots show them missing.
    Of several that hear little, it is the one that slots show missing twice as often.
    """
    held = {one.rank: one.recent.held / one.recent.rounds for one in facts.workers if one.recent.rounds}
    if not 1 < len(held) == facts.job.workers:
        return None
    mean = sum(held.values()) / (len(held) - 1)
    seldom = [rank for rank in held if held[rank] <= NOT_HELD * mean]
    if mean < HELD or not seldom:
        return None
    last, *others = sorted(seldom, key=facts.arrivals.share, reverse=True)
    if any(facts.arrivals.share(last) < 2 * facts.arrivals.share(rank) for rank in others):
        return None
    asked = sum(one.recent.held for one in facts.workers if one.rank != last)
    return last, f"{asked:,} times in {duration(facts.workers[0].recent.seconds)} others asked, and it was missing"


def _slow(facts: Facts, *, is_memory: bool) -> list[Symptom]:
    found = None if standing(facts) is not None else last_to_come(facts)
    worker = next((one for one in facts.workers if found is not None and one.rank == found[0]), None)
    if found is None or worker is None or worker.link.startswith("shm") != is_memory:
        return []
    rank, sign = found
    spent, recent, kinds = _moving(facts), worker.recent, _kinds(facts)
    rate = recent.bytes_sent / (recent.seconds * spent) if recent.seconds and spent else 0.0
    words = of_ranks(facts, [rank]) | {
        "who": called(facts, [rank]),
        "sign": sign,
        "moving": percent(spent),
        "rate": f"{8 * rate / 1e6:.3g} Mbit/s" if rate else "an unknown rate",
        "round_trip": duration(min(kinds)) if kinds else "an unknown time",
        "places": places(facts, [rank]),
    }
    return [Symptom(words=words, ranks=[rank], share=spent)]


def _kinds(facts: Facts) -> list[float]:
    """Return how long data move in a call, of each kind of calls in the last seconds."""
    span = facts.calls.spans[0] if facts.calls.spans else CallSpan(seconds=0.0)
    return [one.moving_s / one.calls for one in span.kinds if one.calls]


def _slow_link(facts: Facts) -> list[Symptom]:
    return _slow(facts, is_memory=False)


def _sends_late(facts: Facts) -> list[Symptom]:
    return _slow(facts, is_memory=True)


def _has_bad_links(facts: Facts) -> bool:
    """Whether links lose so much, or are so slow, that ranks wait for that."""
    losses = [one for _, group in lossy_groups(facts) for one in group]
    return bool(congested(facts)[0]) or last_to_come(facts) is not None or any(one.share >= BAD for one in losses)


def _waits(facts: Facts) -> list[Symptom]:
    """Ranks wait, and what is known of single ranks does not say why."""
    spent = shares_of_job(facts.calls, facts.workers)
    late = find_late(facts.calls)
    if standing(facts) is not None or late is not None or spent["waiting"] < WAITS or _has_bad_links(facts):
        return []
    found, wander = find_wandering(facts.calls), ""
    if found is not None and found.times:
        step = "step" if found.calls_per_step > 1 else "call"
        often = listed([f"rank {rank} {_times(count)}" for rank, count in _most(found.times)])
        rest = len(found.times) - MOST_NAMED
        more = f", and {rest} more rank{'s' * (rest > 1)} now and then" if rest > 0 else ""
        wander = f": pauses of {duration(found.late_s)} wander, in the last {found.steps} {step}s {often}{more}"
    words = {"waiting": percent(spent["waiting"]), "seconds": f"{SHARES_S:.0f} s", "wander": wander}
    return [Symptom(words=words | {"shares": _shares(spent), "job": quote(facts.job.job)}, share=spent["waiting"])]


def _most(times: dict[int, int]) -> list[tuple[int, int]]:
    return sorted(sorted(times.items(), key=lambda item: -item[1])[:MOST_NAMED])


def _shares(spent: dict[str, float]) -> str:
    if not any(spent.values()):
        return ""
    return (
        f"In the last {SHARES_S:.0f} s ranks computed {percent(spent['computing'])} of the time, data moved for "
        f"{percent(spent['moving'])}, and ranks waited for others for {percent(spent['waiting'])}."
    )


def _nothing(facts: Facts) -> list[Symptom]:
    steps = len(steps_of(facts.calls)[0])
    known = f" In the last {steps} steps no rank was late again and again." if steps else ""
    shares = shares_of_job(facts.calls, facts.workers)
    limit = f"; sums travel {percent(shares['moving'])} of the time" if shares["moving"] >= TRAVELS else ""
    return [Symptom(words={"known": known, "limit": limit, "shares": _shares(shares)})]


# Beside.


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _left_out(facts: Facts) -> list[Symptom]:
    job = facts.job
    if not job.left_out:
        return []
    each = listed([f"{count} left out {names(facts, [rank])}" for rank, count in job.left_out])
    given = ", ".join(f"{names(facts, [rank])} {_times(count)}" for rank, count in job.given_model)
    words = {
        "agreed": job.agreed,
        "each": each,
        "patience": job.waits,
        "given": f" So late that it was given the model was {given}." if given else "",
    }
    return [Symptom(words=words, ranks=[rank for rank, _ in job.left_out])]


def _other_terms(facts: Facts) -> list[Symptom]:
    return [
        Symptom(words={"Who": capital(names(facts, [rank])), "often": _times(count)}, ranks=[rank])
        for rank, count in facts.job.refused_terms
    ]


def _cannot_begin(facts: Facts) -> list[Symptom]:
    return [Symptom(words={"why": facts.job.held_up})] if facts.job.held_up else []


def _taken(facts: Facts) -> list[Symptom]:
    """Say how often a job that shares slots has found one taken."""
    if not facts.job.shares_slots:
        return []
    counted = facts.counters.values()
    taken = sum(reason.packets for one in counted for reason in one.reasons if reason.reason == TAKEN)
    if not taken:
        return []
    sent = max(sum(one.contributions for one in counted), taken)  # which are counted a moment later
    held = {one.slot: one.job for one in facts.slots or [] if one.job not in ("", facts.job.job)}
    each = listed([f"job {job} holds {[*held.values()].count(job)}" for job in sorted({*held.values()})])
    words = {
        "taken": percent(taken / sent),
        "sent": f"{sent:,}",
        "fallback": repr(facts.job.fallback),
        "held": f"Of its {facts.job.slot_count} slots {each} now." if held else "",
    }
    return [Symptom(words=words)]


SYMPTOMS: Final[dict[str, Callable[[Facts], Iterable[Symptom]]]] = {
    "aggregator is away": _aggregator_away,
    "switch is away": _switch_away,
    "ranks have made different calls": _differ,
    "the job has ended with lost ranks": _ended_with_lost,
    "ranks are lost": _lost,
    "the job has ended": lambda facts: _nobody(facts, again=True),
    "nobody has joined": lambda facts: _nobody(facts, again=False),
    "ranks are starting": _starting,
    "ranks have not joined": _not_joined_here,
    "ranks that a launcher starts have not joined": _not_joined_launched,
    "no frame has come": _unseen,
    "all have come": _all_come,
    "switch has all and answers nobody": _no_sums,
    "link is dead": _dead_link,
    "ranks report nothing": _reports_nothing,
    "ranks are outside collectives": _outside,
    "ranks are missing in a collective": _missing,
    "ranks are silent": _silent,
    "a port is congested": _port_congested,
    "a port drops": _port_drops,
    "the way to the switch is congested": _way_congested,
    SIMULATOR_ON: lambda facts: _lossy(facts, "simulated"),
    "links of interfaces lose": lambda facts: _lossy(facts, "packet"),
    "links of sockets lose": lambda facts: _lossy(facts, "socket"),
    "a rank is late": _late,
    "a link is slower than the others": _slow_link,
    "a rank sends late": _sends_late,
    "ranks wait and nobody is to blame": _waits,
    "nothing is wrong": _nothing,
    "operations left ranks out": _left_out,
    "a rank asked on other terms": _other_terms,
    "an operation cannot begin": _cannot_begin,
    "slots were taken": _taken,
}
"""The function that measures each symptom, by its name in `rules.RULES`."""
