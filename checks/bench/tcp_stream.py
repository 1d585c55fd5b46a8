"""One TCP stream from rank 1 to rank 0: `python -m checks.bench.tcp_stream RUNS FILE`.

FILE gets bytes a second of each run.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path

SECONDS = 1.5
SETTLE_S = 0.5
"""Not counted at first: the token bucket's burst, and TCP's slow start."""
PATIENCE_S = 20.0
CHUNK_BYTES = 1 << 18


def send(address: tuple[str, int], runs: int) -> None:
    """Send as fast as the link takes it."""
    for _ in range(runs):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = socket.create_connection(address, timeout=PATIENCE_S)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        with connection:
            try:
                while True:
                    connection.sendall(bytes(CHUNK_BYTES))
            except (ConnectionError, TimeoutError):
                pass


def receive(address: tuple[str, int], runs: int) -> list[float]:
    """Count what comes; returns bytes a second of each run."""
    rates = []
    with socket.create_server(address) as server:
        for _ in range(runs):
            connection, _ = server.accept()
            with connection:
                began, counted, since = time.perf_counter(), 0, 0.0
                while (now := time.perf_counter() - began) < SETTLE_S + SECONDS:
                    got = len(connection.recv(CHUNK_BYTES))
                    if now >= SETTLE_S:
                        since = since or time.perf_counter()
                        counted += got
                rates.append(counted / (time.perf_counter() - since))
    return rates


if __name__ == "__main__":
    meeting = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0":
        Path(sys.argv[2]).write_text(json.dumps(receive(meeting, int(sys.argv[1]))))
    elif os.environ["RANK"] == "1":
        send(meeting, int(sys.argv[1]))
