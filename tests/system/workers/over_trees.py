"""A rank that adds, and that reaches rank 0 by TCP, as PyTorch's ranks do; rank 0 writes what each switch took."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import numpy as np

import switchsum
from switchsum_protocol.clients.controller_client import ControllerClient

VALUES = 100_000
meeting = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
with switchsum.connect() as comm:
    listener = socket.create_server(meeting) if comm.rank == 0 else None
    comm.barrier()
    if listener is not None:
        for _ in range(comm.world_size - 1):
            listener.accept()[0].close()
    else:
        socket.create_connection(meeting).close()
    values = np.arange(VALUES, dtype=np.int32) + comm.rank
    comm.allreduce(values)
    expected = comm.world_size * np.arange(VALUES) + sum(range(comm.world_size))
    assert (values == expected).all()
    comm.barrier()
    if comm.rank == 0:
        with ControllerClient(os.environ["SWITCHSUM_CONTROLLER"]) as client:
            took = {one.switch: one.contributions for one in client.statistics().switches}
        Path(os.environ["RESULT"]).write_text(json.dumps(took))
    comm.barrier()
