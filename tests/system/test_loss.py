"""Real processes on real links, with every degree of loss."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from switchsum.controller.rpc_client import ControllerClient
from switchsum.protocol import rpc

from .parts import Parts

ROUNDS = 100
"""To be completed at each degree of loss."""
LONG_S = 60.0


@pytest.mark.timeout(200)
@pytest.mark.parametrize("links", ["shm", "udp"])
def test_sums_are_right_at_any_loss(tmp_path: Path, links: str) -> None:
    with ExitStack() as stack:
        parts = Parts(stack, tmp_path, size=3, links=links)
        _, _, workers = parts.start("endless.py", timeout_s=60.0)
        for loss in (0.001, 0.01, 0.05, 0.2):
            parts.ask(partial(_set_loss, loss))
            lost, completed = parts.count("lost_ingress"), parts.count("completed")
            deadline = time.monotonic() + LONG_S
            while parts.count("completed") < completed + ROUNDS or parts.count("lost_ingress") == lost:
                assert time.monotonic() < deadline, loss
                time.sleep(0.05)
        parts.end_well(workers)


def _set_loss(loss: float, client: ControllerClient) -> None:
    client.set_loss(rpc.LossRequest(ingress=loss, egress=loss))
