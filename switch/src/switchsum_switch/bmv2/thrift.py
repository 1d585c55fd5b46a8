"""Calls of BMv2's Thrift servers, in Thrift's binary protocol.

BMv2's own client is generated code that is installed with it, for one version of Python.  A call needs six kinds of
Thrift's values, so they are written by hand.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from switchsum_switch.errors import LocalError

_CALL: Final = 0x8001_0001
_REPLY: Final = 0x8001_0002
_STOP, _BOOL, _BYTE, _DOUBLE, _INT16, _INT32, _INT64, _BINARY, _STRUCT, _MAP, _SET, _LIST = (
    *(0, 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15),
)
_NUMBERS: Final = {_BOOL: ">?", _BYTE: ">b", _DOUBLE: ">d", _INT16: ">h", _INT32: ">i", _INT64: ">q"}
_CALL_S: Final = 60.0
_RETRY_S: Final = 0.02


class Refused(LocalError):
    """BMv2 has refused a call; the text has the code of its error."""


@dataclass(frozen=True, slots=True)
class Int64:
    """A number of 64 bits; a plain int has 32."""

    value: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A structure: numbered fields, of which absent ones are None."""

    fields: dict[int, Any]


@dataclass(frozen=True, slots=True)
class Items:
    """A list; the kind of its items is that of the first, or binary."""

    items: Sequence[Any]


class Client:
    """A connection to a Thrift server on this machine."""

    def __init__(self, port: int, patience_s: float, *, call_s: float = _CALL_S) -> None:
        """Connect; a BMv2 that has just been started may take `patience_s` until it serves.  Raises LocalError.

        A call fails that is not answered within `call_s`.
        """
        deadline = time.monotonic() + patience_s
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=call_s)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise LocalError(f"BMv2's Thrift server at port {port} does not answer: {error}") from error
                time.sleep(_RETRY_S)
        self._stream = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()

    def call(self, method: str, *arguments: Any) -> Any:
        """Call `service:method` and return what it returns; raises Refused or LocalError."""
        name = method.encode()
        head = struct.pack(">II", _CALL, len(name)) + name + struct.pack(">i", 0)
        try:
            self._socket.sendall(head + _encode(Struct(dict(enumerate(arguments, start=1))))[1])
            kind, length = self._number(">II")
            self._take(length + 4)
            reply = self._value(_STRUCT)
        except (OSError, EOFError) as error:
            raise LocalError(f"BMv2 has not answered {method}: {error or 'it has ended'}") from error
        if kind != _REPLY:
            raise LocalError(f"BMv2 does not know {method}: {reply}")
        for number, value in reply.items():
            if number:
                raise Refused(f"BMv2 refuses {method.partition(':')[2]} (error {value.get(1)})")
        return reply.get(0)

    def _take(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def _number(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])[0]
        if kind == _BINARY:
            return self._take(self._number(">I")[0])
        if kind in (_LIST, _SET):
            item, count = self._number(">bI")
            return [self._value(item) for _ in range(count)]
        if kind == _MAP:
            key, value, count = self._number(">bbI")
            return {self._value(key): self._value(value) for _ in range(count)}
        fields = {}
        while (inner := self._number(">b")[0]) != _STOP:
            number = self._number(">h")[0]
            fields[number] = self._value(inner)
        return fields


def _encode(value: Any) -> tuple[int, bytes]:
    """Return the kind of a value, and its bytes."""
    match value:
        case bool():
            return _BOOL, struct.pack(">?", value)
        case int():
            return _INT32, struct.pack(">i", value)
        case Int64():
            return _INT64, struct.pack(">q", value.value)
        case float():
            return _DOUBLE, struct.pack(">d", value)
        case str() | bytes():
            data = value.encode() if isinstance(value, str) else value
            return _BINARY, struct.pack(">I", len(data)) + data
        case Items():
            encoded = [_encode(item) for item in value.items]
            kind = encoded[0][0] if encoded else _BINARY
            return _LIST, struct.pack(">bI", kind, len(encoded)) + b"".join(data for _, data in encoded)
        case Struct():
            made = b""
            for number, field in value.fields.items():
                if field is not None:
                    kind, data = _encode(field)
                    made += struct.pack(">bh", kind, number) + data
            return _STRUCT, made + bytes([_STOP])
    raise TypeError(f"Thrift has no {type(value).__name__}")
