"""Passes over the IR that make native code fast; none of them changes what a program does.

In this order: `leave_out_remarks` (only traces show them), `gather_tests` (many tests of wide values become one),
`narrow_repeated` (wide masks become words), `split_carries` (wide additions become additions of lanes).  The last three
are written for what p4c makes of `p4src/lanes.p4`, and leave other programs as they are.
"""

from __future__ import annotations

from .analysis import is_wide, live_out, reads, written
from .gather import gather_tests
from .lanes import split_carries
from .remarks import leave_out_remarks
from .repeat import narrow_repeated

__all__ = [
    "gather_tests",
    "is_wide",
    "leave_out_remarks",
    "live_out",
    "narrow_repeated",
    "reads",
    "split_carries",
    "written",
]
