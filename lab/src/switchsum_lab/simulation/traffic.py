"""A host of native code that sends the same frame again and again, evenly or at random, and counts what comes.

Millions of frames pass without Python: hosts that Python writes and reads for (`network.Host`) keep each frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from switchsum_protocol.errors import UsageError
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.intrinsics import carray, pointer
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.kernels.memory import bytes_at, words_at
from switchsum_switch.kernels.mixing import drawn_at
from switchsum_switch.kernels.outlined import Outlined
from switchsum_switch.kernels.records import Float64, Int64, Record, dtype_of

_ECN_AT: Final = 15
_MARKED: Final = 3
_ONE: Final = 1.0 / (1 << 32)


class TrafficRecord(Record):
    """One host."""

    gap_s: Float64
    """Seconds from one frame to the next, on average."""
    is_random: Int64
    """1: the gaps are drawn (Poisson's arrivals); 0: all are equal."""
    seed: Int64
    left: Int64
    """Frames that are still to be sent."""
    drawn: Int64
    next_s: Float64
    """When the next frame is sent."""
    frames: Int64
    bytes: Int64
    marked: Int64
    """Frames, bytes and marked frames that have come. A marked frame is an IPv4 frame with the mark of congestion."""
    first_s: Float64
    last_s: Float64
    """When the first frame came, and when the last one came."""
    row: Int64
    length: Int64
    """Length of its only frame."""
    queued: Int64
    consumed: Int64
    blocked: Int64
    finished: Int64
    failure: Int64


TRAFFIC: Final = dtype_of(TrafficRecord)


class Traffic:
    """A source of frames, and a sink.

    Example:
        >>> source = Traffic(bytes(125), gap_s=2e-6, frames=1_000_000, is_random=True, seed=7)
        >>> sink = Traffic()
        >>> network.traffic("h1", source)  # doctest: +SKIP
        >>> network.traffic("h2", sink)  # doctest: +SKIP

    """

    most_frames = 1

    def __init__(
        self,
        frame: bytes = b"",
        *,
        gap_s: float = 0.0,
        frames: int = 0,
        is_random: bool = False,
        seed: int = 0,
        start_s: float = 0.0,
    ) -> None:
        """Send `frames` frames from `start_s` on, with gaps of `gap_s` on average; without a frame only count.

        Raises UsageError for a gap that is not above 0.
        """
        if frames and not (frame and math.isfinite(gap_s) and gap_s > 0):
            raise UsageError(f"a source needs a frame, and gaps above 0 s, not {gap_s:g} s")
        self._frame = np.frombuffer(frame or b"\0", np.uint8)
        self._lengths = np.array([len(frame)], np.uint32)
        self._record = np.zeros(1, TRAFFIC)
        values = {"gap_s": gap_s, "is_random": is_random, "seed": seed & 0xFFFF_FFFF, "left": frames}
        values |= {"next_s": start_s, "length": len(frame), "first_s": math.inf}
        for name, value in values.items():
            self._record[name] = value

    def facts(self) -> Mapping[str, int]:
        """Return the fields of this host's `NodeRecord`."""
        own = address_of(self._record)
        fields: Any = TRAFFIC.fields
        found = {
            "own": own,
            "receive": _receive.address,
            "poll": _poll.address,
            "sent": _sent.address,
            "wake": _tell_wake_at.address,
            "queue_count": own + int(fields["queued"][1]),
            "queue_rows": own + int(fields["row"][1]),
            "queue_lengths": address_of(self._lengths),
            "store": int(self._frame.ctypes.data),
        }
        return found | {name: own + int(fields[name][1]) for name in ("consumed", "blocked", "finished", "failure")}

    @property
    def frames(self) -> int:
        """Frames that have come."""
        return int(self._record["frames"][0])

    @property
    def bytes(self) -> int:
        """Bytes of the frames that have come."""
        return int(self._record["bytes"][0])

    @property
    def marked(self) -> int:
        """How many of the frames that have come had the mark of congestion (ECN)."""
        return int(self._record["marked"][0])

    @property
    def rate_bps(self) -> float:
        """Rate at which frames came, in bits per second, from the first frame on."""
        lasted = float(self._record["last_s"][0] - self._record["first_s"][0])
        return 8 * self.bytes * (1 - 1 / self.frames) / lasted if self.frames > 1 else 0.0


@inner
def _traffic_at(own: int) -> TrafficRecord:
    return carray(pointer(own), (1,), TRAFFIC)[0]  # type: ignore[no-any-return]


@Outlined
def _receive(own: int, frames: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float) -> int:
    """Count one frame."""
    traffic = _traffic_at(own)
    length = words_at(lengths, 1)[0]
    traffic.frames += 1
    traffic.bytes += length
    traffic.first_s = min(traffic.first_s, now)
    traffic.last_s = now
    if length > _ECN_AT and bytes_at(frames, _ECN_AT + 1)[_ECN_AT] & _MARKED == _MARKED:
        traffic.marked += 1
    return 0


@Outlined
def _poll(own: int, now: float) -> int:
    """Send the next frame, if it is time."""
    traffic = _traffic_at(own)
    if traffic.left > 0 and traffic.next_s <= now:
        traffic.left -= 1
        traffic.queued = 1
        gap = traffic.gap_s
        if traffic.is_random == 1:
            gap *= -np.log1p(-_ONE * np.int64(drawn_at(np.uint32(traffic.seed), np.uint32(traffic.drawn))))
            traffic.drawn += 1
        traffic.next_s += gap
        if traffic.left == 0:
            traffic.finished = 1
    return 0


@Outlined
def _sent(own: int, count: int) -> int:
    """Note that the frame is on its link."""
    _traffic_at(own).queued = 0
    return 0


@Outlined
def _tell_wake_at(own: int, target: int) -> int:
    """Write to an address when the next frame is to be sent."""
    traffic = _traffic_at(own)
    carray(pointer(target), (1,), np.float64)[0] = traffic.next_s if traffic.left > 0 else np.inf
    return 0
