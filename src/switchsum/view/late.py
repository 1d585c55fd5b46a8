"""Which rank is late in a job's steps, by how much, how often, and what the job would gain without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import eq
from typing import Final

from switchsum.view.words import capital, duration, percent
from switchsum_protocol import rpc
from switchsum_protocol.reports import CallSpan, JobCalls

LOOK_BACK_S: Final = 15.0
"""A rank is named by the steps of so many last seconds, or by the last few where steps take long."""
FEW_STEPS: Final = 10
MOST_STEPS: Final = 100
MOST_KEPT: Final = 16
"""Looks at jobs of which the steps are kept: a picture asks for those of each job seven times."""
COMPUTES: Final = "computes"
"""What a rank does that takes its core's time."""
WAITING_S: Final = 2.0
"""A job that waits for less than this is at work."""
OPEN_S: Final = 1.0
"""A call or a pause that lasts for this long counts before it is over. Reports come once a second."""
SHARES_S: Final = 10.0
"""Shares of time are of so many last seconds."""
STRIP_STEPS: Final = 200
"""Number of steps that the strip shows."""
MOST_PERIOD: Final = 64
"""Calls of a step; of longer steps, each call counts as one."""
ALIKE: Final = 0.95
"""Share of the calls that must come again before a step is recognised."""
LEAST_GAIN: Final = 0.01
"""A rank that costs less of a job's time than this is not named."""
LEAST_LATE_S: Final = 50e-6
"""Results come to ranks at moments that differ by up to this: who is less late than that may be not late at all."""
CLEARLY: Final = 0.8
"""Share of the largest cost: of the calls that cost a step about as much, the first one is named."""
SELDOM: Final = 0.5
"""A rank that is late in a smaller share of the steps than this pauses now and then."""
OUTWEIGHS: Final = 2.0
"""A late rank holds up the others for longer than it waits for them, by so much; in noise each does both."""
MOST_OF_ALL: Final = 0.6
"""Or this part of all that ranks wait for single ones is for it: of three ranks and more chance gives none so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Who was late in one step."""

    number: int
    """Serial number of the first of its calls that is known."""
    rank: int
    """Rank that the others waited for longest."""
    late_s: float
    """Seconds after the first rank at which it began."""
    alone_s: float
    """Seconds that the others waited for this rank alone."""
    place: int
    """Call of the step in which it lost that time."""
    kind: str
    """And in which kind of collective."""
    age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A rank for which the others wait in most steps."""

    rank: int
    late_s: float
    """Typically, in the steps in which it is the last."""
    times: int
    """Number of steps, of `steps`, in which this happened."""
    steps: int
    calls_per_step: int
    place: int
    """Call of a step in which it loses most time, from 0."""
    kind: str
    gain: float
    """Gain in speed of the job without this delay. 0.25: a quarter faster."""
    own_share: float
    """Share of its time that it spends between calls."""
    step_s: float
    """Seconds that a step takes."""
    since_s: float
    """Seconds since the first known step in which it was so late."""
    share: float
    """Share of the job's time for which all others wait for this rank alone."""

    @property
    def pauses(self) -> bool:
        """Whether the rank is late seldom: it pauses now and then, and keeps up in between."""
        return self.times < SELDOM * self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Wandering:
    """Delays for which now this rank is to blame, now that one."""

    steps: int
    """Number of steps that were looked at."""
    late_s: float
    """Typical delay, weighted by what it costs."""
    times: dict[int, int]
    """In how many steps each rank was so late."""
    calls_per_step: int


class _Same:
    """Calls that are the same if they are one object."""

    __slots__ = ("calls",)

    def __init__(self, calls: JobCalls) -> None:
        self.calls = calls

    def __hash__(self) -> int:
        return id(self.calls)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.calls is self.calls


def steps_of(calls: JobCalls) -> tuple[Sequence[Step], int]:
    """Put the latest calls together to steps; return them, the oldest first, and how many calls a step has."""
    return _steps_of(_Same(calls))


