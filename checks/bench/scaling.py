"""What more workers cost: the same array on the same links with 2 to 16 of them."""

from __future__ import annotations

import os

from checks.bench import swept
from checks.bench.choice import Choice
from checks.bench.records import Record

TAKES = swept.TAKES


def run(choice: Choice) -> list[Record]:
    """Measure each number of workers, beside gloo; nothing without root."""
    if os.geteuid() != 0:
        return []
    return swept.records("scaling", choice, lambda cell: f"scaling.{swept.rate_of(cell)}")
