"""What a worker imports: what its job does not use is imported by those that use it."""

from __future__ import annotations

import subprocess
import sys
from types import FrameType

import numpy as np
import pytest

from switchsum.testing.local import communicators

LINKS = ("", "shm", "udp", "packet")
IMPORT = """
import importlib, sys
import switchsum_host.connect
if sys.argv[1]:
    importlib.import_module(f"switchsum_host.links.{sys.argv[1]}")
print(*sys.modules)
"""
UNUSED = (
    "api.statistics",
    "api.sparse",
    "api.bitmap",
    "api.steps",
    "compress",
    "links.scapy_transport",
    "links.scapy_layer",
)
"""Parts of the host that most jobs do without."""


@pytest.mark.parametrize("link", LINKS)
def test_a_worker_imports_no_more_than_it_needs(link: str) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT, link], check=True, capture_output=True, text=True)
    modules = set(done.stdout.split())
    others = {f"links.{other}" for other in LINKS if other not in ("", link)}
    assert modules.isdisjoint({f"switchsum_host.{name}" for name in (*UNUSED, *others)})
    assert modules.isdisjoint({"numba", "switchsum_controller", "switchsum_lab"})
    assert "switchsum_host.engine.engine" in modules


ON_THE_WAY = {"api.communicator", "api.operation_queue", "engine.loop", "engine.engine"}
"""Modules between a call and the link; docs/design.md names them."""
THE_LINK = {"links.callbacks", "links.base"}


def test_a_call_like_one_before_crosses_four_modules() -> None:
    [communicator] = communicators(1)
    array = np.ones(100_000, np.float32)
    communicator.allreduce(array)
    crossed = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        name = str(frame.f_globals.get("__name__"))
        if event == "call" and name.startswith("switchsum_host."):
            crossed.add(name.removeprefix("switchsum_host."))

    sys.setprofile(note)
    try:
        communicator.allreduce(array)
    finally:
        sys.setprofile(None)
    communicator.close()
    assert crossed - THE_LINK == ON_THE_WAY
