"""Compiling beforehand leaves nothing to compile later."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any, NoReturn

import numpy as np
import pytest

from switchsum.testing.engine import BY_HAND
from switchsum.testing.local import communicators
from switchsum_host import connect
from switchsum_host.engine.by_hand import restore_by_hand
from switchsum_host.engine.loop import run, submit_and_run
from switchsum_host.engine.state import BLOCK_KERNELS
from switchsum_host.links.shm import ShmTransport
from switchsum_host.links.warm import warm_up
from switchsum_switch.kernels import decorators, loading, outlined
from switchsum_switch.kernels.loading import name_of
from switchsum_switch.ports.base import PortTable
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.shm import ShmPorts


def no_compiler(*_: object) -> NoReturn:
    raise AssertionError("something is compiled")


def test_after_warming_up_no_operation_compiles_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    warm_up()
    monkeypatch.setattr(outlined, "load", no_compiler)
    monkeypatch.setattr(decorators, "load", no_compiler)
    made = communicators(2)
    for dtype in (np.float32, np.float16, np.int32):
        handles = [communicator.allreduce_async(np.ones(100, dtype)) for communicator in made]
        assert all((handle.wait() == 2).all() for handle in handles)
    for communicator in made:
        communicator.queue.driver.note_restart()
        communicator.close()


def test_a_process_that_finds_its_code_imports_no_compiler() -> None:
    program = """
import sys
from switchsum_host.links.warm import warm_up
warm_up("shm:x")
print(*(name for name in sys.modules if name.startswith(("switchsum", "numba"))))
"""
    for _ in range(2):  # the first one may have to compile
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    found = set(done.stdout.split())
    assert "switchsum_host.engine.loop" in found
    assert found.isdisjoint({"numba", "switchsum_switch.kernels.compiler"})


def test_every_kernel_is_where_its_name_says() -> None:
    named = [submit_and_run, run, restore_by_hand, *BY_HAND, *BLOCK_KERNELS, *ShmTransport.natives.values()]
    for native in named:
        assert name_of(native.written()) == name_of(native)


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
    load, loaded = loading.load, list[str]()

    def noted(entry: Any, *arguments: Any) -> Any:
        loaded.append(f"{entry.__module__}.{entry.__qualname__}")
        return load(entry, *arguments)

    monkeypatch.setattr(outlined, "load", noted)
    monkeypatch.setattr(decorators, "load", noted)
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
    assert [name for name in loaded if name.startswith("switchsum_host")] == []
