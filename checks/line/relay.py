"""A longer cable: hands frames on between two interfaces after a while.

Run: python -m checks.line.relay SECONDS ONE OTHER [ONE OTHER ...], as root, until it is stopped.  It keeps their order,
and drops nothing; rates and queues are those of the interfaces (tc).
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_ALL_FRAMES: Final = 3
"""ETH_P_ALL."""
_FORCED_BUFFERS: Final = 32, 33
"""SO_SNDBUFFORCE: frames in an interface's queue count here, and would fill it before the queue; SO_RCVBUFFORCE."""
_BUFFER_BYTES: Final = 64 << 20
_LONGEST: Final = 70_000
"""Bytes of the longest frame: of 64 KiB where offloads are on."""
_AT_ONCE: Final = 64

Waiting = deque[tuple[float, Callable[[bytes], object], bytes]]
"""Frames, when their time comes, and what sends them.  All wait as long, so that the first is the oldest."""


def opened(name: str) -> socket.socket:
    """Return a socket for all frames of an interface."""
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES))
    opened.bind((name, 0))
    opened.setblocking(False)
    for buffer in _FORCED_BUFFERS:
        opened.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
    return opened


def hand_on(waiting: Waiting, now: float) -> float | None:
    """Send the frames whose time has come; return in how many seconds the next one's has, or None: none waits."""
    while waiting and waiting[0][0] <= now:
        _, send, frame = waiting.popleft()
        with suppress(OSError):  # the queue there is full
            send(frame)
    return waiting[0][0] - now if waiting else None


def main(delay_s: float, names: list[str]) -> None:
    """Hand frames on."""
    ends = [opened(name) for name in names]
    others = {ends[place].fileno(): ends[place ^ 1] for place in range(len(ends))}
    by_number = {end.fileno(): end for end in ends}
    watched = select.epoll()
    for end in ends:
        watched.register(end.fileno(), select.EPOLLIN)
    waiting: Waiting = deque()
    while True:
        for number, _ in watched.poll(hand_on(waiting, time.monotonic())):
            for _ in range(_AT_ONCE):
                try:
                    frame, address = by_number[number].recvfrom(_LONGEST)
                except BlockingIOError:
                    break
                if address[2] != socket.PACKET_OUTGOING:
                    waiting.append((time.monotonic() + delay_s, others[number].send, frame))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
