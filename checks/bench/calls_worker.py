"""One rank whose calls are timed beside plain work of its own: `python -m checks.bench.calls_worker KIND FOLDER`.

KIND is `memory`, for ranks that share it with the switch, or `link`.  Each rank writes what it saw into a file of
FOLDER.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

import switchsum
from switchsum_host.api.communicator import Communicator
from switchsum_lab.sweeps import memory
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_switch.wires.headers import LOWER_BYTES

SMALL_CALLS: Final = 60
PAUSE_S: Final = 0.01
"""Longer than anybody looks for a frame before going to sleep."""
LARGE_BYTES: Final = 40_000_000
LINK_BYTES: Final = 10_000_000
LARGE_CALLS: Final = 5
DATAGRAMS: Final = 10_000
LANES: Final = 256
PAYLOAD: Final = bytes(FRAME_BYTES + payload_bytes(LANES) - LOWER_BYTES)
"""As long as what a frame of so many lanes carries in UDP."""
_ECHO: Final = "import os\nwhile octet := os.read(0, 1):\n    os.write(1, octet)"


@contextmanager
def echoing() -> Iterator[Callable[[], None]]:
    """Start a process that sends back each byte that it gets; yield what sends one and waits for it."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        to, back = child.stdin, child.stdout
        assert to is not None
        assert back is not None

        def ping() -> None:
            to.write(b"x")
            back.read(1)

        yield ping
        to.close()


def small_calls(communicator: Communicator) -> dict[str, Any]:
    """Add four bytes after pauses, each rank longer than the other in turn; return when calls began and ended."""
    array, entered, left, pings = np.ones(1, np.float32), [], [], []
    with echoing() as ping:
        for turn in range(SMALL_CALLS):
            time.sleep(PAUSE_S * (1 + (turn + communicator.rank) % 2))
            entered.append(time.monotonic())
            communicator.allreduce(array)
            left.append(time.monotonic())
            time.sleep(PAUSE_S)
            began = time.monotonic()
            ping()
            pings.append(time.monotonic() - began)
            array[0] = 1.0
    return {"entered": entered, "left": left, "pings": pings}


def large_calls(communicator: Communicator) -> dict[str, Any]:
    """Add an array that is in no cache; return processor times of calls and of copies, and the memory beside it.

    There is no such memory where the kernel does not tell the most that was held.
    """
    array = np.ones(LARGE_BYTES // 4, np.float32)
    other = np.zeros_like(array)
    other[:] = 1.0  # its pages are there
    communicator.allreduce(array)
    calls, copies, grown = [], [], []
    for _ in range(LARGE_CALLS):
        array[:] = 1.0
        communicator.barrier()
        held = memory.held_bytes() if memory.count_anew() else None
        began = time.process_time()
        communicator.allreduce(array)
        calls.append(time.process_time() - began)
        if held is not None:
            grown.append(memory.most_bytes() - held)
        assert (array == communicator.world_size).all()
        began = time.process_time()
        np.copyto(other, array)
        copies.append(time.process_time() - began)
    return {"calls": calls, "copies": copies, "grown": grown}


def datagrams() -> float:
    """Return the processor time of a datagram that this process sends to itself and takes, one at a time."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
        at.bind(("127.0.0.1", 0))
        to.connect(at.getsockname())
        began = time.process_time()
        for _ in range(DATAGRAMS):
            to.send(PAYLOAD)
            at.recv(len(PAYLOAD))
        return (time.process_time() - began) / DATAGRAMS


def link_calls(communicator: Communicator) -> dict[str, Any]:
    """Add on a link; return processor times of a frame that was sent and its result, and of a datagram."""
    array = np.ones(LINK_BYTES // 4, np.float32)
    communicator.allreduce(array)
    frames, seconds, singles, repeats = [], [], [], 0
    for _ in range(LARGE_CALLS):
        array[:] = 1.0
        communicator.barrier()
        before, began, began_s = communicator.statistics(), time.process_time(), time.monotonic()
        communicator.allreduce(array)
        used, took = time.process_time() - began, time.monotonic() - began_s
        assert (array == communicator.world_size).all()
        after = communicator.statistics()
        sent = after.frames_sent - before.frames_sent
        repeats += after.repeats - before.repeats
        frames.append(used / sent)
        seconds.append(took)
        singles.append(datagrams())
    return {"frames": frames, "seconds": seconds, "datagrams": singles, "repeats": repeats}


def main(kind: str, folder: Path) -> None:
    """Make the calls of a kind."""
    with switchsum.connect() as communicator:
        communicator.allreduce(np.ones(100_000, np.float32))
        found = [link_calls(communicator)] if kind == "link" else [small_calls(communicator), large_calls(communicator)]
        Path(folder, f"{communicator.rank}.json").write_text(json.dumps(dict(ChainMap(*found))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
