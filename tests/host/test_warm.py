"""Compiling beforehand leaves nothing to compile later."""

from __future__ import annotations

from typing import Any

import numpy as np

from switchsum.host import machine
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
