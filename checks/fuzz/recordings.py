"""Recordings of a switch into `replay` and `capture --read`: pcapng files that are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from checks.fuzz.choices import Choices
from checks.fuzz.damage import damaged, scratch_folder
from switchsum.packets import recording
from switchsum_protocol.errors import LocalError
from switchsum_switch.messages.p4runtime import v1
from switchsum_switch.ports.capture import Capture

MOST_EVENTS: Final = 10_000


class Target:
    """Reads a recording; an error is one line."""

    def __init__(self) -> None:
        self._path = scratch_folder() / "some.pcapng"
        self._good = good(self._path)

    def run(self, data: bytes) -> None:
        """Read one file."""
        self._path.write_bytes(damaged(self._good, Choices(data)))
        refusal = ""
        try:
            for number, _ in enumerate(recording.read(self._path)):
                assert number < MOST_EVENTS
        except LocalError as error:
            refusal = str(error)
        assert "\n" not in refusal


def good(path: Path) -> bytes:
    """Return a recording of three frames, between which a table was changed."""
    settings = {"cpu_port": 510, "drop_port": 511, "priority_queues": 1, "max_passes": 8}
    capture = Capture(path, cpu_port=510, settings=settings)
    frames = np.frombuffer(bytes(range(96)), np.uint8)
    address = np.array([frames.ctypes.data], np.uint64)
    for port in (1, 2, 510):
        capture.sent(np.array([port], np.uint64), address, np.array([len(frames)], np.uint64))
        capture.changed(v1.WriteRequest(device_id=0, updates=[v1.Update(type=v1.Update.INSERT)]))
    capture.close()
    return path.read_bytes()


def seeds() -> Iterator[bytes]:
    """Return inputs that damage blocks all over the file."""
    for place in range(0, 1024, 24):
        yield bytes([1, 1, place // 256, place % 256, 4, 3, 255, 1, 2, 3, place // 256, place % 256, 9, 1, 3])
