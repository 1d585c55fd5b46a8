"""Topology files in YAML into the reader: networks whose text is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from checks.fuzz.choices import Choices
from checks.fuzz.damage import HOSTILE, damaged, scratch_folder
from switchsum.planning.topology import TopologyError, load

GOOD: Final = b"""switches: [s1, s2]
hosts: {h1: 10.0.0.1, h2: 10.0.0.2, h3: }
mbit: 100
links:
  - {between: [h1, s1], mbit: 200.5, reserved: 50}
  - {between: &a [h2, s2]}
  - between: [s1, s2]
  - between: [h3, s2]
jobs: {digits: [h1, h2], other: [h1, h3]}
"""
ALIASES: Final = (
    b"*a",
    b"&b [*a, *a, *a, *a, *a, *a, *a, *a]",
    b"<<: *a",
    b"? ",
    b"!!python/object:x.y ",
    b"!!binary ",
)
MOST_TEXT: Final = 100_000


class Target:
    """Reads a file; an error is short and can be printed."""

    def __init__(self) -> None:
        self._path = scratch_folder() / "network.yaml"

    def run(self, data: bytes) -> None:
        """Read one file."""
        self._path.write_bytes(damaged(GOOD, Choices(data), (*HOSTILE, *ALIASES)))
        refusal = ""
        try:
            load(self._path)
        except TopologyError as error:
            refusal = str(error)
        assert len(refusal) < MOST_TEXT
        assert refusal.replace("\n", "").isprintable(), refusal


def seeds() -> Iterator[bytes]:
    """Return inputs that replace parts all over the file."""
    for place in range(0, len(GOOD), 32):
        yield bytes([1, 2, 0, place, 4, 0, place % 26, 0, place * 3 % 256, 9, 1, 3])
