"""How messages and errors of `rpc` are written and read: messages as JSON, errors as text.

A refusal is a gRPC status whose details are `"<error class>: <text>"`; `error_from_details` turns it back into the
error of `switchsum.protocol.errors` that the controller raised.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from . import errors

Message = TypeVar("Message")
_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)  # else Python compiles the names of types each time


def encode(message: Any) -> bytes:
    """Write a message as JSON."""
    # `dataclasses.asdict` would copy every field.
    return json.dumps(message, default=_fields, separators=(",", ":")).encode()


def _fields(message: Any) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__dataclass_fields__}


def decode(kind: type[Message], data: bytes) -> Message:
    """Read a message; unknown fields, missing fields and wrong types raise ValueError."""
    try:
        return _from_json(kind, json.loads(data))
    except (TypeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


def _from_json(kind: type[Message], values: Any) -> Message:
    if not isinstance(values, dict):
        raise ValueError(f"not a {kind.__name__}: {type(values).__name__}")
    hints = _hints(kind)
    if unknown := values.keys() - hints.keys():
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
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
        return float(value)
    if type(value) not in allowed:
        raise ValueError(f"{name} is not {' or '.join(kind.__name__ for kind in allowed)}: {value!r}")
    return value


def details_of(error: errors.SwitchsumError) -> str:
    """Write an error as gRPC status details."""
    return f"{type(error).__name__}: {error}"


def error_from_details(details: str) -> errors.SwitchsumError:
    """Read an error back from gRPC status details; one that this side does not know becomes a RemoteError."""
    name, _, text = details.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.SwitchsumError):
        try:
            return kind(text)
        except TypeError:
            pass  # an error whose constructor wants more than a text
    return errors.RemoteError(details)
