"""A switch whose packets come from pcap files and go to pcap files, as BMv2's `--use-files` has it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from switchsum.native.kernels.atomics import copy_bytes
from switchsum.native.kernels.decorators import kernel
from switchsum.switch.batch import Output
from switchsum.switch.pipeline import Pipeline
from switchsum.switch.ports.port_set import BATCH_FRAMES
from switchsum.switch.v1model import QUEUE_SHIFT

FILE_HEAD: Final = struct.Struct("=IHHiIII")
RECORD_HEAD: Final = struct.Struct("=IIII")
"""Seconds, microseconds, bytes that are here, bytes of the packet."""
_MAGIC, _SNAP_BYTES, _ETHERNET = 0xA1B2C3D4, 1 << 16, 1
_HEAD_BYTES: Final = RECORD_HEAD.size
_PORT_MASK: Final = (1 << QUEUE_SHIFT) - 1


def file_head() -> bytes:
    """Return what a file begins with."""
    return FILE_HEAD.pack(_MAGIC, 2, 4, 0, 0, _SNAP_BYTES, _ETHERNET)


def write_pcap(path: Path, frames: Sequence[bytes], repeats: int) -> None:
    """Write frames to a file, so many times."""
    once = b"".join(RECORD_HEAD.pack(0, 0, len(frame), len(frame)) + frame for frame in frames)
    with path.open("wb") as file:
        file.write(file_head())
        for _ in range(repeats):
            file.write(once)


def read_pcap(path: Path) -> list[bytes]:
    """Return the frames of a file."""
    data = np.fromfile(path, np.uint8)
    addresses, lengths = _records(data)
    starts = addresses.astype(np.int64) - data.ctypes.data
    return [data[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)]


def run_files(pipeline: Pipeline, port: int, arrived: Path, left: Path, ports: int) -> int:
    """Run the frames of one file, which arrive at `port`; return how many leave.

    Those that leave by port 1 are written to `left` with the suffix .1, and so on.
    """
    data = np.fromfile(arrived, np.uint8)
    addresses, lengths = _records(data)
    count = len(addresses)
    entered = np.full(count, port, np.uint32)
    output = Output(8 * BATCH_FRAMES, 32 << 20)
    buffer = np.zeros(len(output.arena) + _HEAD_BYTES * len(output.ports), np.uint8)
    files = [left.with_suffix(f".{number}").open("wb") for number in range(1, ports + 1)]
    for file in files:
        file.write(file_head())
    done = written = 0
    while done < count:
        batch = slice(done, min(done + BATCH_FRAMES, count))
        size = batch.stop - batch.start
        done += pipeline.process_batch(addresses[batch], lengths[batch], entered[batch], size, output)
        written += output.count
        for number, file in enumerate(files, 1):
            used = _write(number, output.count, output.ports, output.addresses, output.lengths, buffer)
            file.write(buffer[:used].data)
    for file in files:
        file.close()
    return written


def _records(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]:
    """Return where the frames of a file lie in memory, and how long they are."""
    # No record is shorter than its head.
    starts = np.zeros(len(data) // _HEAD_BYTES, np.int64)
    lengths = np.zeros(len(starts), np.uint32)
    count = _find_records(data, starts, lengths)
    return (starts[:count] + data.ctypes.data).astype(np.uint64), lengths[:count]


@kernel
def _find_records(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.uint32]) -> int:
    count = 0
    at = 24
    while at + _HEAD_BYTES <= len(data):
        length = int(data[at + 8]) | int(data[at + 9]) << 8 | int(data[at + 10]) << 16 | int(data[at + 11]) << 24
        starts[count], lengths[count] = at + _HEAD_BYTES, length
        at += _HEAD_BYTES + length
        count += 1
    return count


@kernel
def _write(
    port: int,
    count: int,
    ports: npt.NDArray[np.uint32],
    addresses: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint32],
    buffer: npt.NDArray[np.uint8],
) -> int:
    """Write records of the frames that leave by a port to a buffer; return how many bytes these are."""
    used = 0
    start = buffer.ctypes.data
    for i in range(count):
        if int(ports[i]) & _PORT_MASK == port:
            length = int(lengths[i])
            for offset in range(8):
                buffer[used + offset] = 0
            for offset in range(4):
                buffer[used + 8 + offset] = buffer[used + 12 + offset] = (length >> (8 * offset)) & 0xFF
            copy_bytes(int(start + used + _HEAD_BYTES), int(np.int64(addresses[i])), length)
            used += _HEAD_BYTES + length
    return used
