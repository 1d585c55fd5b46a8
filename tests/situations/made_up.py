"""The thirty situations as facts that are made up: what controller, switch and workers would tell of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from switchsum.view.arrivals import Arrivals
from switchsum.view.facts import Facts
from switchsum_controller.jobs.late_calls import Calls
from switchsum_protocol import rpc
from switchsum_protocol.reports import JobCalls, RecentFigures

MS: Final = 1_000_000
RANKS: Final = 4
KINDS: Final = ["allreduce (sum) of float32[1]", "allreduce (average) of float32[200000]"]
Delay = Callable[[int, int], float]
"""Milliseconds by which a rank is late, by step and rank."""


def calls_of(delay: Delay, *, ranks: int = RANKS, moving_ms: float = 2.0, compute_ms: float = 20.0) -> JobCalls:
    """Return what ten seconds and more of steps tell, each with a short and a long call."""
    chance, reported, clocks = random.Random(), Calls(ranks), [random.randrange(10**15) for _ in range(ranks)]
    at, serial, step = 0, 0, 0
    while at < 14_000 * MS:
        for place, length_ms in enumerate((moving_ms / 10, moving_ms)):
            late = [delay(step, rank) if place else 0.0 for rank in range(ranks)]
            own_ms = 0.0 if place == 0 else compute_ms
            begun = [at + round(MS * (own_ms + one + chance.uniform(0, 0.1))) for one in late]
            end = max(begun) + round(MS * length_ms)
            for rank in chance.sample(range(ranks), ranks):
                row = [serial, place, begun[rank] + clocks[rank], end - begun[rank], 1]
                reported.take(rank, [row], KINDS, at / 1e9)
            at, serial = end, serial + 1
        step += 1
    return reported.report(at / 1e9)


def steady(step: int, rank: int) -> float:
    return 0.0


def facts(calls: JobCalls | None = None, *, ranks: int = RANKS, link: str = "udp:127.0.0.1:21333") -> Facts:
    """Return what is known of a job that works, with links that lose nothing."""
    members = [
        rpc.MemberInfo(rank=rank, state="admitted", address=f"10.0.0.{rank + 1}:40000", ingress_port=rank + 1)
        for rank in range(ranks)
    ]
    job = rpc.JobInfo(
        job="training", number=1, epoch=1, state="running", workers=ranks, first_slot=0, slot_count=256, members=members
    )
    frames = 20_000
    recent = RecentFigures(
        seconds=10.0, rounds=frames, frames_sent=frames, frames_received=frames, cpu_s=1.0, bytes_sent=1100 * frames
    )
    workers = [
        rpc.WorkerInfo(
            rank=rank, age_s=0.4, host="vm", pid=4000 + rank, link=link, begun=700, finished=700, recent=recent,
            frames_sent=10 * frames, frames_received=10 * frames, rounds=10 * frames, bytes_sent=11_000 * frames,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    counted = {
        rank: rpc.MemberCounters(
            job="training", rank=rank, contributions=10 * frames, contribution_bytes=1, results=10 * frames
        )
        for rank in range(ranks)
    }
    even = Arrivals(looks=8, rounds=400, missing={rank: random.uniform(0.15, 0.5) for rank in range(ranks)})
    return Facts(
        job=job,
        workers=workers,
        counters=counted,
        slots=[],
        ports=rpc.PortList(ports=[rpc.PortInfo(port=rank + 1, members=[f"training/{rank}"]) for rank in range(ranks)]),
        calls=calls_of(steady) if calls is None else calls,
        arrivals=even,
    )


def changed(known: Facts, rank: int, **values: object) -> Facts:
    """Return facts in which one rank's report differs."""
    workers = [replace(one, **values) if one.rank == rank else one for one in known.workers]  # type: ignore[arg-type]
    return replace(known, workers=workers)


def with_recent(known: Facts, ranks: list[int], **values: int) -> Facts:
    """Return facts in which the latest figures of some ranks differ."""
    for rank in ranks:
        known = changed(known, rank, recent=replace(known.workers[rank].recent, **values))
    return known


def lossy(known: Facts, ranks: list[int], share: float) -> Facts:
    """Return facts in which some links have lost a share of their frames, each way."""
    for rank in ranks:
        worker = known.workers[rank]
        came = round(worker.recent.frames_sent * (1 - 2 * share))
        known = with_recent(known, [rank], frames_received=came, repeats=round(2.5 * share * worker.recent.frames_sent))
        known = changed(known, rank, frames_received=round(worker.frames_sent * (1 - 2 * share)))
    return known


def stands(seconds: float, *, missing: list[int], idle: bool = True, known: Facts | None = None) -> Facts:
    """Return facts of a job in which some ranks are missing in a call that the others have begun."""
    known = facts() if known is None else known
    held = sum(1 << rank for rank in range(len(known.workers)) if rank not in missing)
    for worker in known.workers:
        is_missing = worker.rank in missing
        known = changed(
            known,
            worker.rank,
            begun=700 if is_missing else 701,
            waiting_s=0.0 if is_missing else seconds,
            idle_s=seconds if is_missing and idle else 0.0,
            operation="" if is_missing else KINDS[1],
        )
    cells = [
        rpc.SlotInfo(slot=slot, version=0, number=9, seen=held, flags=0, block=slot, next_block=0) for slot in range(9)
    ]
    return replace(known, slots=cells)


def state(known: Facts, *states: str, **values: object) -> Facts:
    """Return facts of a job whose members are in these states."""
    members = [replace(one, state=state) for one, state in zip(known.job.members, states, strict=True)]
    workers = [
        one if state == "admitted" else rpc.WorkerInfo(rank=one.rank)
        for one, state in zip(known.workers, states, strict=True)
    ]
    is_waiting = "admitted" not in states
    job = replace(known.job, members=members, state="waiting" if is_waiting else "running", **values)  # type: ignore[arg-type]
    return replace(known, job=job, workers=workers, calls=JobCalls() if is_waiting else known.calls)


