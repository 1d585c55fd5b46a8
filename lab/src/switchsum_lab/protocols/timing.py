"""Time-outs by round trips (RFC 6298), as our own workers estimate them: every protocol here may have the same."""

from __future__ import annotations

from typing import Final

_FIRST_S: Final = 0.01
"""Before the first round trip was measured."""
_MOST_S: Final = 1.0


class RoundTrips:
    """The time-out of a host, from the round trips of frames that were sent once (Karn's rule)."""

    def __init__(self, least_s: float, least_rounds: float = 1.0) -> None:
        """Begin; `least_s` is `World.least_timeout_s`, and `least_rounds` the least in mean round trips.

        Where answers wait in queues of hosts, two round trips or more keep late answers from being taken for lost ones:
        repeats would let the queues grow further.
        """
        self._least_s, self._least_rounds = least_s, least_rounds
        self.timeout_s = self._base_s = max(_FIRST_S, least_s)
        """How long an answer may take before the frame is sent again."""
        self._mean = self._deviation = 0.0
        self._known = False

    def measured(self, seconds: float) -> None:
        """Note the round trip of a frame that was sent once."""
        if self._known:
            self._deviation += 0.25 * (abs(seconds - self._mean) - self._deviation)
            self._mean += 0.125 * (seconds - self._mean)
        else:
            self._mean, self._deviation, self._known = seconds, seconds / 2, True
        self.timeout_s = self._base_s = min(
            _MOST_S, max(self._least_s, self._least_rounds * self._mean, self._mean + 4 * self._deviation)
        )

    def answered(self, seconds: float, *, was_repeated: bool) -> None:
        """Note a round trip; that of a repeat only ends the doubling, or each further loss would let the time-out grow.

        The papers' own time-outs are constant.
        """
        if was_repeated:
            self.timeout_s = self._base_s
        else:
            self.measured(seconds)

    def late(self) -> None:
        """Note that an answer has not come: the next one may take twice as long."""
        self.timeout_s = min(_MOST_S, 2 * self.timeout_s)
