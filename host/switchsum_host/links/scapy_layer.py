"""The aggregation header and its lanes as Scapy layers, bound to the aggregation service's UDP port.

>>> from scapy.layers.inet import IP, UDP
>>> from switchsum_host.links.scapy_layer import Aggregation, Int32Lanes
>>> packet = IP() / UDP(sport=21334) / Aggregation(kind="contribution", flags="payload") / Int32Lanes(lanes=[1, -2])

Only the Scapy transport imports this module: Scapy is a large library, and looks at the machine when it loads.
"""

from __future__ import annotations

from types import new_class
from typing import Any, Final

from scapy.fields import (
    ByteEnumField,
    ByteField,
    Field,
    FlagsField,
    IntField,
    ShortField,
    XIntField,
    XLongField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

from switchsum_protocol.frame import (
    AGGREGATION_PORT,
    FIELDS,
    LANE_BUILDS,
    NO_BLOCK,
    WIDENED_FORMATS,
    Flag,
    HeaderField,
    Kind,
    LaneFormat,
    narrow_bytes,
)


class BlockField(IntField):
    """The number of a block, or `none`."""

    def i2repr(self, pkt: Packet | None, x: Any) -> str:
        """Write the value."""
        return "none" if x == NO_BLOCK else str(x)


_PLAIN: Final = {8: ByteField, 16: ShortField, 32: IntField}
_HEXADECIMAL: Final = {32: XIntField, 64: XLongField}


def scapy_field(row: HeaderField) -> Field[Any, Any]:
    """Return what Scapy calls a field of the header."""
    # A header that is not told its kind is a contribution.
    bits, default = row.wire.bits, Kind.CONTRIBUTION.value if row.default is None else row.default
    names = {member.value: str(member.name).lower() for member in row.values or ()}
    if row.values is Flag:
        return FlagsField(row.name, default, bits, list(names.values()))
    if row.values is not None:
        return ByteEnumField(row.name, default, names)
    if row.wire.none is not None:
        return BlockField(row.name, default)
    return (_HEXADECIMAL if row.wire.is_hexadecimal else _PLAIN)[bits](row.name, default)


class LanesField(Field[list[int], list[int]]):
    """All that is left of a packet, as signed numbers (Scapy's own lists stop at 100 entries)."""

    islist = 1

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name, [], f"!{code}")

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        """Read whole lanes; return the rest and the lanes."""
        whole = len(s) // self.sz * self.sz
        return s[whole:], [lane for (lane,) in self.struct.iter_unpack(s[:whole])]

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        """Write the lanes."""
        return s + b"".join(map(self.struct.pack, val))


class Int32Lanes(Packet):
    """A payload of 32-bit lanes."""

    name = "int32 lanes"
    fields_desc = [LanesField("lanes", "i")]  # noqa: RUF012  (Scapy's way)


class Int16Lanes(Packet):
    """A payload of 16-bit lanes."""

    name = "int16 lanes"
    fields_desc = [LanesField("lanes", "h")]  # noqa: RUF012


class Int8Lanes(Packet):
    """A payload of 8-bit lanes."""

    name = "int8 lanes"
    fields_desc = [LanesField("lanes", "b")]  # noqa: RUF012


class Int64Lanes(Packet):
    """A payload of 64-bit lanes."""

    name = "int64 lanes"
    fields_desc = [LanesField("lanes", "q")]  # noqa: RUF012


class HalvesField(Field[list[int], list[int]]):
    """Halves of lanes, in the lanes' order: the upper halves on the wire are those of the first half of the lanes."""

    __slots__ = ("bits",)
    islist = 1

    def __init__(self, name: str, lane_format: LaneFormat) -> None:
        super().__init__(name, [], {8: "!B", 16: "!H", 32: "!I", 64: "!Q"}[lane_format.bits])
        self.bits = lane_format.value_bits

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        """Read whole pairs; return the rest and the numbers."""
        whole, sign, mask = len(s) // self.sz * self.sz, 1 << (self.bits - 1), (1 << self.bits) - 1
        pairs = [pair for (pair,) in self.struct.iter_unpack(s[:whole])]
        halves = [*(pair >> self.bits for pair in pairs), *(pair & mask for pair in pairs)]
        return s[whole:], [(half ^ sign) - sign for half in halves]

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        """Write the numbers, of which there is an even number."""
        half, mask = len(val) // 2, (1 << self.bits) - 1
        pairs = zip(val[:half], val[half:], strict=True)
        return s + b"".join(self.struct.pack((upper & mask) << self.bits | lower & mask) for upper, lower in pairs)


def _halves(lane_format: LaneFormat) -> type[Packet]:
    """Return the layer of a payload that has half of each lane."""
    facts = {
        "name": f"int{lane_format.value_bits} lanes to be widened",
        "fields_desc": [HalvesField("lanes", lane_format)],
    }
    return new_class(f"Int{lane_format.value_bits}Halves", (Packet,), {}, lambda body: body.update(facts))


_BY_BITS: Final[dict[int, type[Packet]]] = {8: Int8Lanes, 16: Int16Lanes, 32: Int32Lanes, 64: Int64Lanes}
LANES = {one: _BY_BITS[one.bits] for one in LaneFormat}
"""The layer of each lane format's payload."""
NARROW: dict[int, type[Packet]] = {one: _halves(one) for one in WIDENED_FORMATS}
"""The layer of a payload that the switch widens."""


class Aggregation(Packet):
    """The aggregation header; `switchsum_protocol.frame.Header` documents the fields."""

    name = "switchsum"
    fields_desc = [scapy_field(row) for row in FIELDS.values()]  # noqa: RUF012

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return the layer of the lanes; what follows a header without payload is padding."""
        if int(self.flags) & Flag.PAYLOAD and self.format in LANES:
            return NARROW[self.format] if self._is_narrow(len(payload)) else LANES[self.format]
        return super().guess_payload_class(payload)

    def _is_narrow(self, length: int) -> bool:
        """Tell whether the switch is to widen a payload; what a switch sends up, from the service's port, is wide."""
        is_widened = self.kind == Kind.CONTRIBUTION and self.format in NARROW
        port = getattr(self.underlayer, "sport", None)
        return is_widened and length in map(narrow_bytes, LANE_BUILDS) and port != AGGREGATION_PORT

    def mysummary(self) -> str:
        """Return one line for `summary()` and the like."""
        return str(
            self.sprintf(
                "switchsum %kind% job %job%.%epoch% rank %rank% slot %slot% number %number% block %block%"
                " next %next_block% [%flags%]"
            )
        )


bind_layers(UDP, Aggregation, dport=AGGREGATION_PORT)
bind_bottom_up(UDP, Aggregation, sport=AGGREGATION_PORT)
