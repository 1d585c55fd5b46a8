"""Frames into and out of BMv2 over nanomsg (`--packet-in`), which needs neither root nor interfaces.

BMv2 that has this option is linked with libnanomsg, so that library is on the machine, and is called by ctypes.  The
head of a message is in behavioral-model's src/bm_sim/dev_mgr_packet_in.cpp.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import os
import struct
from typing import Any, Final

from switchsum_switch.errors import LocalError

_AF_SP, _PAIR, _SOL_SOCKET, _SNDTIMEO, _RCVTIMEO = 1, 16, 0, 4, 5
_SEND_S: Final = 5.0
"""A BMv2 that has ended takes no more frames."""
_HEAD: Final = struct.Struct("=iii")
"""Type of message, port, length."""
_PACKET_IN, _PACKET_OUT = 3, 4
_LONGEST: Final = 1 << 17


@functools.cache
def _library() -> Any:
    name = ctypes.util.find_library("nanomsg")
    if name is None:
        raise LocalError("libnanomsg, with which BMv2 takes frames, is not installed (Debian: libnanomsg5)")
    library = ctypes.CDLL(name, use_errno=True)
    library.nn_recv.argtypes = library.nn_send.argtypes = [
        *(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int),
    ]
    return library


class FramePair:
    """The other end of BMv2's socket."""

    def __init__(self, address: str) -> None:
        """Connect to `ipc://PATH`, at once or as soon as BMv2 listens; raises LocalError."""
        self._library = _library()
        self._socket = self._library.nn_socket(_AF_SP, _PAIR)
        if self._socket < 0 or self._library.nn_connect(self._socket, address.encode()) < 0:
            raise LocalError(f"no nanomsg socket to {address}: {os.strerror(ctypes.get_errno())}")
        self._set_timeout(_SNDTIMEO, _SEND_S)
        self._buffer = ctypes.create_string_buffer(_LONGEST)

    def close(self) -> None:
        """Close the socket."""
        self._library.nn_close(self._socket)

    def send(self, port: int, frame: bytes) -> None:
        """Let a frame arrive at a port; raises LocalError."""
        message = _HEAD.pack(_PACKET_IN, port, len(frame)) + frame
        if self._library.nn_send(self._socket, message, len(message), 0) < 0:
            raise LocalError(f"BMv2 takes no frame: {os.strerror(ctypes.get_errno())}")

    def receive(self, timeout_s: float) -> tuple[int, bytes] | None:
        """Return the next frame that leaves, with its port; None if none does within the time."""
        self._set_timeout(_RCVTIMEO, timeout_s)
        length = self._library.nn_recv(self._socket, self._buffer, _LONGEST, 0)
        if length < _HEAD.size:
            return None
        message = self._buffer.raw[:length]
        kind, port, size = _HEAD.unpack_from(message)
        return (port, message[_HEAD.size : _HEAD.size + size]) if kind == _PACKET_OUT else self.receive(timeout_s)

    def _set_timeout(self, option: int, seconds: float) -> None:
        timeout = ctypes.c_int(max(1, round(seconds * 1000)))
        self._library.nn_setsockopt(self._socket, _SOL_SOCKET, option, ctypes.byref(timeout), ctypes.sizeof(timeout))
