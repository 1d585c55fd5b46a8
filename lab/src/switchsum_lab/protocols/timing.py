"""Time-outs by round trips, with Karn's rule and back-off (RFC 6298): every protocol here may have the same."""

from __future__ import annotations

from typing import Final

_FIRST_S: Final = 0.01
"""Before the first round trip was measured."""
_MOST_S: Final = 1.0
_WINDOWS: Final = 2
"""Answers to repeats in a row, in windows, after which the time-out is taken for shorter than a round trip."""


class RoundTrips:
    """The time-out of a host, from the round trips of frames that were sent once (Karn's rule)."""

    def __init__(self, least_s: float, least_rounds: float = 1.0, *, in_flight: int = 64) -> None:
        """Begin.

        Args:
            least_s: `World.least_timeout_s`.
            least_rounds: Shortest time-out, in mean round trips.  Where answers wait in queues of hosts, two or more
                keep late answers from being taken for lost ones: repeats would let the queues grow further.
            in_flight: Most frames that wait for an answer.

        """
        self._least_s, self._least_rounds, self._in_flight = least_s, least_rounds, in_flight
        self.timeout_s = self._base_s = max(_FIRST_S, least_s)
        """How long an answer may take before the frame is sent again."""
        self._mean = self._deviation = 0.0
        self._in_a_row = 0
        """Answers to repeats since the last round trip was measured."""
        self._known = False

    def measured(self, seconds: float) -> None:
        """Note the round trip of a frame that was sent once."""
        if self._known:
            self._deviation += 0.25 * (abs(seconds - self._mean) - self._deviation)
            self._mean += 0.125 * (seconds - self._mean)
        else:
            self._mean, self._deviation, self._known = seconds, seconds / 2, True
        wanted_s = max(self._least_s, self._least_rounds * self._mean, self._mean + 4 * self._deviation)
        self.timeout_s = self._base_s = min(_MOST_S, wanted_s)
        self._in_a_row = 0

    def answered(self, seconds: float, *, was_repeated: bool) -> None:
        """Note an answer, `seconds` after its frame was sent last.

        One to a repeat is no round trip (Karn's rule): nobody knows which of the two was answered.  It ends the
        back-off of `late`.  RFC 6298 keeps that until a round trip is measured, which a link needs whose round trip is
        longer than the time-out.  But here workers wait for one another's losses, and would double it again and again.
        So the time-out itself doubles if two windows of answers in a row were to repeats.
        """
        if not was_repeated:
            self.measured(seconds)
            return
        self._in_a_row += 1
        if self._in_a_row == _WINDOWS * self._in_flight:
            self._in_a_row, self._base_s = 0, min(_MOST_S, 2 * self._base_s)
        self.timeout_s = self._base_s

    def late(self) -> None:
        """Note that an answer has not come: the next one may take twice as long."""
        self.timeout_s = min(_MOST_S, 2 * self.timeout_s)
