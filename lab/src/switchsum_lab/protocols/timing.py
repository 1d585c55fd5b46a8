"""Time-outs of protocols: the product's timer, by RFC 6298 with Karn's rule and back-off, so that all have the same."""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from switchsum_host.engine.policies import timer
from switchsum_host.engine.policies.timer import Timer
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.kernels.records import Table, dtype_of

_FIRST_S: Final = 0.01
"""Before the first round trip was measured."""
_MOST_S: Final = 1.0
_WINDOWS: Final = 2
"""Answers to repeats in a row, in windows, after which the time-out is taken for shorter than a round trip."""
_WAY: Final = 0
"""There is one way to each host, and no longer one."""
_TIMER: Final = dtype_of(Timer)


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
        self._least_rounds, self._in_flight = least_rounds, in_flight
        self._clock = cast("Table[Timer]", np.zeros(1, _TIMER))
        self._clock["timeout_s"] = self._clock["initial_s"] = max(_FIRST_S, least_s)
        self._clock["timeout_min_s"], self._clock["timeout_max_s"] = least_s, _MOST_S
        self.timeout_s = float(self._clock["timeout_s"][0])
        """How long an answer may take before the frame is sent again."""
        self._in_a_row = 0
        """Answers to repeats since the last round trip was measured."""

    def measured(self, seconds: float) -> None:
        """Note the round trip of a frame that was sent once."""
        self.timeout_s = _measured(self._clock, seconds, self._least_rounds)
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
            self._in_a_row = 0
            self._clock["timeout_s"] = np.minimum(_MOST_S, 2 * self._clock["timeout_s"])
        self._clock["backoffs"] = 0
        self.timeout_s = float(self._clock["timeout_s"][0])

    def late(self) -> None:
        """Note that an answer has not come: the next one may take twice as long."""
        self.timeout_s = _late(self._clock)


@kernel
def _measured(clock: Table[Timer], seconds: float, least_rounds: float) -> float:
    """Learn a round trip, and end the back-off; return the time-out.

    A worker's time-out is bounded by its shortest rounds, too.  Here it is RFC 6298's alone: no slot tells which rounds
    waited for somebody.
    """
    one = clock[0]
    timer.smooth(one, _WAY, seconds)
    timer.set_timeout(one, np.inf)
    one.timeout_s = min(one.timeout_max_s, max(one.timeout_s, least_rounds * one.smoothed_s[_WAY]))
    one.backoffs = 0
    return one.timeout_s


@kernel
def _late(clock: Table[Timer]) -> float:
    """Double the pause; return it."""
    clock[0].backoffs += 1
    return timer.backed_off_s(clock[0])  # type: ignore[no-any-return]
