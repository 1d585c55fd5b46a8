"""Compiling beforehand leaves nothing to compile later."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

from switchsum.host import connect
from switchsum.host.engine import machine
from switchsum.host.links.shm import ShmTransport
from switchsum.host.links.warm import warm_up
from switchsum.native import kernels
from switchsum.switch.ports.base import PortTable
from switchsum.switch.ports.port_set import PortSet
from switchsum.switch.ports.shm import ShmPorts
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


def test_after_warming_up_for_shared_memory_no_frame_compiles_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up("shm:")
    assert all("address" in vars(outlined) for outlined in ShmTransport.natives.values())
    load, loaded = kernels._load, list[str]()

    def noted(entry: Any, *arguments: Any) -> Any:
        loaded.append(f"{entry.__module__}.{entry.__qualname__}")
        return load(entry, *arguments)

    monkeypatch.setattr(kernels, "_load", noted)
    name, links = f"test-warm-{os.getpid()}", []
    ports = PortSet(table := PortTable(), [ShmPorts(name, table)])
    opening = threading.Thread(target=lambda: links.append(ShmTransport(name, rows=4, frame_bytes=128)))
    opening.start()
    while opening.is_alive():
        ports.wait(0.01)
    [link] = links
    try:
        assert link.send(np.zeros(1, np.int32), np.full(1, 128, np.int32)) == 1
        assert link.consumed == len(link.receive().rows) == 0
        link.release()
        assert not link.wait(0.01)
    finally:
        link.close()
        ports.close()
    assert [name for name in loaded if name.startswith("switchsum.host")] == []
