"""How kernels call a program."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.protocol.kernels import inner
from switchsum.protocol.memory import call

ENTRY_WORDS: Final = 11
"""Words of `Entry.arguments`."""


@inner
def call_program(
    entry: npt.NDArray[np.int64], addresses: int, lengths: int, ports: int, count: int, now_us: int
) -> Any:
    """Run frames through native code; return how many ran.

    Its entry; addresses of the columns of addresses, lengths and ports; how many; and the time in microseconds.
    """
    return call(
        *(entry[0], entry[1], addresses, lengths, ports, count, now_us),
        *(entry[2], entry[3], entry[4], entry[5], entry[6], entry[7], entry[8], entry[9], entry[10]),
    )
