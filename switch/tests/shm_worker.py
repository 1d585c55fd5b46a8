"""A worker process on a shared-memory link; the tests of the switch's ports run it as a script."""

from __future__ import annotations

import os
import sys
import time

import numpy as np
import numpy.typing as npt

from switchsum_host.links.shm import ShmTransport
from switchsum_switch.wires import outbox

FRAME = 1114
WINDOW = 48
LONG_S = 20 * float(os.environ.get("SWITCHSUM_TEST_SLOWNESS", "1"))
ROWS = 2 * WINDOW + 5
"""No power of two, so that rows and descriptors wrap around at different times."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def bodies(numbers: npt.NDArray[np.int64], lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Return rows whose first 8 bytes are the frame's number and whose others follow from it, 0 beyond its length."""
    rows = np.empty((len(numbers), FRAME), np.uint8)
    rows[:] = ((numbers[:, None] * 31 + np.arange(FRAME)) & 0xFF).astype(np.uint8)
    rows[np.arange(FRAME) >= lengths[:, None]] = 0
    rows[:, :8] = numbers[:, None].view(np.uint8)
    return rows


def lengths_of(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    return (60 + numbers * 7 % (FRAME - 60 + 1)).astype(np.int32)


def echo(link: ShmTransport, total: int) -> None:
    """Send `total` frames of all lengths and compare every one that comes back."""
    sent = received = 0
    row = 0
    while received < total:
        count = min(WINDOW - (sent - received), total - sent)
        if count:
            numbers = np.arange(sent, sent + count, dtype=np.int64)
            rows = ((row + np.arange(count)) % ROWS).astype(np.int32)
            lengths = lengths_of(numbers)
            link.tx_frames[rows, link.lead : link.lead + FRAME] = bodies(numbers, lengths)
            assert link.pushed - link.consumed <= ROWS - count, "a row would be written that the switch may read"
            assert link.send(rows, lengths) == count
            sent, row = sent + count, (row + count) % ROWS
        came = link.receive()
        count = len(came.rows)
        if count:
            numbers = np.arange(received, received + count, dtype=np.int64)
            lengths = lengths_of(numbers)
            assert (came.lengths == lengths).all()
            frames = came.frames[came.rows, link.lead : link.lead + FRAME].copy()
            frames[np.arange(FRAME) >= lengths[:, None]] = 0
            assert (frames == bodies(numbers, lengths)).all()
            received += count
        link.release()
        if not count:
            assert link.wait(LONG_S), f"{received} of {total} frames in {LONG_S} s"
    assert link.malformed == 0


def echo_later(link: ShmTransport, total: int) -> None:
    """Echo once it is told to, so that it is still there when others join."""
    sys.stdin.readline()
    echo(link, total)


def flood(link: ShmTransport, total: int) -> None:
    """Send `total` frames and read none of what comes back until told to."""
    zeros = np.zeros(WINDOW, np.int32)
    sent = 0
    while sent < total:
        count = link.send(zeros[: total - sent], zeros[: total - sent] + 100)
        sent += count
        if not count:
            time.sleep(0.001)
    say("sent")
    sys.stdin.readline()
    say(str(len(link.receive().rows)))


def lie(link: ShmTransport, _: int) -> None:
    """Send descriptors that point nowhere, then a good frame."""
    bad = [(ROWS, 100), (-1, 100), (2**31 - 1, 100), (0, 0), (0, FRAME + 1), (0, 2**31 - 1), (1, -5)]
    rows, lengths = np.array([*bad, (3, 77)], np.int32).T.copy()
    assert link.send(rows, lengths) == len(rows)
    assert link.wait(LONG_S)
    came = link.receive()
    say(f"{came.lengths.tolist()}")


def cheat(link: ShmTransport, _: int) -> None:
    """Claim more frames than the ring holds."""
    head = link.tx_frames.base
    assert head is not None
    link._own.bytes[outbox.HEAD_WORD : outbox.HEAD_WORD + 8].view(np.int64)[0] = 1 << 40
    os.eventfd_write(link._switch_bell, 1)
    sys.stdin.readline()


def leave_a_child(link: ShmTransport, _: int) -> None:
    """Leave a child behind that holds the connection open."""
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
    say(str(child))
    os._exit(0)


def stay(link: ShmTransport, _: int) -> None:
    sys.stdin.readline()


def main() -> None:
    name, scene, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
    link = ShmTransport(name, rows=ROWS, frame_bytes=FRAME, answer_rows=64)
    say(f"{link.port} {os.getpid()}")
    {f.__name__: f for f in (echo, echo_later, flood, lie, cheat, leave_a_child, stay)}[scene](link, total)
    link.close()


if __name__ == "__main__":
    main()
