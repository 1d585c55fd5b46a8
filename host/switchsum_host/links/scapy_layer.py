"""The aggregation header and its lanes as Scapy layers, bound to the aggregation service's UDP port.

>>> from scapy.layers.inet import IP, UDP
>>> from switchsum_host.links.scapy_layer import Aggregation, Int32Lanes
>>> packet = IP() / UDP(sport=21334) / Aggregation(kind="contribution", flags="payload") / Int32Lanes(lanes=[1, -2])

Only the Scapy transport imports this module: Scapy is a large library, and looks at the machine when it loads.
"""

from __future__ import annotations

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


class NarrowLanesField(LanesField):
    """Numbers for lanes of twice the width, in the lanes' order: on the wire those of the two halves take turns."""

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        """Read whole numbers; return the rest and the numbers."""
        rest, found = super().getfield(pkt, s)
        return rest, found[::2] + found[1::2]

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        """Write the numbers, of which there is an even number."""
        half = len(val) // 2
        return super().addfield(pkt, s, [each for pair in zip(val[:half], val[half:], strict=True) for each in pair])


class NarrowLanes(Packet):
    """A payload of 8 bits for each lane of 16."""

    name = "int8 lanes to be widened"
    fields_desc = [NarrowLanesField("lanes", "b")]  # noqa: RUF012


class NibblesField(LanesField):
    """Numbers of 4 bits, two to a byte: the upper halves are those of the first half of the lanes."""

    def getfield(self, pkt: Packet, s: bytes) -> tuple[bytes, list[int]]:
        """Read the numbers; nothing is left."""
        return b"", [(half ^ 8) - 8 for shift in (4, 0) for byte in s for half in (byte >> shift & 15,)]

    def addfield(self, pkt: Packet, s: bytes, val: Any) -> bytes:
        """Write the numbers, of which there is an even number."""
        half = len(val) // 2
        return s + bytes((upper & 15) << 4 | lower & 15 for upper, lower in zip(val[:half], val[half:], strict=True))


class Nibbles(Packet):
    """A payload of 4 bits for each lane of 8."""

    name = "int4 lanes to be widened"
    fields_desc = [NibblesField("lanes", "b")]  # noqa: RUF012


class Int64Lanes(Packet):
    """A payload of 64-bit lanes."""

    name = "int64 lanes"
    fields_desc = [LanesField("lanes", "q")]  # noqa: RUF012


LANES = {
    LaneFormat.INT32: Int32Lanes,
    LaneFormat.INT16: Int16Lanes,
    LaneFormat.INT8: Int8Lanes,
    LaneFormat.INT64: Int64Lanes,
    LaneFormat.WIDENED: Int16Lanes,
    LaneFormat.NIBBLES: Int8Lanes,
}
"""The layer of each lane format's payload."""
NARROW: dict[int, type[Packet]] = {LaneFormat.WIDENED: NarrowLanes, LaneFormat.NIBBLES: Nibbles}
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
