"""Packet-in and packet-out: a frame's controller header becomes P4Runtime metadata, and back (section 16.1).

Frames of the CPU port begin with the program's controller header.  Its fields are packed without gaps, in the order of
P4Info, and zeros fill the last byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from switchsum_switch.messages.p4runtime import v1

from .forms import Form, Forms
from .refusal import Refused, invalid

_PADDING: Final = "_padding"
"""Older versions of p4c fill headers up with fields whose names begin so; P4Info does not have these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """One field of a controller header."""

    identifier: int
    name: str
    form: Form
    """The form of its values in messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerHeader:
    """The fields of `@controller_header("packet_in")` or `("packet_out")`."""

    fields: tuple[HeaderField, ...] = ()
    """Fields in the order of the wire."""

    @classmethod
    def named(cls, p4info: Any, name: str, forms: Forms, headers: Sequence[Mapping[str, int]]) -> ControllerHeader:
        """Return the header of that name; it has no fields if the program declares none.

        `headers` are the program's, each as the widths of its fields by name.  Raises Refused.
        """
        for header in p4info.controller_packet_metadata:
            if header.preamble.name == name:
                fields = _found(header.metadata, forms, headers)
                if fields is None:
                    raise invalid(f"P4Info: the header {name} has other fields than any header of the program")
                return cls(fields=fields)
        return cls()

    @property
    def bits(self) -> int:
        """Width of all fields together."""
        return sum(field.form.width for field in self.fields)

    @property
    def size(self) -> int:
        """Bytes of the header."""
        return (self.bits + 7) // 8

    def packet_in(self, frame: bytes) -> Any:
        """Return a PacketIn message; None if the frame is shorter than its header."""
        if len(frame) < self.size:
            return None
        message = v1.PacketIn(payload=frame[self.size :])
        value, rest = int.from_bytes(frame[: self.size], "big"), 8 * self.size
        for field in self.fields:
            rest -= field.form.width
            number = value >> rest & (1 << field.form.width) - 1
            message.metadata.add(metadata_id=field.identifier, value=field.form.encode(number))
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
        for field in self.fields:
            number = 0
            if field.identifier in values:
                try:
                    number = field.form.decode(values.pop(field.identifier), f"metadata {field.name}")
                except Refused as refused:
                    raise invalid(refused.message) from refused
            header = header << field.form.width | number
        if values:
            raise invalid(f"the packet_out header has no metadata {min(values)}")
        return (header << 8 * self.size - self.bits).to_bytes(self.size, "big") + bytes(message.payload)


def _found(
    metadata: Sequence[Any], forms: Forms, headers: Sequence[Mapping[str, int]]
) -> tuple[HeaderField, ...] | None:
    """Return the fields of a controller header with the widths that they have in the program; None: they do not fit.

    P4Info does not say which of the program's headers it means: it is one with the same fields.  A program that does
    not use the header does not have it, and then the fields have P4Info's own widths.
    """
    names = [one.name for one in metadata]
    same = [
        list(header.values())[: len(names)]
        for header in headers
        if list(header)[: len(names)] == names and all(name.startswith(_PADDING) for name in list(header)[len(names) :])
    ]
    for widths in same or [[one.bitwidth for one in metadata]]:
        made = [forms.of(one, width) for one, width in zip(metadata, widths, strict=True) if width]
        fitting = [form for form in made if form is not None]
        if len(fitting) == len(names):
            pairs = zip(metadata, fitting, strict=True)
            return tuple(HeaderField(identifier=one.id, name=one.name, form=form) for one, form in pairs)
    return None
