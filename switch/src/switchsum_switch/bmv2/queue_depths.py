"""Sets the length and the rate of BMv2's egress queues, which only its Thrift server can do.

The calls are written by hand in Thrift's binary protocol: two calls with one number are no reason for a dependency.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from switchsum_switch.errors import LocalError

_DEPTHS: Final = b"simple_switch:set_all_egress_queue_depths"
_RATES: Final = b"simple_switch:set_all_egress_queue_rates"
_CALL: Final = 0x8001_0001
_REPLY: Final = 0x8001_0002
_INT32: Final = 8
_INT64: Final = 10
_CALL_S: Final = 5.0
_RETRY_S: Final = 0.02


def set_queue_depths(port: int, frames: int, *, patience_s: float = 5.0) -> None:
    """Let every egress queue of the BMv2 whose Thrift server is at local `port` hold `frames`; raises LocalError.

    Otherwise a queue holds 64 frames, and drops further ones without counting them.  A BMv2 that has just been started
    may take `patience_s` until it serves Thrift.
    """
    _call_patiently(port, _DEPTHS, struct.pack(">Bhi", _INT32, 1, frames), patience_s)


def set_queue_rates(port: int, frames_per_s: int, *, patience_s: float = 5.0) -> None:
    """Let each egress queue of that BMv2 send so many frames a second; raises LocalError."""
    _call_patiently(port, _RATES, struct.pack(">Bhq", _INT64, 1, frames_per_s), patience_s)


def _call_patiently(port: int, method: bytes, argument: bytes, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _call(port, method, argument)
        except LocalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def _call(port: int, method: bytes, argument: bytes) -> None:
    # Strict binary protocol: type of message, name, sequence number, then the argument structure (field 1, a number)
    # and its end.  Of the reply only the type matters: an exception would have another one.
    call = struct.pack(">II", _CALL, len(method)) + method + struct.pack(">i", 0) + argument + b"\0"
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CALL_S) as connection:
            connection.sendall(call)
            answer = connection.recv(4, socket.MSG_WAITALL)
    except OSError as error:
        raise LocalError(f"BMv2's Thrift server at port {port} does not answer: {error}") from error
    if answer != struct.pack(">I", _REPLY):
        raise LocalError(f"BMv2's Thrift server at port {port} does not know {method.decode()}: use a newer BMv2")
