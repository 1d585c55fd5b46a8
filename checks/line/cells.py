"""The cells: links over veth with tc's token buckets, and what they must hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchsum.launch.wires import BURST_BYTES
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

SHARE: Final = 0.85
"""Least share of the line that each call must reach, in the better of two tries."""
REPEATS: Final = 0.05
"""Most repeats for each contribution."""
CALL_S: Final = 2.0
"""Seconds of the line that a timed call takes."""
SPENT_BYTES: Final = BURST_BYTES * 5 // 4
"""Bytes of the sum that spends the buckets before the clock runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One job on links of one kind."""

    name: str
    workers: int
    mbit: float
    """Rate of the slowest link in Mbit/s: a host's, or the trunk's in racks."""
    lanes: int
    slots: str = "auto"
    racks: int = 0
    """0: a star.  Else so many racks, whose trunks are ten times slower than the links of hosts."""

    @property
    def bytes_per_s(self) -> float:
        """What the line carries of an array, in bytes/s: 256 lanes are 1,024 bytes of a frame of 1,114."""
        payload = payload_bytes(self.lanes)
        return self.mbit * 1e6 / 8 * payload / (FRAME_BYTES + payload)

    @property
    def call_bytes(self) -> int:
        """Size of the array that a timed call adds."""
        return round(CALL_S * self.bytes_per_s) // 4 * 4

    @property
    def is_slow(self) -> bool:
        """Whether the processor has so little to do that several such cells may run side by side."""
        return self.mbit <= 10

    def options(self, topology: str) -> list[str]:
        """Return the options of `switchsum run`; `topology` is the path of the file that `write_topology` wrote."""
        given = ["-n", str(self.workers), "--lanes", str(self.lanes), "--slots", self.slots, "--links", "veth"]
        return [*given, "--topology", topology] if self.racks else [*given, "--rate", f"{self.mbit:g}mbit"]

    def topology(self) -> str:
        """Return the network in YAML, as docs/topologies.md describes it."""
        hosts = [f"h{number}" for number in range(self.workers)]
        lines = ["switches: {" + ", ".join(f"{name}: {{}}" for name in ["root", *self._leaves]) + "}"]
        lines += ["hosts:", *(f"  {host}: 10.0.0.{number + 1}" for number, host in enumerate(hosts))]
        lines += [f"mbit: {10 * self.mbit:g}", "links:"]
        lines += [f"  - {{between: [{leaf}, root], mbit: {self.mbit:g}}}" for leaf in self._leaves]
        each = -(-self.workers // self.racks)
        lines += [f"  - {{between: [{host}, {self._leaves[i // each]}]}}" for i, host in enumerate(hosts)]
        return "\n".join([*lines, f"jobs: {{line: [{', '.join(hosts)}]}}", ""])

    @property
    def _leaves(self) -> list[str]:
        return [f"leaf{number + 1}" for number in range(self.racks)]


CELLS: Final = (
    Cell(name="2 Mbit/s", workers=4, mbit=2, lanes=256),
    Cell(name="2 Mbit/s jumbo", workers=4, mbit=2, lanes=2048, slots="64"),
    Cell(name="5 Mbit/s", workers=8, mbit=5, lanes=256, slots="64"),
    Cell(name="5 Mbit/s jumbo", workers=8, mbit=5, lanes=2048),
    Cell(name="racks 10 Mbit/s", workers=6, mbit=10, lanes=256, racks=2),
    Cell(name="100 Mbit/s", workers=4, mbit=100, lanes=256),
    Cell(name="100 Mbit/s jumbo 64", workers=8, mbit=100, lanes=2048, slots="64"),
    Cell(name="100 Mbit/s jumbo", workers=8, mbit=100, lanes=2048),
)
"""Both MTUs, 4 and 8 workers, few slots and as many as members keep in flight, a star and racks."""