def away(names: list[str], addresses: dict[str, str], **values: object) -> Facts:
    """Return facts of a job whose switches do not answer."""
    known = facts()
    job = replace(known.job, state="stalled", **values)  # type: ignore[arg-type]
    waits = [replace(one, waiting_s=6.0, begun=701) for one in known.workers]
    return replace(known, job=job, workers=waits, away=names, addresses=addresses, slots=[])


def congested(ranks: list[int], *, drops: float) -> Facts:
    known = facts(calls_of(steady, moving_ms=60.0))
    known = lossy(known, ranks, drops) if drops else known
    return with_recent(known, ranks, marked=random.randint(6_000, 9_000))


def behind_one_port(known: Facts, share: float) -> Facts:
    """Return facts of ranks behind one port whose queue drops a share of what leaves."""
    members = [replace(one, ingress_port=1) for one in known.job.members]
    known = replace(known, job=replace(known.job, members=members))
    for worker in known.workers:
        came = round(worker.frames_sent * (1 - share))
        known = with_recent(known, [worker.rank], frames_received=round(worker.recent.frames_sent * (1 - share)))
        known = changed(known, worker.rank, frames_received=came, rounds=came)
    counted = {rank: replace(one, results=round(one.results * (1 - share))) for rank, one in known.counters.items()}
    return replace(known, counters=counted)


def last(rank: int, *, moving_ms: float) -> Facts:
    """Return facts in which the contributions of a rank come last, although it begins in time."""
    missing = {one: random.uniform(0.92, 1.0) if one == rank else random.uniform(0.05, 0.2) for one in range(RANKS)}
    return replace(
        facts(calls_of(steady, moving_ms=moving_ms)), arrivals=Arrivals(looks=8, rounds=400, missing=missing)
    )


def dropped(known: Facts) -> Facts:
    ports = [replace(one, ingress_loss=0.02, egress_loss=0.02) for one in known.ports.ports]
    return replace(lossy(known, list(range(RANKS)), 0.02), ports=rpc.PortList(ports=ports))


def ended(**values: object) -> Facts:
    """Return facts of a job whose ranks have all gone."""
    return state(facts(), *(["expected"] * RANKS), has_ended=True, **values)


SUM: Final = "allreduce (sum) of"
DIFFER: Final = f"rank 2 issued {SUM} int32[200000]; ranks 0, 1, 3 issued {SUM} float32[200000]"
MADE_UP: Final[dict[str, Callable[[], Facts]]] = {
    "healthy": facts,
    "late 5 ms": lambda: facts(calls_of(lambda _, rank: 5.0 * (rank == 2))),
    "pauses of one rank": lambda: facts(calls_of(lambda step, rank: 500.0 * (rank == 2 and step % 25 == 24))),
    "pauses that wander": lambda: facts(calls_of(lambda step, rank: 500.0 * ((step + 7 * rank) % 25 == 0))),
    "compiles": lambda: stands(14.0, missing=[2]),
    "other size": lambda: ended(broken="mismatch", broken_ranks=[2], broken_text=DIFFER),
    "a slow bucket": lambda: facts(calls_of(lambda _, rank: 15.0 * (rank == 2))),
    "a link loses": lambda: lossy(facts(calls_of(steady, moving_ms=10.0)), [2], 0.03),
    "a rank is not started": lambda: state(facts(), "seen", "seen", "seen", "expected", starting_s=75.0),
    "the switch is killed": lambda: away([""], {"": "127.0.0.1:9559"}),
    "the switch is stopped": lambda: replace(
        stands(6.0, missing=[]), trouble="the switch at 127.0.0.1:9559 does not answer", slots=[]
    ),
    "a congested port": lambda: congested([2], drops=0.2),
    "a port that drops": lambda: behind_one_port(facts(calls_of(steady, moving_ms=60.0)), 0.5),
    "a rank is stopped": lambda: changed(stands(9.0, missing=[2], idle=False), 2, age_s=9.4),
    "a slow link": lambda: last(2, moving_ms=80.0),
    "all compute": lambda: facts(calls_of(steady, compute_ms=100.0)),
    "a healthy tree": lambda: facts(calls_of(steady, ranks=8), ranks=8),
    "the aggregator is stopped": lambda: away(
        ["spare"], {"spare": "127.0.0.1:9560"}, shares_slots=True, fallback="spare"
    ),
    "a dead link": lambda: with_recent(
        changed(stands(8.0, missing=[2], idle=False), 2, begun=701, waiting_s=8.0, idle_s=0.0, operation=KINDS[1]),
        [2],
        repeats=300,
    ),
    "a long way": lambda: last(2, moving_ms=42.0),
    "all links lose": lambda: lossy(facts(calls_of(steady, moving_ms=10.0)), list(range(RANKS)), 0.02),
    "the drop simulator": lambda: dropped(facts(calls_of(steady, moving_ms=10.0))),
    "ranks are starting": lambda: state(facts(), "seen", "seen", "expected", "expected", starting_s=4.0),
    "a rank of torchrun is missing": lambda: state(
        facts(), "seen", "seen", "seen", "expected", starting_s=120.0, ephemeral=True
    ),
    "a congested way that all share": lambda: congested(list(range(RANKS)), drops=0.0),
    "a spine is away": lambda: away(["spine2"], {"spine2": "10.0.0.9:9559"}),
    "64 ranks, one late": lambda: facts(calls_of(lambda _, rank: 20.0 * (rank == 37), ranks=64), ranks=64),
}
"""Facts of each situation whose sentence is `explain`'s and that needs no process."""
