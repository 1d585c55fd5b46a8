"""What a worker imports: what its job does not use is imported by those that use it."""

from __future__ import annotations

import subprocess
import sys

MOST_LINES = 11_105
"""Of our own modules that `connect` reaches; it falls as these become fewer, and rises for a reason alone."""
COUNT = """
import sys
import switchsum.host.connect
from pathlib import Path

modules = {name: module for name, module in sys.modules.items() if name.startswith("switchsum")}
print(sum(Path(module.__file__).read_text().count("\\n") for module in modules.values() if module.__file__))
print(*modules)
"""
UNUSED = (
    "api.statistics",
    "api.sparse",
    "api.bitmap",
    "api.steps",
    "compress",
    "links.udp",
    "links.scapy_transport",
    "links.scapy_layer",
)
"""Parts of the host that most jobs do without."""


def test_connect_reaches_no_more_than_it_needs() -> None:
    done = subprocess.run([sys.executable, "-c", COUNT], check=True, capture_output=True, text=True)
    lines, modules = done.stdout.splitlines()
    assert int(lines) <= MOST_LINES
    assert set(modules.split()).isdisjoint({f"switchsum.host.{name}" for name in UNUSED})
    assert "numba" not in modules
