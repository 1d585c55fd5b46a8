"""Files of several switches into the controller's reader: JSON that is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from checks.fuzz.choices import Choices
from checks.fuzz.damage import damaged, scratch_folder
from switchsum_controller.trees import fleet_file
from switchsum_protocol.errors import UsageError

GOOD: Final = b"""{"link_bytes": 9000, "switches": {
 "root": {"p4runtime": "unix:/tmp/root", "udp": "127.0.0.1:5000"},
 "leaf1": {"p4runtime": "127.0.0.1:9559", "port": 3, "ports": {"root": 3}, "stations": {"02:00:00:00:00:01": 1}},
 "leaf2": {"p4runtime": "[::1]:9559", "udp": "10.0.0.2:5000", "stations": {}}},
 "trees": [{"above": {"leaf1": "root", "leaf2": "root"}, "share": 1.5}]}"""
MOST_TEXT: Final = 20_000


class Target:
    """Reads a file; an error is one line."""

    def __init__(self) -> None:
        self._path = scratch_folder() / "fleet.json"

    def run(self, data: bytes) -> None:
        """Read one file."""
        self._path.write_bytes(damaged(GOOD, Choices(data)))
        refusal = ""
        try:
            fabric = fleet_file.load(self._path, 256)
        except UsageError as error:
            refusal = str(error)
        else:
            assert all(one.p4runtime.isprintable() for one in fabric.switches.values())
        assert len(refusal) < MOST_TEXT
        assert "\n" not in refusal


def seeds() -> Iterator[bytes]:
    """Return inputs that replace parts all over the file."""
    for place in range(0, len(GOOD), 16):
        yield bytes([1, 1, place // 256, place % 256, 6, 0, place % 20, place // 256, place % 256, 9, 1, 3])
