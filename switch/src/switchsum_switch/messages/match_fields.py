"""Matches as P4Runtime's messages, for its server and its clients.

The messages are read as they are.  Whether a value is allowed is for whoever asks: the server refuses what the
specification forbids (`p4runtime.translate`), and the controller what its own entries may not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from .matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from .p4runtime import config, decode_uint, encode_uint, v1

OPTIONAL: Final = config.MatchField.OPTIONAL
KINDS: Final = {
    config.MatchField.EXACT: MatchKind.EXACT,
    config.MatchField.LPM: MatchKind.LPM,
    config.MatchField.TERNARY: MatchKind.TERNARY,
    config.MatchField.RANGE: MatchKind.RANGE,
    OPTIONAL: MatchKind.TERNARY,
}
"""Kinds by P4Info's match types, of those that are supported."""


def encode_match(
    field_id: int,
    match: Match,
    *,
    is_optional: bool = False,
    encode: Callable[[int], bytes] = encode_uint,
    encode_mask: Callable[[int], bytes] = encode_uint,
) -> Any:
    """Write a p4.v1.FieldMatch; `encode` writes values, and `encode_mask` the mask of a ternary match."""
    message = v1.FieldMatch(field_id=field_id)
    match match:
        case Exact(value):
            message.exact.value = encode(value)
        case Lpm(value, length):
            message.lpm.value, message.lpm.prefix_len = encode(value), length
        case Ternary(value, _) if is_optional:
            message.optional.value = encode(value)
        case Ternary(value, mask):
            message.ternary.value, message.ternary.mask = encode(value), encode_mask(mask)
        case Range(low, high):
            message.range.low, message.range.high = encode(low), encode(high)
    return message


def decode_match(
    message: Any,
    width: int,
    decode: Callable[[bytes], int] = decode_uint,
    decode_mask: Callable[[bytes], int] = decode_uint,
) -> Match:
    """Read a p4.v1.FieldMatch that has one of the kinds, of a field of `width` bits."""
    kind = message.WhichOneof("field_match_type")
    body = getattr(message, kind)
    match kind:
        case "exact":
            return Exact(decode(body.value))
        case "optional":
            return Ternary(decode(body.value), (1 << width) - 1)
        case "lpm":
            return Lpm(decode(body.value), body.prefix_len)
        case "ternary":
            return Ternary(decode(body.value), decode_mask(body.mask))
        case _:
            return Range(decode(body.low), decode(body.high))
