"""Allreduce over ordinary UDP sockets on the loopback, the way without root: the embedded switch alone."""

from __future__ import annotations

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record

TAKES = swept.TAKES


def run(choice: Choice) -> list[Record]:
    """Measure each lane build."""
    return swept.records("udp", choice, lambda cell: "allreduce.udp")
