"""Compiling beforehand leaves nothing to compile later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from switchsum.host import connect, machine
from switchsum.host.warm import warm_up
from switchsum.testing.cluster import Cluster, ClusterConfig


def signatures() -> list[int]:
    entries: list[Any] = [machine.submit, machine.poll, machine.receive, machine.wake_at]
    return [len(entry.signatures) for entry in entries]


def test_after_warming_up_no_operation_compiles_anything() -> None:
    warm_up()
    assert signatures() == [1] * 4
    cluster = Cluster(ClusterConfig(workers=2))
    for dtype in (np.float32, np.float16, np.int32):
        cluster.allreduce([np.ones(100, dtype) for _ in range(2)])
    assert signatures() == [1] * 4


def test_a_worker_compiles_before_it_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def join(*_: object, **__: object) -> None:
        raise ConnectionError(f"joins, having compiled for {compiled}")

    monkeypatch.setattr(connect, "warm_up", compiled.append)
    monkeypatch.setattr(connect, "Membership", join)
    with pytest.raises(ConnectionError, match="shm:here"):
        connect.connect(controller="127.0.0.1:1", job="job", rank=0, world_size=1, link="shm:here")