@lru_cache(maxsize=MOST_KEPT)
def _steps_of(one: _Same) -> tuple[Sequence[Step], int]:
    calls, rows = one.calls, one.calls.recent
    period = _period(rows)
    first = _first_place(rows, period)
    steps: dict[int, list[list[int]]] = {}
    for row in rows:
        steps.setdefault((row[0] - first) // period, []).append(row)
    found = []
    for number, of_step in steps.items():
        added: Counter[int] = Counter()
        for row in of_step:
            added[row[2]] += row[4]
        rank, alone = added.most_common(1)[0]
        own = [row for row in of_step if row[2] == rank]
        most = max(row[4] for row in own)
        worst = next(row for row in own if row[4] >= CLEARLY * most)
        found.append(
            Step(
                number=number * period + first,
                rank=rank,
                late_s=max(row[3] for row in own) / 1e9,
                alone_s=alone / 1e9,
                place=(worst[0] - first) % period,
                kind=calls.kinds[worst[1]],
                age_s=of_step[-1][6] / 1e3,
            )
        )
    return tuple(found), period


def find_late(calls: JobCalls) -> Late | None:
    """Return the rank that is late in most steps; None: nobody is, or too little is known."""
    steps, period = steps_of(calls)
    recent, span = _recent(steps), _span(calls, period)
    if len(recent) < FEW_STEPS or span is None:
        return None
    rank = max(range(len(span.late_s)), key=span.late_s.__getitem__)
    late_s, time_s = span.late_s[rank], span.time_s[rank]
    typical_s = costly([(one.late_s, one.alone_s) for one in recent if one.rank == rank])
    hits = [one for one in recent if one.rank == rank and one.late_s >= typical_s / 2]
    is_little = late_s < LEAST_GAIN * time_s or typical_s < LEAST_LATE_S
    has_most = len(span.late_s) > 2 and len(recent) >= MOST_STEPS and late_s >= MOST_OF_ALL * sum(span.late_s)
    is_noise = late_s < OUTWEIGHS * span.waiting_s[rank] and not has_most
    if is_little or time_s <= 0 or is_noise:  # no time: a member that lies
        return None
    place, _ = Counter(one.place for one in hits).most_common(1)[0]
    return Late(
        rank=rank,
        late_s=typical_s,
        times=len(hits),
        steps=len(recent),
        calls_per_step=period,
        place=place,
        kind=next(one.kind for one in hits if one.place == place),
        gain=late_s / max(time_s - late_s, 1e-9),
        own_share=1.0 - span.calls_s[rank] / time_s,
        step_s=step_s(calls, period),
        since_s=max(one.age_s for one in steps if one.rank == rank and one.late_s >= typical_s / 2),
        share=late_s / time_s,
    )


def find_wandering(calls: JobCalls) -> Wandering | None:
    """Return delays that cost most of the lost time, whichever ranks they are of; None: too little is known."""
    steps, period = steps_of(calls)
    recent = _recent(steps)
    if len(recent) < FEW_STEPS:
        return None
    typical_s = costly([(one.late_s, one.late_s) for one in recent])
    hits = Counter(one.rank for one in recent if one.late_s >= typical_s / 2)
    return Wandering(steps=len(recent), late_s=typical_s, times=dict(sorted(hits.items())), calls_per_step=period)


def _recent(steps: Sequence[Step]) -> Sequence[Step]:
    found: Sequence[Step] = [one for one in steps if one.age_s <= LOOK_BACK_S][-MOST_STEPS:]
    return found if len(found) >= FEW_STEPS else steps[-FEW_STEPS:]


def costly(delays: Iterable[tuple[float, float]]) -> float:
    """Return the delay such that half of the lost time is in longer ones; 0: nothing was lost.

    A median of the delays themselves would say 1 ms of a rank that pauses for half a second in every 25th step.

    >>> costly([(0.001, 0.001)] * 24 + [(0.5, 0.5)])
    0.5
    """
    ordered = sorted(delays)
    half, lost = sum(cost for _, cost in ordered) / 2, 0.0
    for late_s, cost in ordered:
        lost += cost
        if lost >= half:
            return late_s
    return 0.0


def shares_of_job(calls: JobCalls, workers: Iterable[rpc.WorkerInfo]) -> dict[str, float]:
    """Return which parts of the last seconds ranks compute, let data move and wait, on average; zeros: not known."""
    span = calls.spans[0] if calls.spans else CallSpan(seconds=0.0)
    found = [one for worker in workers if any((one := shares_now(span, worker)).values())]
    names = ("computing", "moving", "waiting")
    return {name: sum(one[name] for one in found) / len(found) if found else 0.0 for name in names}


def stands(workers: Iterable[rpc.WorkerInfo]) -> bool:
    """Whether a job stands still: a rank has waited for long.  Who was late before is no news then."""
    return any(one.age_s >= 0 and one.waiting_s >= WAITING_S for one in workers)


def said(late: Late, who: str) -> str:
    """Say that a rank is late; `who` names it."""
    step = "step" if late.calls_per_step > 1 else "call"
    if late.pauses:
        every_s = late.step_s * late.steps / late.times
        return (
            f"{capital(who)} paused for {duration(late.late_s)} in {late.times} of the last {late.steps} {step}s, "
            f"about every {duration(every_s)}: the others wait for it {percent(late.share)} of the time."
        )
    return (
        f"{capital(who)} is {duration(late.late_s)} late in {late.times} of the last {late.steps} {step}s: "
        f"{duration(late.step_s)} a {step}, {duration(late.step_s / (1 + late.gain))} without it."
    )


def more_said(late: Late, does: str, busy: float | None) -> str:
    """Say where a rank loses time, and what the job would gain.

    `does` says what the rank does between calls, and `busy` which part of a core's time it takes.
    """
    core = "" if busy is None else f", and its process takes {percent(busy)} of a core"
    place = f", call {late.place + 1} of {late.calls_per_step} in each step" if late.calls_per_step > 1 else ""
    network = ": it is not the network" if does == COMPUTES else ""  # else it may wait for data that come by one
    return (
        f"This has gone on for at least {late.since_s:.0f} s. The rank loses the time before {late.kind}{place}. "
        f"It {does} for {percent(late.own_share)} of its time{core}{network}. "
        f"Without this delay the job would be {percent(late.gain)} faster."
    )


def shares(span: CallSpan, rank: int) -> dict[str, float]:
    """Return which parts of its time a rank computes, lets data move, and waits for others; zeros: nothing is known."""
    time_s = span.time_s[rank] if rank < len(span.time_s) else 0.0
    if time_s <= 0:
        return {"computing": 0.0, "moving": 0.0, "waiting": 0.0}
    waiting = span.waiting_s[rank] / time_s
    moving = max(0.0, span.calls_s[rank] / time_s - waiting)
    return {"computing": max(0.0, 1.0 - waiting - moving), "moving": moving, "waiting": waiting}


def shares_now(span: CallSpan, worker: rpc.WorkerInfo) -> dict[str, float]:
    """Return `shares` of a rank, with the call or the pause that is not over: no span has that yet."""
    found = shares(span, worker.rank)
    waits = worker.waiting_s >= worker.idle_s
    part = min(1.0, max(worker.waiting_s, worker.idle_s) / (span.seconds or SHARES_S))
    if worker.age_s < 0 or max(worker.waiting_s, worker.idle_s) < OPEN_S:
        return found
    found = {name: (1.0 - part) * share for name, share in found.items()}
    found["waiting" if waits else "computing"] += part
    return found


def _span(calls: JobCalls, period: int) -> CallSpan | None:
    """Return the shortest span that has a few steps, or else the longest one that has any time in it."""
    known = [one for one in calls.spans if any(one.time_s)]
    return next((one for one in known if one.calls >= FEW_STEPS * period), known[-1] if known else None)


def _period(rows: list[list[int]]) -> int:
    """Return after how many calls their kinds come again."""
    runs: list[list[int]] = []  # of calls that follow one another
    for before, row in zip([[-2], *rows], rows, strict=False):
        if row[0] != before[0] + 1:
            runs.append([])
        runs[-1].append(row[1])
    for period in range(1, MOST_PERIOD + 1):
        pairs = sum(max(0, len(run) - period) for run in runs)
        alike = sum(sum(map(eq, run, run[period:])) for run in runs)
        if pairs >= max(FEW_STEPS, period) and alike >= ALIKE * pairs:
            return period
    return 1


def step_s(calls: JobCalls, period: int) -> float:
    """Return how long a step has taken within the last seconds, on average; 0: nothing is known."""
    span = _span(calls, period)
    return 0.0 if span is None or not span.calls else sum(span.time_s) / len(span.time_s) * period / span.calls


def _first_place(rows: list[list[int]], period: int) -> int:
    """Return the place in a period where a step begins: the call before which ranks have nothing under way longest."""
    gaps = [0] * period
    for row in rows:
        gaps[row[0] % period] += row[5]
    return gaps.index(max(gaps))
