"""A link of UDP with conditions, as a process: proxy.py LISTEN TARGET CONDITIONS, where CONDITIONS is JSON.

`loss` is the share of frames that is lost each way, `loss_down` that on the way back alone, `delay_ms` what each way
takes, `rate_mbit` what goes up at most (a queue of five seconds, so that nothing is lost).
"""

from __future__ import annotations

import heapq
import json
import random
import select
import socket
import sys
import time
from typing import Any

QUEUE_S = 5.0
BUFFER_BYTES = 1 << 23


def endpoint(bind: int | None = None, connect: int | None = None) -> socket.socket:
    """Return a socket with a long buffer."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    if bind is not None:
        made.bind(("127.0.0.1", bind))
    if connect is not None:
        made.connect(("127.0.0.1", connect))
    return made


def main() -> None:
    """Forward frames until the process is ended."""
    listen, target, conditions = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    lost = conditions.get("loss", 0.0)
    loss = {True: lost, False: conditions.get("loss_down", lost)}  # by way: up, down
    delay_s = conditions.get("delay_ms", 0.0) / 1e3
    byte_s, began = 8e-6 / conditions["rate_mbit"] if "rate_mbit" in conditions else 0.0, time.monotonic()
    front = endpoint(bind=listen)
    up: dict[Any, socket.socket] = {}
    back: dict[socket.socket, Any] = {}
    waiting: list[tuple[float, int, bool, Any, bytes]] = []
    free_at, number = began, 0
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for ready in select.select([front, *back], [], [], pause)[0]:
            if ready is front:
                data, sender = front.recvfrom(65536)
                if sender not in up:
                    up[sender] = endpoint(connect=target)
                    back[up[sender]] = sender
                way, peer = True, sender
            else:
                data, way, peer = ready.recv(65536), False, back[ready]
            now = time.monotonic()
            if random.random() < loss[way]:
                continue
            due = now + delay_s
            if byte_s and way:
                if free_at - now > QUEUE_S:
                    continue
                free_at = max(now, free_at) + byte_s * len(data)
                due = free_at + delay_s
            number += 1
            heapq.heappush(waiting, (due, number, way, peer, data))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, way, peer, data = heapq.heappop(waiting)
            if way:
                up[peer].send(data)
            else:
                front.sendto(data, peer)


if __name__ == "__main__":
    main()
