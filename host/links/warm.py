"""Compile the engine's kernels before any frame is on its way: no time-out waits for a compiler."""

from __future__ import annotations

import numpy as np

from switchsum.native.compiling import together
from switchsum.native.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.frame import FRAME_BYTES, LANE_BYTES
from switchsum.protocol.wire import Address

from ..engine.loop import prepare_loop
from ..engine.operation import Operation
from ..engine.worker import Engine, EngineConfig
from .base import Frames, Transport
from .driver import Driver
from .shm import ShmTransport


def warm_up(link: str = "") -> None:
    """Compile every kernel of the engine, or load it; of processes that start together one compiles.

    With a link, as `connect` takes it, those of its loop as well, where they need nothing that a switch gives.
    """
    with together():
        engine, rows = _idle()
        values = np.ones(1, np.int32)
        engine.submit(Operation.of(values), values, 0.0)
        engine.poll(min(engine.wake_at, 0.0))
        engine.receive(rows, np.zeros(1, np.int32), np.full(1, FRAME_BYTES, np.int32), 0.0)
        prepare_loop()
        if link.startswith("shm:"):
            ShmTransport.compile()


def warm_up_on(transport: Transport) -> None:
    """Compile what drives a transport, on which nothing has come yet, or load it."""
    with together():
        Driver(_idle()[0], transport).step(0.0)


def _idle() -> tuple[Engine, Frames]:
    """Return an engine of a job of its own, and its frames."""
    nowhere = Address(mac=0, ip=0, port=0)
    config = EngineConfig(
        rank=0, world_size=1, job=0, epoch=0, lanes_per_frame=1, cookie=0, switch=nowhere, own=nowhere, window_slots=1
    )
    rows = allocate_rows(2, FRAME_BYTES + LANE_BYTES)
    return Engine(config, rows, LEAD_BYTES), rows
