"""Allreduce on one machine, nothing limited: shared-memory links beside gloo over the loopback and Open MPI."""

from __future__ import annotations

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record

TAKES = swept.TAKES


def run(choice: Choice) -> list[Record]:
    """Measure each number of workers: every lane build, and the others."""
    return swept.records("allreduce", choice, lambda cell: "allreduce.shm")
