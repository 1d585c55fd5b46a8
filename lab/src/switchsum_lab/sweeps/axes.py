"""The axes of a sweep, and a cell: one value of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from switchsum_lab.simulation import conditions
from switchsum_lab.sweeps import arrivals, lateness
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS

Value = int | float | str | bool | None

VIRTUAL: Final = "virtual"
OURS: Final = "switchsum"
NONE: Final = "none"
HALVES: Final = ("reduce_scatter", "allgather")
"""Collectives that are half of an allreduce."""
ALL_TO_ALL: Final = "all_to_all"
"""The collective in which each rank has a part for each other one, and nothing is added."""
_MOST_LANES: Final = 4096


class Impossible(UsageError):
    """A cell cannot be run; `axis` names the axis whose line of the file is at fault."""

    def __init__(self, axis: str, reason: str) -> None:
        """Note the axis beside the reason."""
        super().__init__(reason)
        self.axis = axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value of each axis."""

    links: str = VIRTUAL
    """`virtual`: simulated links; `shm`, `udp` and `veth`: those of `switchsum run`."""
    protocol: str = OURS
    """System that adds: `switchsum` or a rival."""
    workers: int = 4
    bytes: int = 1_000_000
    """Bytes of each worker's array of float32."""
    collective: str = "allreduce"
    """`allreduce`; `reduce_scatter` and `allgather`: half of it; `all_to_all`: a part for each worker, nothing added;
    `topk`: each worker sends values that are not zero, by `allreduce_topk`; `int10`, `thc` and `thc:4`: the compressors
    `Packed`, `Thc` and `Thc(bits=4)`.
    """
    values: str = "whole"
    """What values that are not zero are: small `whole` numbers, or draws from a `normal` distribution."""
    density: float = 1.0
    """Share of each worker's blocks that are not zero."""
    overlap: str = "random"
    """Which blocks of two workers are the same: `random`, `all`, or `none` (as few as possible)."""
    block: int | None = None
    """Values in a block; None: as many as a frame has lanes, or 1 for `topk`."""
    fusion: bool = False
    """Several blocks share a frame: `allreduce(block=)`."""
    lanes: str = ""
    """Lanes of a frame and their format, as in `2048,int8`; empty: as many as the MTU allows, int32."""
    rate_mbit: float | None = None
    """Rate of each link and direction, in Mbit/s. None: 10 Gbit/s on virtual links, no limit on others."""
    uplink_mbit: float | None = None
    """Rate at which workers send, in Mbit/s, where it is another one; None: that of the links."""
    delay_us: float | None = None
    """Delay of each cable, in microseconds. None: 1 us."""
    queue: str | None = None
    """Length of each port's queue, as in `64KiB` or `64f`; None: no limit."""
    mark: str | None = None
    """Ports mark frames that find more than this in the queue. None: none does."""
    overhead: int | None = None
    """Bytes that the cable adds to each frame. None: 24, as on Ethernet."""
    fail: str | None = None
    """Switches and links that fail, and when, as in `s1@3.2ms`."""
    late_ranks: str | None = None
    """How late ranks begin: a distribution and its time, as in `exponential:100us`. None: all begin together."""
    loss: float = 0.0
    """Probability that a frame is lost: on each virtual link, or in each direction of a real switch."""
    host_queue: str | None = None
    """Length of each host's own queue. None: hosts wait for their link."""
    bucket: str | None = None
    """Bytes that a link's token bucket lets pass at once. None: there is none."""
    late: float = 0.0
    """Probability that a frame is late on a link."""
    late_by_us: float | None = None
    """Most by which it is late, in microseconds. None: 1 ms."""
    twice: float = 0.0
    """Probability that a frame arrives twice over a link."""
    batch_us: float | None = None
    """How long hosts wait for more frames behind the first one, in microseconds. None: not at all."""
    outage: str | None = None
    """Links that are down for a time, as in `s1->h1@3ms+50ms`."""
    pause: str | None = None
    """Hosts and switches that stand still for a time, as in `h1@3ms+50ms`."""
    background: int | None = None
    """Streams as TCP has them between hosts of the topology that belong to no job. None: jobs may take all hosts."""
    mtu: int | None = None
    """MTU of the links. None: 1,500, or more if `lanes` needs it."""
    topology: str | None = None
    """A shape or a YAML file; None: one switch."""
    arrivals: str | None = None
    """When each job begins: a file with a time in each line, or `poisson:200us`. None: all at once."""
    jobs: int = 1
    """Number of jobs, of `workers` each, that add at the same time."""
    slots: int | None = None
    """Slots of a job; None: as many as `switchsum run` takes, or as another protocol needs for a round trip."""
    shared_slots: int | None = None
    """Slots of the switch that all jobs share. None: each job has slots of its own."""
    aggregator_mbit: float | None = None
    """Rate of the link to the aggregator, which adds what finds its shared slot taken. None: that of all links."""
    servers: int | None = None
    """Hosts that serve the workers of another protocol; None: as many as the protocol says."""
    frame_cost: str | None = None
    """Time that a host's processor needs for each frame, or `measured`; None: nothing."""
    switch: str = "embedded"
    """Switch of real links: `embedded`, `bmv2`, or the path of a BMv2."""
    recording: str | None = None
    """Replay the calls of a recording in place of one array of `bytes`."""
    step: int = 0
    """Number of the recording's step that is replayed."""
    calls: int = 1
    """Calls in a row whose time is taken together; figures are of one of them, repeats of all."""
    seed: int = 0
    """Seed of all random events. Each repetition has the next one."""

    @property
    def is_virtual(self) -> bool:
        """Whether its time is simulated."""
        return self.links == VIRTUAL

    @property
    def record(self) -> dict[str, Any]:
        """Return the values by axis, in the order of columns."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """How the values of an axis are read."""

    field: str
    """Field of a `Cell`; also the name of its column."""
    read: Callable[[str], Value]
    """Raises UsageError or ValueError for what is no value."""


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            value = least - 1
        if value < least:
            raise UsageError(f"a whole number from {least} on, not {text!r}")
        return value

    return read


def _or_none(read: Callable[[str], Value]) -> Callable[[str], Value]:
    """Read `none` as the default of an axis that has no value, so that it can stand beside others."""
    return lambda text: None if text == NONE else read(text)


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            raise UsageError(f"one of {', '.join(names)}, not {text!r}")
        return text

    return read


def _share(most: float, *, is_below: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            value = -1.0
        if not 0 <= value <= most or (is_below and value == most):
            raise UsageError(f"a share such as 0.01 or 1%, not {text!r}")
        return value

    return read


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no"):
        raise UsageError(f"true or false, not {text!r}")
    return text.lower() in ("true", "yes")


def _lanes(text: str) -> str:
    parts = text.split(",")
    formats = [part for part in parts if part in FLOAT_FORMATS]
    counts = [part for part in parts if part.isdecimal() and 1 <= int(part) <= _MOST_LANES]
    if len(parts) != len(formats) + len(counts) or len(formats) > 1 or len(counts) > 1:
        raise UsageError(f"128, 256, 2048, {', '.join(FLOAT_FORMATS)}, or both as in 2048,int8, not {text!r}")
    return ",".join(sorted(parts, key=lambda part: part in FLOAT_FORMATS))


def _rate(text: str) -> float:
    return conditions.parse_rate(text) / 1e6


def _delay(text: str) -> float:
    return round(conditions.parse_time(text) * 1e6, 6)


def _queue(text: str) -> str:
    conditions.parse_queue(text)
    return text


def _size(text: str) -> str:
    conditions.parse_size(text)
    return text


def _spans(text: str) -> str:
    conditions.parse_spans(text)
    return text


def _failures(text: str) -> str:
    conditions.parse_failures(text)
    return text


def _arrivals(text: str) -> str:
    arrivals.check(text)
    return text


def _late_ranks(text: str) -> str:
    lateness.parse(text)
    return text


def _frame_cost(text: str) -> str:
    conditions.parse_cost(text)
    return text


def _text(text: str) -> str:
    if not text:
        raise UsageError("a text, not an empty one")
    return text


AXES: Final = {
    "links": Axis(field="links", read=_one_of(VIRTUAL, "shm", "udp", "veth")),
    "protocol": Axis(field="protocol", read=_text),
    "workers": Axis(field="workers", read=_whole(2)),
    "bytes": Axis(field="bytes", read=conditions.parse_size),
    "collective": Axis(
        field="collective", read=_one_of("allreduce", "topk", "int10", "thc", "thc:4", *HALVES, ALL_TO_ALL)
    ),
    "values": Axis(field="values", read=_one_of("whole", "normal")),
    "density": Axis(field="density", read=_share(1.0)),
    "overlap": Axis(field="overlap", read=_one_of("random", "all", "none")),
    "block": Axis(field="block", read=_whole(1)),
    "fusion": Axis(field="fusion", read=_truth),
    "lanes": Axis(field="lanes", read=_lanes),
    "rate": Axis(field="rate_mbit", read=_rate),
    "uplink": Axis(field="uplink_mbit", read=_rate),
    "delay": Axis(field="delay_us", read=_delay),
    "queue": Axis(field="queue", read=_or_none(_queue)),
    "mark": Axis(field="mark", read=_or_none(_size)),
    "overhead": Axis(field="overhead", read=_whole(0)),
    "fail": Axis(field="fail", read=_or_none(_failures)),
    "late_ranks": Axis(field="late_ranks", read=_or_none(_late_ranks)),
    "loss": Axis(field="loss", read=_share(1.0, is_below=True)),
    "host_queue": Axis(field="host_queue", read=_or_none(_queue)),
    "bucket": Axis(field="bucket", read=_or_none(_size)),
    "late": Axis(field="late", read=_share(1.0, is_below=True)),
    "late_by": Axis(field="late_by_us", read=_delay),
    "twice": Axis(field="twice", read=_share(1.0, is_below=True)),
    "batch": Axis(field="batch_us", read=_delay),
    "outage": Axis(field="outage", read=_or_none(_spans)),
    "pause": Axis(field="pause", read=_or_none(_spans)),
    "background": Axis(field="background", read=_or_none(_whole(0))),
    "mtu": Axis(field="mtu", read=_whole(576)),
    "topology": Axis(field="topology", read=_text),
    "arrivals": Axis(field="arrivals", read=_or_none(_arrivals)),
    "jobs": Axis(field="jobs", read=_whole(1)),
    "slots": Axis(field="slots", read=_whole(1)),
    "shared_slots": Axis(field="shared_slots", read=_or_none(_whole(1))),
    "aggregator": Axis(field="aggregator_mbit", read=_rate),
    "servers": Axis(field="servers", read=_whole(1)),
    "frame_cost": Axis(field="frame_cost", read=_frame_cost),
    "switch": Axis(field="switch", read=_text),
    "recording": Axis(field="recording", read=_text),
    "step": Axis(field="step", read=_whole(0)),
    "calls": Axis(field="calls", read=_whole(1)),
    "seed": Axis(field="seed", read=_whole(0)),
}
"""Axes by the name that a sweep file and the options of `plot` use."""
COLUMNS: Final = tuple(one.name for one in fields(Cell))
FIELDS: Final = {axis.field: name for name, axis in AXES.items()}
"""The name of the axis of each field."""


def written(field: str, value: Value) -> str:
    """Write a value as a person reads it."""
    if value is None or value == "":
        return "-"
    if field == "bytes" and isinstance(value, int):
        for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
            if value >= size and value % (size // 10) == 0:
                return f"{value / size:g} {unit}"
        return f"{value} B"
    if field in ("density", "loss", "late", "twice") and isinstance(value, float):
        return f"{100 * value:g} %"
    if field in ("rate_mbit", "uplink_mbit", "aggregator_mbit") and isinstance(value, float):
        return f"{value / 1000:g} Gbit/s" if value >= 1000 else f"{value:g} Mbit/s"
    if field in ("delay_us", "late_by_us", "batch_us"):
        return f"{value:g} us"
    return f"{value}"
