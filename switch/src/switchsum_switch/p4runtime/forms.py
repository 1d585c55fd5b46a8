"""The forms that values have in messages: P4's own, or another one that the program gives the control plane.

A type with `@p4runtime_translation` (P4Runtime specification, section 18) is a number of another width there, or a
string.  A number stands for itself.  A string of decimal digits stands for its number; any other string is given a
number of its own when it is first written, from the highest one downwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from switchsum_switch.messages.p4runtime import Code, decode_uint, encode_uint

from .refusal import Refused, invalid


@dataclass(slots=True)
class Strings:
    """The numbers that stand for the strings of one type."""

    numbers: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    def number_of(self, text: str, width: int, what: str) -> int:
        """Return the number of a string, a new one if need be; raises Refused if none of `width` bits is left."""
        if text in self.numbers:
            number = self.numbers[text]
        elif text.isdecimal() and text.isascii() and str(int(text)) == text:
            number = int(text)
            if number in self.names:
                raise invalid(f"{what}: {text!r} is the number that stands for {self.names[number]!r}")
        else:
            free = (number for number in range((1 << width) - 1, -1, -1) if number not in self.names)
            number = next(free, 1 << width)
            self.numbers[text], self.names[number] = number, text
        if number >> width:
            raise Refused(Code.OUT_OF_RANGE, f"{what}: no number of {width} bits stands for {text!r}")
        return number


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one field or parameter."""

    width: int
    """Bits in the program."""
    shown: int
    """Bits in messages."""
    strings: Strings | None = None
    """Messages have strings."""
    is_own: bool = field(init=False)
    """Messages have the value as the program has it."""

    def __post_init__(self) -> None:
        """Note whether the form is P4's own, which is asked for each value."""
        object.__setattr__(self, "is_own", self.strings is None and self.shown == self.width)

    def decode(self, data: bytes, what: str) -> int:
        """Read the value of a message; raises Refused, with OUT_OF_RANGE for one that does not fit (section 8.4)."""
        if self.strings is not None:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text = ""
            if not text:
                raise invalid(f"{what} is a string, not {data!r}")
            return self.strings.number_of(text, self.width, what)
        try:
            number = decode_uint(data, self.shown)
        except ValueError as error:
            raise Refused(Code.OUT_OF_RANGE, f"{what}: {error}") from error
        if number >> self.width:
            raise Refused(Code.OUT_OF_RANGE, f"{what}: {number} has no place in the program's bit<{self.width}>")
        return number

    def decode_mask(self, data: bytes, what: str) -> int:
        """Read a mask; bits that the program does not have are left out."""
        if self.is_own:
            return self.decode(data, what)
        try:
            return decode_uint(data, self.shown) & ((1 << self.width) - 1)
        except ValueError as error:
            raise Refused(Code.OUT_OF_RANGE, f"{what}: {error}") from error

    def encode(self, number: int) -> bytes:
        """Write a value."""
        if self.strings is None:
            return encode_uint(number)
        return self.strings.names.get(number, str(number)).encode()

    def encode_mask(self, mask: int) -> bytes:
        """Write a mask; bits that the program does not have are compared where all others are."""
        is_full = mask == (1 << self.width) - 1
        return encode_uint((1 << self.shown) - 1 if is_full else mask)


class Forms:
    """The forms of a P4Info's types."""

    def __init__(self, type_info: Any) -> None:
        self._types: Mapping[str, Any] = type_info.new_types
        self._strings: dict[str, Strings] = {}

    def of(self, info: Any, width: int) -> Form | None:
        """Return the form of a match field or parameter; None if it does not fit the program's width."""
        made = self.translated(info.type_name.name, width)
        # P4Info gives no width of keys of the type error, nor of bit<0>, which has one bit in the program.
        return made or (Form(width, width) if (info.bitwidth or width) == width else None)

    def translated(self, name: str, width: int) -> Form | None:
        """Return the form of a type with @p4runtime_translation; None if `name` is no such type."""
        translated = self._types[name].translated_type if name in self._types else None
        kind = translated.WhichOneof("sdn_type") if translated is not None else None
        if translated is not None and kind == "sdn_string":
            return Form(width, 0, self._strings.setdefault(translated.uri or name, Strings()))
        if translated is not None and kind == "sdn_bitwidth":
            return Form(width, translated.sdn_bitwidth)
        return None
