"""Packet-in and packet-out: a frame's controller header becomes P4Runtime metadata, and back (section 16.1).

Frames of the CPU port begin with the program's controller header; its fields are packed without gaps, in the order of
P4Info.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from switchsum.protocol.p4runtime import decode_uint, encode_uint, v1

from .refusal import invalid


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeader:
    """The fields of `@controller_header("packet_in")` or `("packet_out")`."""

    fields: tuple[tuple[int, str, int], ...] = ()
    """Metadata id, name and width in bits of each field, in the order of the wire."""

    @classmethod
    def named(cls, p4info: Any, name: str) -> ControllerHeader:
        """Return the header of that name; it has no fields if the program declares none."""
        for header in p4info.controller_packet_metadata:
            if header.preamble.name == name:
                fields = tuple((field.id, field.name, field.bitwidth) for field in header.metadata)
                made = cls(fields=fields)
                if made.bits % 8 or any(width < 1 for _, _, width in fields):
                    raise invalid(f"P4Info: the header {name} does not fill whole bytes")
                return made
        return cls()

    @property
    def bits(self) -> int:
        """Width of the whole header."""
        return sum(width for _, _, width in self.fields)

    def packet_in(self, frame: bytes) -> Any:
        """Return a PacketIn message; None if the frame is shorter than its header."""
        size = self.bits // 8
        if len(frame) < size:
            return None
        message = v1.PacketIn(payload=frame[size:])
        value, rest = int.from_bytes(frame[:size], "big"), self.bits
        for identifier, _, width in self.fields:
            rest -= width
            message.metadata.add(metadata_id=identifier, value=encode_uint(value >> rest & (1 << width) - 1))
        return message

    def packet_out(self, message: Any) -> bytes:
        """Return the frame of a PacketOut message; raises Refused if its metadata does not fit the header.

        A field that the message leaves out is 0, as on simple_switch_grpc, whose clients leave padding out.
        """
        values = {}
        for metadata in message.metadata:
            identifier = metadata.metadata_id
            if identifier in values:
                raise invalid(f"metadata {identifier} is there twice")
            values[identifier] = metadata.value
        header = 0
        for identifier, name, width in self.fields:
            try:
                header = header << width | decode_uint(values.pop(identifier, b"\0"), width)
            except ValueError as error:
                raise invalid(f"metadata {name}: {error}") from error
        if values:
            raise invalid(f"the packet_out header has no metadata {min(values)}")
        return header.to_bytes(self.bits // 8, "big") + bytes(message.payload)
