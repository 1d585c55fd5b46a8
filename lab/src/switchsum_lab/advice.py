"""Estimates what a step's communication takes on given machines, what bounds it, and what to change first.

Closed formulas, as in lab/docs/scale.md: bytes of the busiest link over its rate, all headers counted.  Delays and
processors are left out, so that each time is a least one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, FRAME_BYTES, payload_bytes
from switchsum_switch.wires.headers import ETHERNET_BYTES

_OVERHEAD: Final = 24
"""Bytes that each Ethernet frame takes in addition: preamble, checksum and gap."""
_TCP_BYTES: Final = 40
_SHARES: Final = {name: (one.value_bits / 32, one.bits / 32) for name, one in FLOAT_FORMATS.items()}
"""Bits of each value, as a share of 32, on its way to the switch and back."""
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

    def __post_init__(self) -> None:
        """Raise UsageError for what cannot be."""
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
class Way:
    """One way to add, and what it takes."""

    name: str
    seconds: float
    link_bytes: int
    """Bytes in the busiest direction of the busiest link, headers included."""
    bound: str
    """Name of the busiest link."""
    is_ring: bool = False
    """It is the ring of the hosts, which the others are compared with."""


def ways(question: Question) -> list[Way]:
    """Return the ways that the machines have, the fastest first."""
    machines, ranks, size = question.machines, question.ranks, question.size
    up, down = (share * size * question.density * _stretch(question) for share in _SHARES[question.lanes])
    total = machines * ranks
    tcp = (question.mtu + ETHERNET_BYTES + _OVERHEAD) / (question.mtu - _TCP_BYTES)
    ring = "gloo's ring, float32"
    found = [(ring, 2 * (total - 1) / total * size * tcp, "every machine's link")]
    others = machines - 1
    if machines == 1:
        return [Way(name="shared memory: one switch on the machine", seconds=0.0, link_bytes=0, bound="no link")]
    if question.has_switch:
        found.append(("the network's switch adds", ranks * max(up, down), "every machine's link"))
        if ranks > 1:
            found.append(("a switch on each machine, the network's above", max(up, down), "every machine's link"))
    within = "" if ranks == 1 else ", below it one on each machine"
    found.append(
        (f"a switch on one of the machines{within}", others * max(up, down), "the link of the machine with the switch")
    )
    each = others / machines * (up + down)
    found.append(
        (f"a switch on each machine, for a part of the values{within and ' of all'}", each, "every machine's link")
    )
    made = [
        Way(
            name=name,
            seconds=8 * carried / question.rate_bps,
            link_bytes=round(carried),
            bound=bound,
            is_ring=name == ring,
        )
        for name, carried, bound in found
    ]
    return sorted(made, key=lambda way: way.seconds)


def advice(question: Question) -> list[str]:
    """Return what to know first, then what would help, most first."""
    if question.machines == 1:
        return ["All ranks are on one machine: no link bounds them, and shared memory moves the values."]
    found = []
    best = ways(question)[0]
    ring = next(way for way in ways(question) if way.is_ring)
    if not question.has_switch and question.ranks == 1 and (question.lanes, question.density) == ("int32", 1.0):
        found.append(
            "Dense float32 gains nothing over a ring here: one rank a machine, and no programmable switch in the "
            "network."
        )
    elif best.seconds * _WORTH_IT < ring.seconds:
        found.append(f"{best.name}: {ring.seconds / best.seconds:.2f} times as fast as gloo's ring.")
    else:
        found.append("No way is faster than gloo's ring by 5 %.")
    return found + [text for _, text in sorted(_changes(question, best.seconds), reverse=True)]


def _changes(question: Question, now_s: float) -> list[tuple[float, str]]:
    """Return by what factor each change would help, and how it is called."""
    values = {name: getattr(question, name) for name in Question.__slots__}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"lanes": "int8"}, "send 8 bits a value (lanes int8 with error feedback)"),
        ({"lanes": "int16"}, "send 16 bits a value (lanes int16)"),
        ({"mtu": 9000}, "set jumbo frames (MTU 9000) on machines and switches"),
        ({"has_switch": True}, "get a programmable switch"),
        ({"rate_bps": 10 * question.rate_bps}, "get links of ten times the rate"),
    ]
    found = []
    for change, text in changes:
        if any(values[name] == value for name, value in change.items()):
            continue
        if change.get("lanes") == "int16" and question.lanes == "int8":
            continue
        factor = now_s / ways(Question(**(values | change)))[0].seconds
        if factor > _WORTH_IT:
            found.append((factor, f"{factor:.2f} times as fast: {text}"))
    return found


def _stretch(question: Question) -> float:
    """Return the bytes on a link for a byte of lanes."""
    lanes = 2048 if question.mtu >= FRAME_BYTES - ETHERNET_BYTES + payload_bytes(2048) else 256
    return (FRAME_BYTES + payload_bytes(lanes) + _OVERHEAD) / payload_bytes(lanes)
