"""Messages as JSON: dataclasses of numbers, texts, lists and further dataclasses, written and read.

They are no messages of protobuf's, though gRPC carries them.  A worker needs nothing else of protobuf: importing it
would take 18 ms of processor time and 2.8 MB in each of them (protobuf 7.36, Intel Xeon, 29 November 2026).  Generated
code would have to suit protobuf 3.20, which p4runtime-shell pins, as well as the newest.  And fields need no numbers
that outlive versions, since a controller refuses a worker whose messages differ (`switchsum_protocol.speaks`).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin, get_type_hints

Message = TypeVar("Message")
MOST_SHOWN: Final = 80
"""Most characters of a wrong value that an error shows."""
_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)  # else Python compiles the names of types each time


def encode(message: Any) -> bytes:
    """Write a message as JSON."""
    # `dataclasses.asdict` would copy every field.
    return json.dumps(message, default=_fields, separators=(",", ":")).encode()


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__dataclass_fields__}


def decode(kind: type[Message], data: bytes) -> Message:
    """Read a message; unknown or missing fields, wrong types and what is no finite number or text raise ValueError."""
    try:
        return _from_json(kind, json.loads(data, parse_constant=_no_number))
    except (TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


def _from_json(kind: type[Message], values: Any) -> Message:
    if not isinstance(values, dict):
        raise ValueError(f"not a {kind.__name__}: {type(values).__name__}")
    hints = _hints(kind)
    if unknown := values.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no field {_shown(sorted(unknown)[0])}")
    return kind(**{name: _value(f"{kind.__name__}.{name}", hints[name], value) for name, value in values.items()})


def _value(name: str, hint: Any, value: Any) -> Any:
    if get_origin(hint) is list:
        if not isinstance(value, list):
            raise ValueError(f"{name} is not a list")
        return [_value(name, get_args(hint)[0], item) for item in value]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _from_json(hint, value)
    allowed = get_args(hint) or (hint,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        value = _as_float(name, value)
    elif type(value) not in allowed:
        raise ValueError(f"{name} is not {' or '.join(kind.__name__ for kind in allowed)}: {_shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} is beyond what a float holds")
    if isinstance(value, str) and not value.isascii():
        _check_text(name, value)
    return value


def _as_float(name: str, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} is beyond what a float holds") from None


def _check_text(name: str, value: str) -> None:
    """Refuse half of a surrogate pair: JSON can write one alone, but no log, page or file takes it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is no text: {_shown(value)}") from None


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _shown(value: Any) -> str:
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
