"""Compile the engine's kernels before any frame is on its way: no time-out waits for a compiler."""

from __future__ import annotations

import numpy as np

from switchsum.host import exact
from switchsum.host.driver import Driver
from switchsum.host.engine import Engine, EngineConfig
from switchsum.host.operation import Operation
from switchsum.host.transport.base import Transport
from switchsum.protocol.compiling import together
from switchsum.protocol.rows import LEAD_BYTES, allocate_rows
from switchsum.protocol.wire import FRAME_BYTES, LANE_BYTES, Address


def warm_up(transport: Transport | None = None) -> None:
    """Compile every kernel of the engine, or load it; of processes that start together one compiles.

    With a transport, on which nothing has come yet, those that drive it as well.
    """
    with together():
        nowhere = Address(mac=0, ip=0, port=0)
        config = EngineConfig(
            rank=0, world_size=1, job=0, epoch=0, lanes=1, cookie=0, switch=nowhere, own=nowhere, window_slots=1
        )
        rows = allocate_rows(2, FRAME_BYTES + LANE_BYTES)
        engine = Engine(config, rows, LEAD_BYTES)
        engine.submit(Operation(kind="allreduce", values=np.ones(1, np.int32), shape=(1,)), 0.0)
        exact.put_sums(exact.digits_of(np.ones(1, np.float32)), 1.0, np.ones(1, np.float32))
        engine.poll(min(engine.wake_at, 0.0))
        engine.receive(rows, np.zeros(1, np.int32), np.full(1, FRAME_BYTES, np.int32), 0.0)
        if transport is not None:
            idle = Engine(config, rows, LEAD_BYTES)
            Driver(idle, transport).step(0.0)
