"""Sets the length of BMv2's egress queues, which only its Thrift server can do.

The call is written by hand in Thrift's binary protocol: one call with one number is no reason for a dependency.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from switchsum.protocol.errors import LocalError

_METHOD: Final = b"simple_switch:set_all_egress_queue_depths"
_CALL: Final = 0x8001_0001
_REPLY: Final = 0x8001_0002
_INT32: Final = 8
_CALL_S: Final = 5.0
_RETRY_S: Final = 0.02


def set_queue_depths(port: int, frames: int, *, patience_s: float = 5.0) -> None:
    """Let every egress queue of the BMv2 whose Thrift server is at local `port` hold `frames`; raises LocalError.

    Otherwise a queue holds 64 frames, and drops further ones without counting them.  A BMv2 that has just been started
    may take `patience_s` until it serves Thrift.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _call(port, frames)
        except LocalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def _call(port: int, frames: int) -> None:
    # Strict binary protocol: type of message, name, sequence number, then the argument structure (field 1, an i32) and
    # its end.  Of the reply only the type matters: an exception would have another one.
    argument = struct.pack(">BhiB", _INT32, 1, frames, 0)
    call = struct.pack(">II", _CALL, len(_METHOD)) + _METHOD + struct.pack(">i", 0) + argument
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_CALL_S) as connection:
            connection.sendall(call)
            answer = connection.recv(4, socket.MSG_WAITALL)
    except OSError as error:
        raise LocalError(f"BMv2's Thrift server at port {port} does not answer: {error}") from error
    if answer != struct.pack(">I", _REPLY):
        raise LocalError(f"BMv2's Thrift server at port {port} does not know {_METHOD.decode()}")
