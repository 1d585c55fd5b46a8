"""The aggregation header and its lanes as Scapy layers, bound to the aggregation service's UDP port.

>>> from switchsum.host.transport.scapy_layer import Aggregation, Int32Lanes
>>> packet = IP() / UDP(sport=21334) / Aggregation(kind="contribution", flags="payload") / Int32Lanes(lanes=[1, -2])

Only the Scapy transport imports this module: Scapy is a large library, and looks at the machine when it loads.
"""

from __future__ import annotations

from typing import Any

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

from switchsum.protocol.wire import (
    AGGREGATION_PORT,
    NO_BLOCK,
    WIRE_VERSION,
    Flag,
    Kind,
    LaneFormat,
    Operator,
    Reason,
)


def _names(enumeration: type[Kind] | type[Operator] | type[LaneFormat] | type[Reason]) -> dict[int, str]:
    return {member.value: member.name.lower() for member in enumeration}


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


LANES = {
    LaneFormat.INT32: Int32Lanes,
    LaneFormat.INT16: Int16Lanes,
    LaneFormat.INT8: Int8Lanes,
    LaneFormat.INT64: Int64Lanes,
}
"""The layer of each lane format's payload."""


class Aggregation(Packet):
    """The aggregation header; `switchsum.protocol.wire.Header` documents the fields."""

    name = "switchsum"
    fields_desc = [  # noqa: RUF012
        ByteField("version", WIRE_VERSION),
        ByteEnumField("kind", Kind.CONTRIBUTION.value, _names(Kind)),
        ByteEnumField("operator", Operator.SUM.value, _names(Operator)),
        ByteEnumField("format", LaneFormat.INT32.value, _names(LaneFormat)),
        FlagsField("flags", 0, 8, [str(flag.name).lower() for flag in Flag]),
        ByteEnumField("reason", 0, _names(Reason)),
        ByteField("exponent", 0),
        ByteField("next_exponent", 0),
        ShortField("job", 0),
        ShortField("epoch", 0),
        ShortField("rank", 0),
        ShortField("tree", 0),
        IntField("slot", 0),
        IntField("number", 0),
        IntField("block", 0),
        XIntField("next_block", NO_BLOCK),
        XIntField("digest", 0),
        XIntField("bitmap", 0),
        XLongField("cookie", 0),
    ]

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return the layer of the lanes; what follows a header without payload is padding."""
        if int(self.flags) & Flag.PAYLOAD and self.format in LANES:
            return LANES[self.format]
        return super().guess_payload_class(payload)

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
