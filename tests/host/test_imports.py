"""What a worker imports: what its job does not use is imported by those that use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from switchsum.testing.local import communicators

from ..line_counts import lines_of_module

# Records of what ranks must have alike, and recovery that knows the path and the age of answers, are about 530 of them.
MOST_LINES = {"": 11_966, "shm": 13_204, "udp": 13_335, "packet": 14_004}
"""Of our own modules that `connect` reaches, and that a worker has with a link of a kind, without the docstrings of
calls that have sections. They fall as modules become fewer, and rise for a reason alone. Kernels are among them,
whose code is on disk: to name them by strings saved 13 ms of a start, and nobody found them."""
COUNT = """
import importlib, sys
import switchsum_host.connect
if sys.argv[1]:
    importlib.import_module(f"switchsum_host.links.{sys.argv[1]}")
modules = {name: module for name, module in sys.modules.items() if name.startswith("switchsum")}
print(*(module.__file__ for module in modules.values() if module.__file__))
print(*modules)
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


@pytest.mark.parametrize("link", MOST_LINES)
def test_a_worker_imports_no_more_than_it_needs(link: str) -> None:
    done = subprocess.run([sys.executable, "-c", COUNT, link], check=True, capture_output=True, text=True)
    files, modules = done.stdout.splitlines()
    assert sum(lines_of_module(Path(file).read_text()) for file in files.split()) <= MOST_LINES[link]
    others = {f"links.{other}" for other in MOST_LINES if other not in ("", link)}
    assert set(modules.split()).isdisjoint({f"switchsum_host.{name}" for name in (*UNUSED, *others)})
    assert "numba" not in modules
    assert not [name for name in modules.split() if name.startswith("switchsum_lab.conform")]


def test_only_its_command_and_what_is_not_product_import_the_kit_for_other_switches() -> None:
    root = Path(__file__).parents[2]
    folders = (
        "protocol",
        "native",
        "connections",
        "switch",
        "controller",
        "host",
        "p4src",
        "src/switchsum",
        "exercises",
    )
    paths = [path for folder in folders for path in (root / folder).rglob("*.py")]
    naming = {path.relative_to(root).as_posix() for path in paths if "switchsum_lab.conform" in path.read_text()}
    assert naming == {"lab/src/switchsum_lab/cli/conform.py"}
    assert len(paths) > 300


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
