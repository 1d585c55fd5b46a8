"""A switch whose packets come from pcap files and go to pcap files, as BMv2's `--use-files` has it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.kernels.atomics import copy_bytes
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.program.v1model import QUEUE_SHIFT
from switchsum_switch.queues.batch import Output

FILE_HEAD: Final = struct.Struct("=IHHiIII")
RECORD_HEAD: Final = struct.Struct("=IIII")
"""Seconds, microseconds, bytes that are here, bytes of the packet."""
_MAGIC, _SNAP_BYTES, _ETHERNET = 0xA1B2C3D4, 1 << 16, 1
_HEAD_BYTES: Final = RECORD_HEAD.size
PIECE_BYTES: Final = 1 << 18
"""What is read of a file at once; more than the longest record."""
OUTPUT_FRAMES, OUTPUT_BYTES = 1 << 14, 32 << 20
_PORT_MASK: Final = (1 << QUEUE_SHIFT) - 1


_Item = TypeVar("_Item")


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
    data = np.fromfile(path, np.uint8)[FILE_HEAD.size :]
    starts, lengths, _ = _records(data)
    return [data[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)]


def run_files(pipeline: Pipeline, port: int, arrived: Path, left: Path, ports: int) -> int:
    """Run the frames of one file, which arrive at `port`; return how many leave.

    Those that leave by port 1 are written to `left` with the suffix .1, and so on.  As in BMv2, one thread reads, one
    runs the program, and one writes.
    """
    outputs = cycle([Output(OUTPUT_FRAMES, OUTPUT_BYTES) for _ in range(2)])
    written = 0
    with _Writer(left, ports) as writer, ThreadPoolExecutor(1) as writing:
        previous: Future[None] | None = None
        for data, starts, lengths in _ahead(_pieces(arrived)):
            addresses = (starts + data.ctypes.data).astype(np.uint64)
            entered = np.full(len(addresses), port, np.uint32)
            done = 0
            while done < len(addresses):
                rest, output = slice(done, None), next(outputs)
                count = len(addresses) - done
                done += pipeline.process_batch(addresses[rest], lengths[rest], entered[rest], count, output)
                written += output.count
                if previous is not None:
                    previous.result()
                previous = writing.submit(writer.write, output)
        if previous is not None:
            previous.result()
    return written


class _Writer:
    """The files of the frames that leave by ports 1, 2 and so on; closed as a context manager."""

    def __init__(self, left: Path, ports: int) -> None:
        self._opened = ExitStack()
        self._files = [
            self._opened.enter_context(left.with_suffix(f".{number}").open("wb", buffering=0))
            for number in range(1, ports + 1)
        ]
        for file in self._files:
            file.write(file_head())
        self._records = np.zeros((ports, OUTPUT_BYTES + _HEAD_BYTES * OUTPUT_FRAMES), np.uint8)
        self._used = np.zeros(ports, np.int64)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def write(self, output: Output) -> None:
        """Append the frames of an output."""
        columns = output.ports, output.addresses, output.lengths
        _write(output.count, *columns, self._records, self._used)
        for file, records, size in zip(self._files, self._records, self._used.tolist(), strict=True):
            if size:
                file.write(records[:size].data)


def _ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """Yield items, each made by another thread while the one before it is used."""
    with ThreadPoolExecutor(1) as making:
        coming = making.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = making.submit(next, items, None)
            yield item


def _pieces(path: Path) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.uint32]]]:
    """Read a file piece by piece; yield each piece, where frames begin in it, and how long they are.

    A piece is overwritten by the piece after the next.
    """
    # Few buffers for all pieces, small enough for a core's cache: memory that is new to a process costs more than the
    # program.
    buffers = cycle([np.zeros(PIECE_BYTES, np.uint8) for _ in range(2)])
    rest = np.zeros(0, np.uint8)
    with path.open("rb", buffering=0) as file:
        file.seek(FILE_HEAD.size)
        for buffer in buffers:
            buffer[: len(rest)] = rest
            size = file.readinto(buffer[len(rest) :].data)
            if not size:
                return
            whole = buffer[: len(rest) + size]
            starts, lengths, end = _records(whole)
            rest = whole[end:]
            yield whole, starts, lengths


def _records(data: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32], int]:
    """Return where the frames of the whole records in `data` begin, how long they are, and where the records end."""
    # No record is shorter than its head.
    starts, lengths = np.empty(len(data) // _HEAD_BYTES, np.int64), np.empty(len(data) // _HEAD_BYTES, np.uint32)
    count, end = _find_records(data, starts, lengths)
    return starts[:count], lengths[:count], end


@kernel
def _find_records(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.uint32]
) -> tuple[int, int]:
    count = at = 0
    while at + _HEAD_BYTES <= len(data):
        length = int(data[at + 8]) | int(data[at + 9]) << 8 | int(data[at + 10]) << 16 | int(data[at + 11]) << 24
        if at + _HEAD_BYTES + length > len(data):
            break
        starts[count], lengths[count] = at + _HEAD_BYTES, length
        at += _HEAD_BYTES + length
        count += 1
    return count, at


@kernel
def _write(
    count: int,
    ports: npt.NDArray[np.uint32],
    addresses: npt.NDArray[np.uint64],
    lengths: npt.NDArray[np.uint32],
    records: npt.NDArray[np.uint8],
    used: npt.NDArray[np.int64],
) -> None:
    """Write records of frames to the buffers of the ports by which they leave, and how many bytes these are."""
    used[:] = 0
    for i in range(count):
        row = (int(ports[i]) & _PORT_MASK) - 1
        if row < 0 or row >= len(used):
            continue
        buffer, at, length = records[row], used[row], int(lengths[i])
        for offset in range(8):
            buffer[at + offset] = 0
        for offset in range(4):
            buffer[at + 8 + offset] = buffer[at + 12 + offset] = (length >> (8 * offset)) & 0xFF
        copy_bytes(int(buffer.ctypes.data + at + _HEAD_BYTES), int(np.int64(addresses[i])), length)
        used[row] = at + _HEAD_BYTES + length
