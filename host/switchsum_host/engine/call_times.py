"""When the latest operations began and ended: what reports tell the controller, which finds out who comes late."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.records import Int64, Record

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CALLS: Final = 256
"""Operations whose times are kept."""
TOGETHER: Final = 64
"""Times are kept, or left out, for so many operations in a row; all ranks keep those of the same operations."""


class CallTimes(Record):
    """Times of the latest operations, as rings."""

    sieve: Int64
    """Bits that must be zero in a row's number, for each row of `TOGETHER`: other rows are not kept."""
    count: Int64
    """Operations that were ever kept; the next one's place is this, modulo `CALLS`."""
    waits: Int64
    """1: somebody has waited for a result since an operation was begun."""
    serial: Annotated[Integers, "i8", CALLS]
    digest: Annotated[Integers, "i8", CALLS]
    """Digest of the operation, without its number."""
    begun_at: Annotated[Floats, "f8", CALLS]
    ended_at: Annotated[Floats, "f8", CALLS]
    """0: it is under way."""
    waited: Annotated[Integers, "i8", CALLS]
    """1: somebody waited between the begin of the operation before and of this one."""


@inner
def keep_begin(calls: CallTimes, digest: int, serial: int, now: float) -> Scalar:
    """Keep when an operation begins, unless it is left out; return the place, for its end."""
    place = calls.count % CALLS
    if serial // TOGETHER & calls.sieve == 0:
        calls.serial[place] = serial
        calls.digest[place] = digest
        calls.begun_at[place] = now
        calls.ended_at[place] = 0.0
        calls.waited[place] = calls.waits
        calls.count += 1
    calls.waits = 0
    return place


@inner
def keep_end(calls: CallTimes, place: int, serial: int, now: float) -> None:
    """Keep when an operation ends, unless it was left out, or newer ones are kept in its place."""
    if calls.serial[place] == serial:
        calls.ended_at[place] = now
