"""What links and hosts are like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Final

from switchsum_protocol.errors import UsageError

from .records import PICOSECONDS

ETHERNET_OVERHEAD: Final = 24
"""Bytes of each frame that are on the cable alone: preamble 8, checksum 4, gap 12."""
AT_ONCE_BPS: Final = 1e14
"""Rate of what a token bucket lets pass, unless it has another one: the greatest that a link may have."""
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit(?:/s)?|bps)?", re.IGNORECASE)
_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ps|ns|us|ms|s)?", re.IGNORECASE)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_THOUSANDS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_UNITS: Final = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CableConditions:
    """One direction of a cable, with the queue of the port that sends.

    Example:
        >>> CableConditions(rate_bps=parse_rate("10gbit"), queue_frames=64).rate_bps
        10000000000.0

    """

    rate_bps: float = 1e9
    """Bits a second."""
    delay_s: float = 1e-6
    """Delay of the cable after the last bit was sent, in seconds."""
    queue_bytes: int | None = None
    """Most bytes that wait or are being sent; a frame that would be more is dropped.  None: no limit."""
    queue_frames: int | None = None
    """Likewise, in frames."""
    mark_bytes: int | None = None
    """A frame that finds more bytes than these in the queue gets the ECN mark, if it is IPv4 and its sender
    understands marks.  None: none does."""
    overhead_bytes: int = ETHERNET_OVERHEAD
    """Bytes that each frame takes in addition to its own."""
    loss: float = 0.0
    """Probability that a frame is lost."""
    burst: tuple[float, float] | None = None
    """Bursts of losses (Gilbert's model): the probability that one begins with a frame, and its mean length in
    frames."""
    lost_frames: tuple[int, ...] = ()
    """Numbers of frames that are lost, counted from 0 as they enter the queue."""
    late: float = 0.0
    """Probability that a frame is late, so that others overtake it."""
    late_by_s: float = 0.0
    """Most by which it is."""
    twice: float = 0.0
    """Probability that a frame arrives twice, the second time up to `late_by_s` later."""
    outages: tuple[tuple[float, float], ...] = ()
    """Times (from, until) in seconds between which the link is down: what is on the cable then is lost."""
    bucket_bytes: int = 0
    """A token bucket, as Linux's tbf has: what the link may send ahead of its rate after a pause."""
    burst_rate_bps: float = 0.0
    """At what rate it then sends; needed with a bucket."""
    steps: tuple[tuple[float, float], ...] = ()
    """Changes of the rate: times in seconds, and how many times `rate_bps` it is from then on."""
    host_queue_bytes: int | None = None
    """As `queue_bytes`, for the link on which a host sends.  None: no limit, so that a host drops nothing itself."""
    host_queue_frames: int | None = None

    @property
    def loses_nothing(self) -> bool:
        """Whether every frame arrives, once and in order."""
        limits = self.queue_bytes, self.queue_frames, self.host_queue_bytes, self.host_queue_frames
        chance = self.loss, self.burst, self.late, self.twice
        return not (any(chance) or self.lost_frames or self.outages or any(limit is not None for limit in limits))

    def __post_init__(self) -> None:
        """Raise UsageError for what no link is."""
        _check("a rate", self.rate_bps, 1, 1e14, " bit/s")
        _check("a delay", self.delay_s, 0, 1e4, " s")
        _check("what a cable adds to each frame", self.overhead_bytes, 0, 1e6, " bytes")
        _check("how late a frame is", self.late_by_s, 0, 1e4, " s")
        for name in ("loss", "late", "twice"):
            _check(name, getattr(self, name), 0, 1, "")
        if self.bucket_bytes:
            _check("the rate of a burst", self.burst_rate_bps, self.rate_bps, 1e14, " bit/s")
        if self.burst is not None:
            _check("the probability of a burst", self.burst[0], 0, 1, "")
            _check("the mean length of a burst", self.burst[1], 1, 1e9, " frames")
        for name in ("queue_bytes", "queue_frames", "host_queue_bytes", "host_queue_frames"):
            if (limit := getattr(self, name)) is not None and limit < 1:
                raise UsageError(f"a queue of {limit} {name.rpartition('_')[2]} takes no frame: it needs at least 1")
        check_spans("an outage", self.outages)
        for at_s, factor in self.steps:
            _check("the time of a change of the rate", at_s, 0, 1e6, " s")
            _check("a rate after a change", self.rate_bps * factor, 1, 1e14, " bit/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """What frames cost a host's processor, received and sent alike; nothing by default."""

    frame_s: float = 0.0
    """Seconds for each frame."""
    byte_s: float = 0.0
    """Seconds for each byte."""

    def __post_init__(self) -> None:
        """Raise UsageError for what no host is."""
        for one in fields(self):
            _check(f"the cost of a {one.name.removesuffix('_s')}", getattr(self, one.name), 0, 1, " s")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTiming:
    """When a host takes frames, and what its clock says; by default it takes each at once, and its clock is right.

    Example:
        >>> HostTiming(jumps=((1.0, 5.0),)).jumps  # after a second the clock is 5 s ahead
        ((1.0, 5.0),)

    """

    batch_s: float = 0.0
    """A process that waits is woken so long after the first frame has come, and takes all that have come by then."""
    jumps: tuple[tuple[float, float], ...] = ()
    """Times in seconds at which the clock jumps, and how far."""

    def __post_init__(self) -> None:
        """Raise UsageError for what no host is."""
        _check("the time of a batch", self.batch_s, 0, 10, " s")
        for at_s, by_s in self.jumps:
            _check("the time of a clock's jump", at_s, 0, 1e6, " s")
            _check("a clock's jump", by_s, -1e6, 1e6, " s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTiming:
    """How long frames are in a switch beside the time in its queues; not at all by default.

    Example:
        >>> SwitchTiming(processing_s=400e-9)  # a pipeline, which takes frames at any rate  # doctest: +SKIP
        >>> SwitchTiming(cost=HostCost(frame_s=20e-6), waiting_frames=1024)  # one thread  # doctest: +SKIP

    """

    processing_s: float = 0.0
    """Seconds from a frame's arrival until its packets come to their queues, however many frames come."""
    cost: HostCost = field(default_factory=HostCost)
    """Cost of each frame on a single processor, which takes one after the other."""
    waiting_frames: int | None = None
    """Most frames that wait for this processor, the one that it works on among them.  None: no limit."""
    queue_frames: int | None = None
    """Length of each queue between ingress and egress, beside what its link allows.  None: no limit."""
    egress_s: float = 0.0
    """Seconds of egress for each packet. Each port has its own egress, and the next packet leaves that much later."""
    waits_behind: bool = False
    """All packets wait behind egress, which is faster.  A program that looks at its queues finds them empty."""

    def __post_init__(self) -> None:
        """Raise UsageError for what no switch is."""
        _check("a processing delay", self.processing_s, 0, 1, " s")
        _check("what a packet costs egress", self.egress_s, 0, 1, " s")
        for name in ("waiting_frames", "queue_frames"):
            if (most := getattr(self, name)) is not None and most < 1:
                raise UsageError(f"a switch takes no frame if {name} is {most}: it must be at least 1")
        if self.waits_behind and self.has_queues:
            raise UsageError("packets that wait behind egress have no queues before it: waits_behind=False")

    @property
    def has_queues(self) -> bool:
        """Whether packets of every program wait between ingress and egress."""
        return self.queue_frames is not None or self.egress_s > 0


def check_spans(what: str, spans: Iterable[tuple[float, float]]) -> None:
    """Raise UsageError if what lasts from a time until another one is no such thing."""
    for since, until in spans:
        if not 0 <= since < until:
            raise UsageError(f"{what} from {since:g} s until {until:g} s ends before it begins")


def _check(what: str, value: float, least: float, most: float, unit: str) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise UsageError(f"{what} must be {least:g} to {most:g}{unit}, not {value:g}")


def parse_rate(text: str) -> float:
    """Return the bits a second of a rate such as `10gbit`; raises UsageError."""
    found = _RATE.fullmatch(text.strip())
    rate = float(found[1]) * 1000.0 ** _THOUSANDS[found[2].lower()] if found else 0.0
    if not 1 <= rate <= 1e14:
        raise UsageError(f"a rate is written like 10gbit or 200mbit and above 0, not {text!r}")
    return rate


def instant(at_s: float) -> float:
    """Return a time as the network's clock shows it, which counts picoseconds: one in between never comes."""
    return float(round(at_s * PICOSECONDS)) / PICOSECONDS


def parse_time(text: str) -> float:
    """Return the seconds of a time such as `5us`; raises UsageError."""
    found = _TIME.fullmatch(text.strip())
    if not found:
        raise UsageError(f"a time is written like 5us or 1.5ms, not {text!r}")
    return instant(float(found[1]) * _UNITS[(found[2] or "s").lower()])


def parse_cost(text: str) -> HostCost:
    """Return what frames cost a host: a time such as `0.5us` for each, or `measured`; raises UsageError."""
    return WORKER if text == "measured" else HostCost(frame_s=parse_time(text))


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `100MB` or `64KiB`; raises UsageError."""
    found = _SIZE.fullmatch(text.strip())
    size = float(found[1]) * (1024 if found[3] else 1000) ** _THOUSANDS[found[2].lower()] if found else 0.0
    if not 1 <= size <= 1e15:
        raise UsageError(f"a size is written like 100MB or 64KiB and above 0, not {text!r}")
    return int(size)


def parse_queue(text: str | None) -> tuple[int | None, int | None]:
    """Return the most bytes and the most frames of a queue such as `64KiB` or `64f`; raises UsageError."""
    if text is None:
        return None, None
    if text.endswith("f") and text[:-1].isdigit():
        return None, int(text[:-1])
    return parse_size(text), None


def parse_failures(text: str | None) -> tuple[tuple[str, float], ...]:
    """Return what fails, and when, of a text such as `s1@3.2ms,s2->s3@1ms`; raises UsageError."""
    found = []
    for part in text.split(",") if text else ():
        name, _, when = part.strip().rpartition("@")
        if not name:
            raise UsageError(f"a failure is written like s1@3.2ms or s2->s3@1ms, not {part!r}")
        found.append((name, parse_time(when)))
    return tuple(found)


def parse_spans(text: str | None) -> tuple[tuple[str, float, float], ...]:
    """Return what stands still or is down, from when until when, of a text such as `h1@3ms+50ms,s1->h2@1s+2s`.

    Raises UsageError.
    """
    found = []
    for part in text.split(",") if text else ():
        name, _, when = part.strip().rpartition("@")
        since, plus, lasts = when.partition("+")
        if not (name and plus):
            raise UsageError(f"what is interrupted is written like h1@3ms+50ms or s1->h2@1s+2s, not {part!r}")
        since_s, lasts_s = parse_time(since), parse_time(lasts)
        check_spans("what is interrupted", [(since_s, since_s + lasts_s)])
        found.append((name, since_s, since_s + lasts_s))
    return tuple(found)


WORKER: Final = HostCost(byte_s=0.5e-9)
"""What frames cost a worker's processor on links of 1 Gbit/s (AF_PACKET), as measured on the machine of
docs/results/links.md.

For each GB of values it takes 1.03 s with 256 lanes and 1.07 s with 2,048, sent and received: what costs is bytes.
"""
BMV2: Final = SwitchTiming(cost=HostCost(frame_s=20e-6), waiting_frames=1024, queue_frames=64, egress_s=10e-6)
"""Queues as BMv2's simple_switch has them: one ingress thread with 1,024 frames before it, then queues of 64 packets.

What a frame costs depends on program and machine: with `dataclasses.replace` give `cost` and `egress_s` as measured.
"""
