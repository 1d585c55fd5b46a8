"""Frames with the same body on several shared-memory ports: one copy, which all workers read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from switchsum_host.links.shm import ShmTransport
from switchsum_protocol.frame import FRAME_BYTES
from switchsum_switch.ports.base import PortTable
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.shm import ShmPorts
from switchsum_switch.wires.outbox import TAIL_WORD

FRAME = FRAME_BYTES + 1024
ROWS = 8
"""Frames that may wait for one worker."""


class Star:
    """A switch's ports, and the workers' ends of their links in this same process."""

    def __init__(self, workers: int) -> None:
        self.name = f"bodies-{os.getpid()}"
        self.group = ShmPorts(self.name, table := PortTable())
        self.ports = PortSet(table, [self.group])
        self.links: list[ShmTransport] = []
        for _ in range(workers):
            self.join(FRAME)

    def join(self, frame_bytes: int) -> ShmTransport:
        made: list[ShmTransport] = []
        opener = threading.Thread(
            target=lambda: made.append(ShmTransport(self.name, rows=ROWS, frame_bytes=frame_bytes)), daemon=True
        )
        opener.start()
        while opener.is_alive():
            self.ports.wait(0.01)
        self.links += made
        return made[0]

    def send(self, *frames: np.ndarray) -> None:
        """Send a frame to each worker, in one batch."""
        ports = np.arange(1, len(frames) + 1, dtype=np.uint32)
        addresses = np.array([frame.ctypes.data for frame in frames], np.uint64)
        self.ports.transmit(ports, addresses, np.array([len(frame) for frame in frames], np.uint32))

    @property
    def free(self) -> int:
        """Bodies that no worker reads."""
        assert self.group._bodies is not None
        return int(self.group._bodies.words[3])

    def drops(self, port: int) -> int:
        return self.ports.statistics()[port]["tx_drops"]

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.ports.close()


@pytest.fixture
def star() -> Iterator[Star]:
    star = Star(3)
    yield star
    star.close()


def replicas(number: int, count: int = 3, length: int = FRAME) -> list[np.ndarray]:
    """Return frames whose headers differ and whose bodies do not."""
    body = np.random.default_rng(number).integers(0, 256, length - FRAME_BYTES, np.uint8)
    return [np.concatenate([np.full(FRAME_BYTES, rank + 1, np.uint8), body]) for rank in range(count)]


def received(link: ShmTransport) -> list[bytes]:
    """Take what has come, and give it back."""
    came = link.receive()
    rows = zip(came.rows.tolist(), came.lengths.tolist(), strict=True)
    frames = [came.frames[row, link.lead : link.lead + length].tobytes() for row, length in rows]
    link.release()
    return frames


def test_replicas_arrive_whole_and_their_body_is_there_once(star: Star) -> None:
    rows = star.free
    for turn in range(5 * rows):
        frames = replicas(turn)
        star.send(*frames)
        assert star.free == rows - 1
        for link, frame in zip(star.links, frames, strict=True):
            assert received(link) == [frame.tobytes()]
    star.send(*replicas(0, length=600))
    assert [len(received(link)[0]) for link in star.links] == [600] * 3
    assert all(star.drops(port) == 0 for port in (1, 2, 3))


def test_frames_that_differ_are_copied_whole(star: Star) -> None:
    rows = star.free
    frames = replicas(1)
    frames[1][-1] ^= 1
    star.send(*frames)
    assert star.free == rows
    short = replicas(2, length=FRAME_BYTES + 8)
    star.send(*short)
    assert star.free == rows
    for link, *expected in zip(star.links, frames, short, strict=True):
        assert received(link) == [frame.tobytes() for frame in expected]


def test_a_worker_that_gives_nothing_back_stops_nobody(star: Star) -> None:
    stopped, *others = star.links
    rows = star.free
    for turn in range(10 * rows):
        frames = replicas(turn)
        star.send(*frames)
        for link, frame in zip(others, frames[1:], strict=True):
            assert received(link) == [frame.tobytes()]
    assert star.free >= rows - ROWS - 1
    assert star.drops(1) == 10 * rows - ROWS
    assert star.drops(2) == star.drops(3) == 0
    assert received(stopped) == [replicas(turn)[0].tobytes() for turn in range(ROWS)]


def test_a_worker_that_goes_leaves_no_body_taken(star: Star) -> None:
    rows = star.free
    for turn in range(3):
        star.send(*replicas(turn))
    for link in star.links[1:]:
        received(link)
    star.links[0].close()
    while len(star.ports.ports()) == 3:
        star.ports.wait(0.01)
    star.send(np.zeros(60, np.uint8), np.zeros(60, np.uint8))  # what was given back is noticed with the next frames
    assert star.free == rows


def test_longer_frames_than_the_first_workers_are_copied(star: Star) -> None:
    star.join(2 * FRAME)
    rows = star.free
    star.send(*replicas(1, 4))
    assert star.free == rows - 1
    assert [received(link)[0] for link in star.links] == [frame.tobytes() for frame in replicas(1, 4)]


def test_a_worker_that_gives_back_what_it_cannot_see_yet_frees_no_body(star: Star) -> None:
    hostile, *others = star.links
    rows = star.free
    hostile._own.bytes[TAIL_WORD : TAIL_WORD + 8].view(np.int64)[0] = ROWS
    # More equal frames in one batch than the worker's ring holds: the switch looks for rows that were given back.
    frame, count = replicas(1)[0], ROWS + 1
    addresses, lengths = np.full(count, frame.ctypes.data, np.uint64), np.full(count, FRAME, np.uint32)
    star.ports.transmit(np.ones(count, np.uint32), addresses, lengths)
    assert star.drops(1) == 1
    assert star.free == rows - 1
    while len(star.ports.ports()) == 3:
        star.ports.wait(0.01)
    assert star.free == rows
    star.send(frame[:60], *replicas(2, 2))
    star.send(frame[:60], *replicas(3, 2))
    for rank, link in enumerate(others):
        assert received(link) == [replicas(2, 2)[rank].tobytes(), replicas(3, 2)[rank].tobytes()]
