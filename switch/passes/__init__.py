"""Passes over the IR that make native code fast; each keeps what a program does."""

from __future__ import annotations

from switchsum.switch.passes.analysis import is_wide, live_out, reads, written
from switchsum.switch.passes.gather import gather_tests
from switchsum.switch.passes.lanes import split_carries
from switchsum.switch.passes.repeat import narrow_repeated

__all__ = ["gather_tests", "is_wide", "live_out", "narrow_repeated", "reads", "split_carries", "written"]
