"""TCP as Linux has it, for hosts that stream to one another: windows by Reno or CUBIC, and what finds a lost segment.

Numbers count segments in place of bytes.  A receiver acknowledges each segment at once: the first number that it lacks,
up to three ranges behind it (RFC 2018), and which transmission it has got, as time stamps say it (RFC 7323).

A segment is lost when three that were sent later have come, or a quarter of a round trip after a single one has
(RFC 8985).  If no answer comes for two round trips, the last segment is sent again as a probe.  A single one in flight
has 200 ms more, for its acknowledgement may be delayed.  The time-out is RFC 6298's, with Linux's minimum of 200 ms.
No segment waits for timer ticks, and nothing is opened or closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

FIRST_WINDOW: Final = 10.0
"""RFC 6928."""
LEAST_WINDOW: Final = 2.0
MOST_WINDOW: Final = 4096.0
"""Segments for which a receiver has memory: 6 MB, as Linux gives a connection at most."""
LEAST_TIMEOUT_S: Final = 0.2
FIRST_TIMEOUT_S: Final = 1.0
MOST_TIMEOUT_S: Final = 120.0
DELAYED_S: Final = 0.2
"""Longest delay of an acknowledgement."""
REORDERED: Final = 3
"""Later segments after which one is lost."""
REORDERED_ROUNDS: Final = 1.25
"""Round trips after which it is lost if one later segment has come."""
RANGES: Final = 3
_SOON_S: Final = 1e-9
"""So that a time that is rounded has come."""


class Growth(Protocol):
    """How a window grows where nothing is lost, and what a loss leaves of it."""

    def lost(self, window: float) -> float:
        """Return the window after a loss."""
        ...

    def grown(self, window: float, delivered: int, now: float, round_s: float) -> float:
        """Return the window in congestion avoidance, after so many segments have come."""
        ...


class Reno:
    """RFC 5681: a segment more in each round trip, and half after a loss."""

    def lost(self, window: float) -> float:
        """Return the window after a loss."""
        return window / 2

    def grown(self, window: float, delivered: int, now: float, round_s: float) -> float:
        """Return the window after so many segments have come."""
        return window + delivered / window


class Cubic:
    """RFC 9438: the window is a cubic function of the time since the last loss, and at least what Reno would have."""

    SCALE: Final = 0.4
    BETA: Final = 0.7

    def __init__(self) -> None:
        self._most = self._estimate = 0.0
        self._began: float | None = None
        self._reaches_s = 0.0

    def lost(self, window: float) -> float:
        """Return the window after a loss; one that came early leaves place to others (fast convergence)."""
        self._most = window * (1 + self.BETA) / 2 if window < self._most else window
        self._began = None
        return window * self.BETA

    def grown(self, window: float, delivered: int, now: float, round_s: float) -> float:
        """Return the window after so many segments have come."""
        if self._began is None:
            self._began, self._estimate = now, window
            self._most = max(self._most, window)
            self._reaches_s = ((self._most - window) / self.SCALE) ** (1 / 3)
        gain = 3 * (1 - self.BETA) / (1 + self.BETA) if self._estimate < self._most else 1.0
        self._estimate += gain * delivered / window
        wanted = self.SCALE * (now + round_s - self._began - self._reaches_s) ** 3 + self._most
        wanted = min(max(wanted, window), 1.5 * window)
        return max(self._estimate, window + (wanted - window) / window * delivered)


@dataclass(slots=True)
class Flight:
    """A segment that was sent and has not come, as far as its sender knows."""

    transmission: int
    sent_s: float


class Sender:
    """The side of a connection that sends: says which segments go, and when it has to be asked again."""

    def __init__(self, growth: Growth) -> None:
        self.growth = growth
        self.window, self.threshold = FIRST_WINDOW, MOST_WINDOW
        self.added = 0
        """Segments that there are to send."""
        self.repeats = self.timeouts = 0
        self._next = self._first = self._transmissions = 0
        self._flights: OrderedDict[int, Flight] = OrderedDict()
        """By number, in the order of their latest transmissions."""
        self._lost: list[int] = []
        """Numbers that are to be sent again."""
        self._recovers_until = 0
        self._mean = self._deviation = 0.0
        self._timeout_s = FIRST_TIMEOUT_S
        self._latest_s = 0.0
        """When a segment was sent, or an answer came, last."""
        self._has_probed = self._is_full = False
        self._latest_transmission = 0

    @property
    def is_done(self) -> bool:
        """Whether everything has come."""
        return self._first == self.added

    @property
    def until(self) -> float | None:
        """When `tick` has something to do; None: never."""
        if not self._flights:
            return None
        first = next(iter(self._flights.values()))
        overtaken_s = first.sent_s + REORDERED_ROUNDS * self._mean
        until = self._latest_s + self._patience_s
        return min(until, overtaken_s) if first.transmission < self._latest_transmission else until

    @property
    def _patience_s(self) -> float:
        if self._has_probed or not self._mean:
            return self._timeout_s
        return min(self._timeout_s, 2 * self._mean + (DELAYED_S if len(self._flights) == 1 else 0.0))

    def sendable(self, now: float) -> list[tuple[int, int]]:
        """Return numbers of segments that go now, each with the number of its transmission."""
        found = []
        while len(self._flights) < int(self.window):
            if self._lost:
                number = self._lost.pop(0)
                self.repeats += 1
            elif self._next < self.added:
                number, self._next = self._next, self._next + 1
            else:
                break
            found.append((number, self._send(number, now)))
        self._is_full = len(self._flights) >= int(self.window)
        return found

    def answered(self, first: int, ranges: Sequence[tuple[int, int]], transmission: int, now: float) -> None:
        """Take an acknowledgement: the first number that the receiver lacks, ranges that it has, what came last."""
        came = [number for number in range(self._first, first) if number in self._flights]
        came += [number for begin, end in ranges for number in range(begin, end) if number in self._flights]
        advanced, self._first = max(0, first - self._first), max(self._first, first)
        self._lost = [number for number in self._lost if number >= first and not _within(number, ranges)]
        for number in came:
            flight = self._flights.pop(number)
            if flight.transmission == transmission:
                self._measured(now - flight.sent_s)
            self._latest_transmission = max(self._latest_transmission, min(flight.transmission, transmission))
        if came:
            self._latest_s, self._has_probed = now, False
        self._find_lost(now)
        if advanced and self._first >= self._recovers_until and self._is_full:
            self._grow(advanced, now)

    def tick(self, now: float) -> list[tuple[int, int]]:
        """Return the probe that goes, if its time has come; after a time-out everything is lost."""
        if self.until is None or now < self.until:
            return []
        if now < self._latest_s + self._patience_s:
            self._find_lost(now + _SOON_S)
            return []
        if not self._has_probed and self._patience_s < self._timeout_s:
            self._has_probed = True
            self.repeats += 1
            number = next(reversed(self._flights))
            return [(number, self._send(number, now))]
        self.timeouts += 1
        self.threshold = max(LEAST_WINDOW, len(self._flights) / 2)
        self.growth.lost(self.window)
        self.window, self._recovers_until = 1.0, self._next
        self._lost = sorted([*self._lost, *self._flights])
        self._flights.clear()
        self._timeout_s = min(MOST_TIMEOUT_S, 2 * self._timeout_s)
        self._latest_s, self._has_probed = now, True
        return []

    def _send(self, number: int, now: float) -> int:
        self._transmissions += 1
        self._flights[number] = Flight(self._transmissions, now)
        self._flights.move_to_end(number)
        self._latest_s = now
        return self._transmissions

    def _find_lost(self, now: float) -> None:
        """Find the segments that later ones have overtaken."""
        lost = []
        for number, flight in self._flights.items():
            later, waited_s = self._latest_transmission - flight.transmission, now - flight.sent_s
            if later < REORDERED and (later < 1 or waited_s < REORDERED_ROUNDS * self._mean):
                break
            lost.append(number)
        for number in lost:
            del self._flights[number]
        if lost:
            self._lost = sorted([*self._lost, *lost])
            if max(lost) >= self._recovers_until:  # the first loss of a round trip
                self._recovers_until = self._next
                self.window = self.threshold = max(LEAST_WINDOW, self.growth.lost(self.window))

    def _grow(self, delivered: int, now: float) -> None:
        if self.window < self.threshold:
            self.window += delivered
        else:
            self.window = self.growth.grown(self.window, delivered, now, self._mean)
        self.window = min(self.window, MOST_WINDOW)

    def _measured(self, seconds: float) -> None:
        if self._mean:
            self._deviation += 0.25 * (abs(seconds - self._mean) - self._deviation)
            self._mean += 0.125 * (seconds - self._mean)
        else:
            self._mean, self._deviation = seconds, seconds / 2
        self._timeout_s = max(LEAST_TIMEOUT_S, self._mean + 4 * self._deviation)


class Receiver:
    """The side of a connection that receives: puts segments into their order."""

    def __init__(self) -> None:
        self.first = 0
        """The first number that has not come."""
        self._early: dict[int, bytes] = {}
        self._latest: list[int] = []

    def take(self, number: int, payload: bytes) -> list[bytes]:
        """Take a segment; return those that are in order now."""
        if number >= self.first and number not in self._early:
            self._early[number] = payload
            self._latest = [number, *self._latest[:7]]
        ready = []
        while self.first in self._early:
            ready.append(self._early.pop(self.first))
            self.first += 1
        return ready

    def ranges(self) -> list[tuple[int, int]]:
        """Return ranges of numbers that have come behind the first one that has not, the latest first."""
        found: list[tuple[int, int]] = []
        for number in self._latest:
            if number < self.first or _within(number, found):
                continue
            begin = end = number
            while begin - 1 in self._early:
                begin -= 1
            while end in self._early:
                end += 1
            found.append((begin, end))
            if len(found) == RANGES:
                break
        return found


def _within(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(begin <= number < end for begin, end in ranges)
