"""Compile the engine's kernels before any frame is on its way: no time-out waits for a compiler."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

from switchsum.host.engine import Engine, EngineConfig
from switchsum.host.memory import address_of
from switchsum.host.operation import Operation
from switchsum.host.shm_loop import ShmLoop
from switchsum.host.transport.base import Frames
from switchsum.host.transport.shm import LinkEnd
from switchsum.protocol.kernels import kernel_directory
from switchsum.protocol.ring import LINK_FIELDS, OutboxLayout, fill_link, next_power_of_two
from switchsum.protocol.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.system import watch
from switchsum.protocol.wire import FRAME_BYTES, LANE_BYTES, Address


def warm_up() -> None:
    """Compile every kernel of the engine, or load it; of processes that start together one compiles."""
    directory = kernel_directory()
    with nullcontext() if directory is None else _locked(directory / "warm-up"):
        nowhere = Address(mac=0, ip=0, port=0)
        config = EngineConfig(
            rank=0, world_size=1, job=0, epoch=0, lanes=1, switch=nowhere, own=nowhere, window_slots=1
        )
        rows = allocate_rows(2, FRAME_BYTES + LANE_BYTES)
        engine = Engine(config, rows, LEAD_BYTES)
        engine.submit(Operation(kind="allreduce", values=np.ones(1, np.int32), shape=(1,)), 0.0)
        engine.poll(min(engine.wake_at, 0.0))
        engine.receive(rows, np.zeros(1, np.int32), np.full(1, FRAME_BYTES, np.int32), 0.0)
        _loop_once(engine, rows)


def _loop_once(engine: Engine, rows: Frames) -> None:
    """Run the loop over a shared-memory link whose other end is nobody."""
    layout = OutboxLayout(rows=len(rows), capacity=next_power_of_two(len(rows)), frame_bytes=FRAME_BYTES + LANE_BYTES)
    outboxes, link = np.zeros((2, layout.total_bytes), np.uint8), np.zeros(LINK_FIELDS, np.int64)
    fill_link(link, layout, address_of(outboxes[0]), layout, address_of(outboxes[1]))
    room = np.zeros(len(rows), np.int32)
    end = LinkEnd(link=link, answers=rows, rows=room, lengths=room, watched=watch([-1, -1]), switch_bell=-1, spins=0)
    ShmLoop(engine, end).run(0.0)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
