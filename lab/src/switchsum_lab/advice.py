"""Estimates what a step's communication takes on given machines, what bounds it, and what to change first.

Closed formulas, as in lab/docs/scale.md: bytes of the busiest link over its rate, all headers counted.  Delays and
processors are left out, so that each time is a least one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, FRAME_BYTES, MOST_WORKERS, payload_bytes
from switchsum_switch.wires.headers import ETHERNET_BYTES

_OVERHEAD: Final = 24
"""Bytes that each Ethernet frame takes in addition: preamble, checksum and gap."""
_TCP_BYTES: Final = 40
_SHARES: Final = {name: (one.value_bits / 32, one.bits / 32) for name, one in FLOAT_FORMATS.items()}
"""Bits of each value, as a share of 32, on its way to the switch and back."""
_RING: Final = "gloo's ring"
_OWN: Final = "every machine's link"
_LEAF: Final = "the links of a leaf switch to the others"
_WORTH_IT: Final = 1.05
"""Least gain in speed that is worth an advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Machines, and what they have to add in each step."""

    machines: int
    ranks: int = 1
    """Ranks on each machine."""
    rate_bps: float
    """Rate of each machine's link, in bit/s."""
    mtu: int = 1500
    has_switch: bool = False
    """Whether the network has a programmable switch that adds at the links' rate."""
    size: int
    """Bytes of the gradients in float32."""
    lanes: str = "int32"
    """Lane format of the sums."""
    density: float = 1.0
    """Share of the blocks in which any rank has values. Switches add these alone; a ring sends all."""
    ring_bits: int = 32
    """Bits of a value on a ring: 32, or 16 for bfloat16."""
    rack: int | None = None
    """Machines at one leaf switch; None: all of them."""
    oversubscription: float = 1.0
    """How many times the links of a leaf's machines hold more than the leaf's links to the others."""

    def __post_init__(self) -> None:
        """Raise UsageError for what cannot be."""
        if self.ring_bits not in (16, 32):
            raise UsageError(f"a ring carries values of 32 or 16 bits (bfloat16), not {self.ring_bits}")
        if self.rack is not None and not 1 <= self.rack <= self.machines:
            raise UsageError(f"a leaf switch has 1 to {self.machines} of {self.machines} machines, not {self.rack}")
        if self.oversubscription < 1 or (self.oversubscription > 1 and self.rack is None):
            raise UsageError("over-subscription is 1 or more, and needs the number of machines at a leaf switch")
        if self.machines < 1 or self.ranks < 1 or self.machines * self.ranks < 2:
            raise UsageError("a job has at least two ranks, on one machine or more")
        if self.mtu < 1200:
            raise UsageError(f"an MTU of {self.mtu} is too small for frames of 256 lanes")
        if self.lanes not in _SHARES:
            raise UsageError(f"lanes must be {', '.join(_SHARES)}, not {self.lanes}")
        if self.size < 4:
            raise UsageError(f"gradients have at least 4 bytes, not {self.size}")
        if not 0 < self.density <= 1:
            raise UsageError(f"a density must be above 0 and at most 1, not {self.density:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a way puts on one kind of links."""

    link: str
    bytes: float
    """In the busier direction, headers included."""
    rate_bps: float
    counted: str
    """How the bytes were counted."""

    @property
    def seconds(self) -> float:
        """How long the link takes."""
        return 8 * self.bytes / self.rate_bps

    @property
    def arithmetic(self) -> str:
        """The whole sum, as text."""
        return f"{self.counted} = {self.bytes:,.0f} bytes on {self.link} of {self.rate_bps / 1e9:g} Gbit/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to add, and what it takes."""

    name: str
    seconds: float
    link_bytes: int
    """Bytes in the busiest direction of the busiest link, headers included."""
    bound: str
    """Name of the busiest link."""
    arithmetic: str = ""
    """How the time of that link was counted."""
    is_ring: bool = False
    """It is the ring of the hosts, which the others are compared with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A line of advice."""

    text: str
    arithmetic: tuple[str, ...] = field(default=())
    """The sums behind it, a line each."""


def ways(question: Question) -> list[Way]:
    """Return the ways that the machines have, the fastest first."""
    if question.machines == 1:
        return [Way(name="shared memory: one switch on the machine", seconds=0.0, link_bytes=0, bound="no link")]
    made = []
    for name, loads in _loads(question):
        worst = max(loads, key=lambda load: load.seconds)
        made.append(
            Way(
                name=name,
                seconds=worst.seconds,
                link_bytes=round(worst.bytes),
                bound=worst.link,
                arithmetic=worst.arithmetic,
                is_ring=name.startswith(_RING),
            )
        )
    return sorted(made, key=lambda way: way.seconds)


def _loads(question: Question) -> Iterator[tuple[str, list[Load]]]:
    """Yield the ways, each with what it puts on the machines' links and on those between leaf switches."""
    machines, ranks, rack = question.machines, question.ranks, question.rack or question.machines
    total, others, far = machines * ranks, machines - 1, machines - rack
    up, down = (share * question.size * question.density * _stretch(question) for share in _SHARES[question.lanes])
    most, size = max(up, down), question.size * question.ring_bits / 32
    headers = (question.mtu + ETHERNET_BYTES + _OVERHEAD) / (question.mtu - _TCP_BYTES)
    kind = "float32" if question.ring_bits == 32 else "bfloat16"
    tcp = f"x {size:,.0f} bytes x {headers:.4f} (headers)"
    sums = f"{most:,.0f} (an array with headers, in {question.lanes})"
    leaf_bps = rack * question.rate_bps / question.oversubscription

    def own(carried: float, counted: str, link: str = _OWN) -> Load:
        return Load(link=link, bytes=carried, rate_bps=question.rate_bps, counted=counted)

    def between(carried: float, counted: str) -> list[Load]:
        return [Load(link=_LEAF, bytes=carried, rate_bps=leaf_bps, counted=counted)] if far else []

    flat = 2 * (total - 1) / total * size * headers
    counted = f"2 x {total - 1}/{total} {tcp}"
    yield f"{_RING}, {kind}", [own(flat, counted), *between(flat, counted)]
    if ranks > 1:
        two_level = 2 * others / machines * size * headers
        counted = f"2 x {others}/{machines} {tcp}"
        yield (
            f"a two-level ring, {kind}: in each machine, then between them",
            [
                own(two_level, counted),
                *between(two_level, counted),
            ],
        )
    if question.has_switch:
        counted = f"{ranks} x {sums}"
        yield "the network's switch adds", [own(ranks * most, counted), *between(most, sums)]
        if ranks > 1:
            yield "a switch on each machine, the network's above", [own(most, sums), *between(most, sums)]
    within = "" if ranks == 1 else ", below it one on each machine"
    yield (
        f"a switch on one of the machines{within}",
        [
            own(others * most, f"{others} x {sums}", "the link of the machine with the switch"),
            *between(far * most, f"{far} x {sums}"),
        ],
    )
    both = f"{up + down:,.0f} (both ways of an array with headers, in {question.lanes})"
    yield (
        f"a switch on each machine, for a part of the values{within and ' of all'}",
        [
            own(others / machines * (up + down), f"{others}/{machines} x {both}"),
            *between(rack * far / machines * (up + down), f"{rack} x {far}/{machines} x {both}"),
        ],
    )


def advice(question: Question) -> list[Advice]:
    """Return what to know first, then what would help, most first."""
    if question.machines == 1:
        text = "All ranks are on one machine: no link bounds them, and shared memory moves the values."
        return [Advice(text=text)]
    found = []
    best, *_ = all_ways = ways(question)
    ring = next(way for way in all_ways if way.is_ring)
    sums = f"{best.name}: {best.arithmetic}", f"{ring.name}: {ring.arithmetic}"
    if not question.has_switch and question.ranks == 1 and (question.lanes, question.density) == ("int32", 1.0):
        why = "one rank a machine, and no programmable switch in the network."
        found.append(Advice(text=f"Dense float32 gains nothing over a ring here: {why}", arithmetic=sums[:1]))
    elif best.seconds * _WORTH_IT < ring.seconds:
        text = f"{best.name}: {ring.seconds / best.seconds:.2f} times as fast as gloo's ring."
        found.append(Advice(text=text, arithmetic=sums))
    else:
        found.append(Advice(text="No way is faster than gloo's ring by 5 %.", arithmetic=sums))
    if (total := question.machines * question.ranks) > MOST_WORKERS:
        text = f"A job of switchsum has {MOST_WORKERS:,} ranks at most: of these {total:,} it adds none."
        found.append(Advice(text=text, arithmetic=(f"{question.machines:,} x {question.ranks:,} = {total:,}",)))
    return found + [line for _, line in sorted(_changes(question, best), key=lambda item: -item[0])]


def _changes(question: Question, now: Way) -> Iterator[tuple[float, Advice]]:
    """Yield by what factor each change would help, and how it is called."""
    values = {name: getattr(question, name) for name in Question.__slots__}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"lanes": "int8"}, "send 8 bits a value (lanes int8 with error feedback)"),
        ({"lanes": "int16"}, "send 16 bits a value (lanes int16)"),
        ({"ring_bits": 16}, "send bfloat16 over the ring (DDP's bf16_compress_hook)"),
        ({"mtu": 9000}, "set jumbo frames (MTU 9000) on machines and switches"),
        ({"has_switch": True}, "get a programmable switch"),
        ({"oversubscription": 1.0}, "get links between the leaf switches that hold what their machines send"),
        ({"rate_bps": 10 * question.rate_bps}, "get links of ten times the rate"),
    ]
    for change, text in changes:
        if any(values[name] == value for name, value in change.items()):
            continue
        if change.get("lanes") == "int16" and question.lanes == "int8":
            continue
        then = ways(Question(**(values | change)))[0]
        factor = now.seconds / then.seconds
        if factor > _WORTH_IT:
            sums = f"now {now.name}: {now.arithmetic}", f"then {then.name}: {then.arithmetic}"
            yield factor, Advice(text=f"{factor:.2f} times as fast: {text}", arithmetic=sums)


def _stretch(question: Question) -> float:
    """Return the bytes on a link for a byte of lanes."""
    lanes = 2048 if question.mtu >= FRAME_BYTES - ETHERNET_BYTES + payload_bytes(2048) else 256
    return (FRAME_BYTES + payload_bytes(lanes) + _OVERHEAD) / payload_bytes(lanes)
