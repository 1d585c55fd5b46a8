"""BMv2 alone: the same frames into simple_switch_grpc over veth pairs, every result counted.

`build` says how the BMv2 was compiled that is measured.
"""

from __future__ import annotations

import functools
import mmap
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from checks.bench.contributions import WORKERS, Contributions
from checks.bench.records import Samples
from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.rig import FIRST_SLOT, LIMITED_GROWTH, Rig
from switchsum_protocol.frame import AT, Kind
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.process.system import monotonic, poll, watch
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    NO_NAMES,
    DatagramReceiver,
    DatagramSender,
    ReceiveWords,
    receive_rows,
    send_datagrams,
)
from switchsum_switch.wires.messages import Addresses, SendWords, grow_buffers
from switchsum_switch.wires.rows import LEAD_BYTES

ROUNDS_IN_FLIGHT: Final = 48
"""Enough to keep BMv2 busy while the driver naps; more would only make it slower, by what it keeps for each packet."""
QUEUE_FRAMES: Final = 4096
NAP_S: Final = 0.0005
"""Answers are taken in batches: driver and BMv2 share the cores, and BMv2 is what is measured."""
SECONDS: Final = 1.5
STALLED_S: Final = 1.0
"""Without a result for so long frames were lost, and with them the run."""
_KIND: Final = LEAD_BYTES + AT.kind
_RESULT: Final = int(Kind.RESULT)
_SLOT: Final = LEAD_BYTES + AT.slot + 3  # slots are few: the last byte tells them
_NUMBER: Final = AT.number


_COMPILED: Final = re.compile(rb"(?:GNU C\+\+|clang version)[ -~]*?(-O[0-3s])\b")
"""What a compiler writes into debug information."""
_LOGGED: Final = b"Looking up key"
"""Begins a line that BMv2 logs for each lookup."""


@functools.cache
def build(program: str = "simple_switch_grpc") -> str:
    """Return version and flags of the BMv2 on PATH, as the file itself has them; "" if there is none."""
    path = shutil.which(program)
    if path is None:
        return ""
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout.split()
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        flags = sorted({found[1].decode() for found in _COMPILED.finditer(text)}) or ["flags that it does not tell"]
        logs = "with" if text.find(_LOGGED) >= 0 else "without"
    return f"BMv2 {said[-1] if said else 'of an unknown version'}, {' and '.join(flags)}, {logs} logging macros"


class Driver:
    """Keeps every slot of a BMv2 busy: a slot's next round starts when all workers have the last one's result."""

    def __init__(self, bmv2: Bmv2, lanes: int) -> None:
        bmv2.lengthen_queues(QUEUE_FRAMES)
        rig = Rig(bmv2, workers=WORKERS, lanes_per_frame=lanes, growth_bytes=LIMITED_GROWTH, slots=ROUNDS_IN_FLIGHT)
        frames = Contributions(rig, slots=ROUNDS_IN_FLIGHT)
        for link in bmv2.sockets:
            grow_buffers(link)
        descriptors = [link.fileno() for link in bmv2.sockets]
        watched = watch(descriptors)
        self._keep = (frames, watched)
        self._numbers = np.ones(ROUNDS_IN_FLIGHT, np.uint32)
        self._arguments = (
            *(np.array(descriptors, np.int64), watched.ctypes.data),
            *(DatagramSender().words, frames.rows[0], frames.rows.ctypes.data, NO_NAMES),
            *(DatagramReceiver(frames.frame_bytes).words, self._numbers),
        )

    def measure(self) -> float:
        """Return contributions a second; raises RuntimeError when a frame was lost."""
        took_s = np.zeros(1)
        rounds = _drive(*self._arguments, SECONDS, took_s)
        if rounds < 0:
            raise RuntimeError("BMv2 lost a frame")
        return rounds * WORKERS / float(took_s[0])


@kernel
def _drive(
    descriptors: npt.NDArray[np.int64],
    watched: int,
    sending: SendWords,
    frames: npt.NDArray[np.uint8],
    first: int,
    no_names: Addresses,
    receiving: ReceiveWords,
    numbers: npt.NDArray[np.uint32],
    seconds: float,
    took_s: npt.NDArray[np.float64],
) -> int:
    """Start rounds for so many seconds and see them all to their end; return how many, and write how long that took.

    `frames` are one contribution for each slot and worker, `first` is the address of the first.  The count is -1 when
    results stay away.
    """
    slots, workers = frames.shape[:2]
    ended, missing = np.arange(slots).astype(np.int32), np.zeros(slots, np.int64)
    rows, lengths = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
    sources = np.zeros(MOST_TAKEN, np.int64)
    ended_count, running, rounds = slots, 0, 0
    started = last = monotonic()
    while ended_count > 0 or running > 0:
        if last - started < seconds:
            missing[ended[:ended_count]] = workers
            _start(descriptors, sending, frames, first, no_names, numbers, ended[:ended_count])
            running += ended_count
        ended_count = moved = 0
        for descriptor in descriptors:
            count = receive_rows(descriptor, receiving, rows, lengths, sources)
            moved += count
            ended_count = _take(receiving.rows, rows[:count], missing, ended, ended_count)
        now = monotonic()
        if ended_count > 0:
            last = now
            rounds += ended_count
            running -= ended_count
        elif now - last > STALLED_S:
            return -1
        if moved == 0:
            poll(watched, workers, int(1e6))
            poll(0, 0, int(NAP_S * 1e9))
    took_s[0] = last - started
    return rounds


@kernel
def _start(
    descriptors: npt.NDArray[np.int64],
    sending: SendWords,
    frames: npt.NDArray[np.uint8],
    first: int,
    no_names: Addresses,
    numbers: npt.NDArray[np.uint32],
    slots: npt.NDArray[np.int32],
) -> None:
    """Send every worker's contribution to the next round of some slots."""
    _, workers, frame_bytes = frames.shape
    lengths = np.full(len(slots), frame_bytes, np.int32)
    for slot in slots:
        numbers[slot] += 1
        for byte in range(4):
            frames[slot, :, _NUMBER + byte] = (numbers[slot] >> (24 - 8 * byte)) & 0xFF
    for worker in range(workers):
        addresses = first + (slots.astype(np.int64) * workers + worker) * frame_bytes
        sent = 0
        while sent < len(slots):
            sent += send_datagrams(descriptors[worker], sending, addresses[sent:], lengths[sent:], no_names)


@kernel
def _take(
    answers: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int32],
    missing: npt.NDArray[np.int64],
    ended: npt.NDArray[np.int32],
    ended_count: int,
) -> int:
    """Note results, and in `ended` the slots that have all of theirs; return how many these are."""
    for index in rows:
        row = answers[index]
        if row[_KIND] == _RESULT:
            slot = row[_SLOT] - FIRST_SLOT
            missing[slot] -= 1
            if missing[slot] == 0:
                ended[ended_count] = slot
                ended_count += 1
    return ended_count


def bmv2_rate(lanes: int, runs: int) -> Samples:
    """Return contributions a second of real BMv2."""
    with Bmv2(lanes) as bmv2:
        driver = Driver(bmv2, lanes)
        driver.measure()
        return Samples.of(driver.measure, runs)
