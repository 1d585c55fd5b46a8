"""The calls of a program's native code from a kernel."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import call

ENTRY_WORDS: Final = 12
"""Words of `CodeEntry.arguments`."""


@inner
def call_program(
    entry: npt.NDArray[np.int64], addresses: int, lengths: int, ports: int, count: int, now_us: int
) -> Any:
    """Run frames through the program behind `entry`; return how many ran.

    `addresses`, `lengths` and `ports` are the addresses of a batch's columns, `count` its frames.
    """
    return call(
        *(entry[0], entry[1], addresses, lengths, ports, count, now_us),
        *(entry[2], entry[3], entry[4], entry[5], entry[6], entry[7], entry[8], entry[9], entry[10]),
    )


@inner
def call_egress(entry: npt.NDArray[np.int64], places: int, count: int, now_us: int) -> Any:
    """Run packets that have waited (`parking.py`) through egress; return how many ran.

    `places` is the address of an array of the addresses of their `count` places, which stay the caller's.
    """
    return call(
        *(entry[11], entry[1], places, count, now_us),
        *(entry[2], entry[3], entry[4], entry[5], entry[6], entry[7], entry[8], entry[9], entry[10]),
    )
