"""Who is late: when each rank began each collective and how long it took there, each by its own clock.

A collective ends on all ranks at nearly the same moment, when the sum comes back. So the rank on which it took least
has begun it last, and each other rank waited for it by as much as it took longer there. No clocks are compared.

A rank that is late stays late until it waits for the others: in a backward pass, bucket after bucket. Such a call
counts only for what was added to the delay. Ranks say whether they have waited since the call before; where a program
waits in ways that they do not see, as in C++, those calls are taken for such that were begun while the one before was
under way.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from switchsum_protocol import reports

SPANS: Final = (10.0, 60.0, 600.0)
"""Lengths of the periods that have figures, in seconds."""
PERIOD_S: Final = 5.0
"""Spans are made of such periods, and of the one that is not over."""
MOST_RECENT: Final = 512
"""Latest calls that are kept one by one."""
MOST_OPEN: Final = 1024
"""Calls of which some rank has not told, in a job of up to 512 ranks; larger ones have fewer."""
MOST_KINDS: Final = 32
"""Kinds of collectives in a period; further ones are counted together."""
OTHERS: Final = "others"
_TIME, _CALLS, _WAITING, _LATE = range(4)
"""Figures of a rank in a period."""
NS: Final = 1e9


@dataclass(slots=True)
class _Kind:
    calls: int = 0
    moving: int = 0
    waiting: float = 0.0
    late: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Period:
    """Sums of a few seconds, in ns."""

    figures: list[list[int]]
    calls: int = 0
    kinds: dict[str, _Kind] = field(default_factory=dict)

    def kind(self, name: str) -> _Kind:
        if name not in self.kinds and len(self.kinds) >= MOST_KINDS:
            name = OTHERS
        return self.kinds.setdefault(name, _Kind())


@dataclass(slots=True)
class _Call:
    """A call as ranks have told of it."""

    name: str
    begun: list[int]
    took: list[int]
    waited: list[int]
    reports: int = 0


@dataclass(slots=True)
class _Before:
    """The call before, and how it went; until when a call was under way and waited for, by the clock of each rank."""

    serial: int
    call: _Call
    late: int
    alone: int
    busy_until: list[int]
    waits_until: list[int]


class Calls:
    """Compares the calls of all ranks of one incarnation of a job, as reports of them come."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._most_open = min(MOST_OPEN, MOST_OPEN * 512 // workers)
        self._open: OrderedDict[int, _Call] = OrderedDict()
        self._newest = -1
        self._before: _Before | None = None
        self._recent: deque[tuple[float, str, list[int]]] = deque(maxlen=MOST_RECENT)
        self._periods: deque[_Period] = deque(maxlen=round(max(SPANS) / PERIOD_S) + 1)
        self._number = -1
        """Number of the current period, counted since the clock began."""
        self._tell_waits = False
        """Whether any rank has ever said that it has waited."""

    def take(self, rank: int, calls: Iterable[Sequence[int]], names: Sequence[str], now: float) -> None:
        """Take calls of a rank, ascending, as `WorkerReport.calls` has them; their kinds are in `names`."""
        for serial, place, begun, took, waited in calls:
            if serial <= self._newest:  # compared before
                continue
            call = self._open.get(serial)
            if call is None:
                call = self._open[serial] = _Call(
                    names[place], [0] * self._workers, [-1] * self._workers, [0] * self._workers
                )
                while len(self._open) > self._most_open:
                    self._newest = max(self._newest, self._open.popitem(last=False)[0])
            if call.took[rank] < 0:
                call.reports += 1
            call.begun[rank], call.took[rank], call.waited[rank] = begun, max(0, took), waited
            self._tell_waits |= waited > 0
            if call.reports == self._workers:
                del self._open[serial]
                self._newest = serial
                self._compare(serial, call, now)

    def _compare(self, serial: int, call: _Call, now: float) -> None:
        """Find who was late in a call that all have told of."""
        least, most = min(call.took), max(call.took)
        late = call.took.index(least)
        alone = min((took for rank, took in enumerate(call.took) if rank != late), default=least) - least
        before = self._before if self._before is not None and self._before.serial == serial - 1 else None
        added, gap, first = alone, 0, call.took.index(most)
        if before is not None:
            gap = max(0, call.begun[first] - before.busy_until[first])
        if before is not None and before.late == late and not self._has_waited(first, call, before):
            added = max(0, alone - before.alone)
        period = self._period(now)
        period.calls += 1
        period.figures[_LATE][late] += added
        kind = period.kind(call.name)
        kind.calls += 1
        kind.moving += least
        kind.waiting += sum(call.took) / self._workers - least
        kind.late[late] = kind.late.get(late, 0) + added
        self._before = self._follow(serial, call, late, alone, before, period)
        self._recent.append((now, call.name, [serial, late, most - least, added, gap]))

    def _has_waited(self, rank: int, call: _Call, before: _Before) -> bool:
        """Whether a rank waited between two calls, so that no delay of before them is in the second one."""
        if self._tell_waits:
            return call.waited[rank] > 0
        return call.begun[rank] >= before.call.begun[rank] + before.call.took[rank]

    def _follow(
        self, serial: int, call: _Call, late: int, alone: int, before: _Before | None, period: _Period
    ) -> _Before:
        """Add up the time of all ranks between the begin of the call before and of this one."""
        least = call.took[late]
        busy = [begun + took for begun, took in zip(call.begun, call.took, strict=True)]
        waits = [end - least for end in busy]
        if before is not None:
            time, calls, waiting, _ = period.figures
            for rank, begun in enumerate(call.begun):
                start = before.call.begun[rank]
                time[rank] += max(0, begun - start)
                calls[rank] += max(0, min(before.busy_until[rank], begun) - start)
                waiting[rank] += max(0, min(before.waits_until[rank], begun) - start)
            busy = list(map(max, busy, before.busy_until))
            waits = list(map(max, waits, before.waits_until))
        return _Before(serial, call, late, alone, busy, waits)

    def _period(self, now: float) -> _Period:
        """Return the period that is not over; those that have passed since the last one are empty."""
        number = int(now / PERIOD_S)
        passed = number - self._number if self._number >= 0 else 1
        for _ in range(min(max(0, passed), self._periods.maxlen or 0)):
            self._periods.append(_Period([[0] * self._workers for _ in range(4)]))
        self._number = max(number, self._number)
        return self._periods[-1]

    def report(self, now: float) -> reports.JobCalls:
        """Return all that is known at a moment."""
        self._period(now)
        names = list(dict.fromkeys(name for _, name, _ in self._recent))
        places = {name: place for place, name in enumerate(names)}
        return reports.JobCalls(
            spans=[self._span(seconds) for seconds in SPANS],
            kinds=names,
            recent=[
                [row[0], places[name], *row[1:], max(0, round(1000 * (now - at)))] for at, name, row in self._recent
            ],
        )

    def _span(self, seconds: float) -> reports.CallSpan:
        periods = list(self._periods)[-1 - round(seconds / PERIOD_S) :]
        figures = [
            [sum(column) / NS for column in zip(*(one.figures[at] for one in periods), strict=True)] for at in range(4)
        ]
        kinds: dict[str, _Kind] = {}
        for period in periods:
            for name, one in period.kinds.items():
                total = kinds.setdefault(name, _Kind())
                total.calls += one.calls
                total.moving += one.moving
                total.waiting += one.waiting
                for rank, late in one.late.items():
                    total.late[rank] = total.late.get(rank, 0) + late
        longest = sorted(kinds.items(), key=lambda item: -(item[1].moving + item[1].waiting))[:MOST_KINDS]
        return reports.CallSpan(
            seconds=seconds,
            calls=sum(one.calls for one in periods),
            time_s=figures[_TIME],
            calls_s=figures[_CALLS],
            waiting_s=figures[_WAITING],
            late_s=figures[_LATE],
            kinds=[
                reports.CallKind(
                    name=name,
                    calls=one.calls,
                    moving_s=one.moving / NS,
                    waiting_s=one.waiting / NS,
                    late_rank=(slowest := max(one.late, key=one.late.__getitem__)),
                    late_s=one.late[slowest] / NS,
                )
                for name, one in longest
            ],
        )
