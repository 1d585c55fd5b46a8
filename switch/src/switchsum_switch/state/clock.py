"""The switch's time: microseconds since the switch started, by the machine's clock or as a test sets them.

Everything in the switch that depends on time asks one `Clock`: timestamps of standard metadata, meters, idle time-outs,
and queues.  The loop of `loop.py` is a kernel and cannot call Python, so that the clock is two words of memory.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner

ClockWords = npt.NDArray[np.int64]
"""Two words: whether the clock stands (1) or runs (0), and the time at which it stands.  For a clock that runs the
second word is what is added to the machine's monotonic clock.  Both are in microseconds."""

MOST_S: Final = 1e12
"""Latest time of a clock in seconds: its words hold some more microseconds."""
_STANDS: Final = 0
_MICROSECONDS: Final = 1


class Clock:
    """Counts microseconds from 0; it runs with the machine's clock until a test stops it.

    Example:
        >>> clock = Clock()
        >>> clock.stop(at_s=0)
        >>> clock.advance(1.5)
        >>> clock.now_us()
        1500000

    """

    def __init__(self) -> None:
        self._epoch_ns = time.time_ns()
        self.words: ClockWords = np.array([0, -_machine_us()], np.int64)
        """The clock as kernels read it (`clock_us`)."""

    def now_us(self) -> int:
        """Return the time in microseconds."""
        stands, microseconds = self.words.tolist()
        return int(microseconds) if stands else _machine_us() + int(microseconds)

    def epoch_ns(self) -> int:
        """Return the time in nanoseconds since 1970, for captures: that of the start, and what has passed."""
        return self._epoch_ns + 1000 * self.now_us()

    def stop(self, at_s: float | None = None) -> None:
        """Stop the clock; from then on only `advance` moves it.

        Args:
            at_s: Time in seconds at which it stands; None: now.

        Raises:
            ValueError: `at_s` is no number, or further from 0 than the clock counts.

        """
        if at_s is not None and not -MOST_S <= at_s <= MOST_S:
            raise ValueError(f"a clock stands at a time of up to {MOST_S:g} s, not at {at_s} s")
        now_us = self.now_us() if at_s is None else round(at_s * 1e6)
        self.words[_MICROSECONDS] = now_us
        self.words[_STANDS] = 1

    def advance(self, seconds: float) -> None:
        """Move a clock that stands.

        Args:
            seconds: How much time passes; 0 or more.

        Raises:
            ValueError: The clock runs by itself, or `seconds` is negative, no number, or more than the clock counts.

        """
        if not self.words[_STANDS]:
            raise ValueError("the clock runs by itself: stop() it first")
        if seconds < 0:
            raise ValueError(f"time does not run back: {seconds} s")
        if not seconds <= MOST_S:  # NaN, too
            raise ValueError(f"time advances by 0 to {MOST_S:g} s, not by {seconds} s")
        if self.now_us() + seconds * 1e6 > MOST_S * 1e6:
            raise ValueError(f"the clock counts to {MOST_S:g} s, not to {self.now_us() / 1e6 + seconds:g} s")
        self.words[_MICROSECONDS] += round(seconds * 1e6)

    def run(self) -> None:
        """Let a clock that stands run on from its time."""
        self.words[_MICROSECONDS] = self.now_us() - _machine_us()
        self.words[_STANDS] = 0


@inner
def clock_us(words: ClockWords, machine_s: float) -> int:
    """Return the time of a clock, given that of the machine's monotonic clock in seconds."""
    return int(words[1]) if words[0] != 0 else int(machine_s * 1e6) + int(words[1])


def _machine_us() -> int:
    return time.monotonic_ns() // 1000
