"""Real processes on real links, with every degree of loss."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from support.parts import Parts
from support.timing import eventually, patience
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient

ROUNDS = 100
"""To be completed at each degree of loss."""
LONG_S = 60.0


@pytest.mark.timeout(200)
@pytest.mark.parametrize("links", [pytest.param("shm", marks=pytest.mark.slow), "udp"])
def test_sums_are_right_at_any_loss(tmp_path: Path, links: str) -> None:
    with ExitStack() as stack:
        parts = Parts(stack, tmp_path, size=3, links=links)
        _, _, workers = parts.start("endless.py", timeout_s=patience(LONG_S))
        for loss in (0.001, 0.01, 0.05, 0.2):
            parts.ask(partial(_set_loss, loss))
            lost, enough = parts.count("lost_ingress"), parts.count("completed") + ROUNDS
            assert eventually(partial(_has_gone_on, parts, lost, enough), LONG_S), loss
        parts.end_well(workers)


def _has_gone_on(parts: Parts, lost: int, enough: int) -> bool:
    return parts.count("completed") >= enough and parts.count("lost_ingress") > lost


def _set_loss(loss: float, client: ControllerClient) -> None:
    client.set_loss(rpc.LossRequest(ingress=loss, egress=loss))
