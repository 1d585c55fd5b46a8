"""Sums of all rows, as the last calls came to: they begin at once, without a first step that tells how many there are.

While the values travel, ranks tell each other in one word that nothing is wrong, and that each still has nearly all
rows.  The word is zero then, and needs only a header.  If a rank has few rows now, the sum is right all the same: what
it lacks is zero.  The next call asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from switchsum_protocol.errors import SumOverflow

from ..engine.operation import EACH
from . import collectives, each
from .collectives import Array, Options, Way
from .expected import Dense, Key
from .operation_queue import Handle
from .steps import LastStep
from .supports import FAULT, OVERFLOW, Begins, raise_faults
from .ways import DENSE_FROM

_FEWER: Final = 4
_OTHER_CALL: Final = 8
"""Flags beside FAULT and OVERFLOW: this rank has no longer nearly all rows, or calls something else than before."""
_MOST_SAMPLED: Final = 256
_VALUES_SAMPLED: Final = 1 << 13
"""Blocks that are looked at, and their values. A guess will do: if it is wrong, the next call takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What a rank calls."""

    called: str
    """The call: what all ranks must agree in."""
    count: int
    """Rows that this rank has."""
    rows: int
    """Rows of the whole array."""
    values: Callable[[], Array]
    """Makes the whole array, which is overwritten."""
    seems_dense: bool
    """Whether this rank has nearly all rows, as far as that is known."""
    fault: str = ""
    """What is wrong with the arguments."""
    overflow: bool = False
    """Whether values of a repeated index do not fit."""


def begin(
    comm: Begins, key: Key, known: Dense, own: Own, background: bool, finish: Callable[[Array], Any]
) -> LastStep | None:
    """Begin the sum that the last calls were; `finish` gets the sums, and returns the result.

    A rank that calls something else adds zeros.  Then nothing has come of it, and None is returned on all ranks: they
    begin as ever.  Raises what `supports.raise_faults` does, once the sum has ended.
    """
    is_other = own.called != known.called
    flags = FAULT if own.fault else (OVERFLOW * own.overflow | _FEWER * (not own.seems_dense) | _OTHER_CALL * is_other)
    news = np.array([flags], np.uint64)
    told = comm.allreduce_async(news, "or", label=f"{known.called}, all rows", background=False)
    values = np.zeros(known.shape, known.dtype) if own.fault or is_other else own.values()
    handle = begin_sum(comm, values, known.how, background)
    if not background:  # this thread waits for the sum in any case, and so it waits once
        with suppress(SumOverflow):
            handle.wait()
    told.wait()
    flags = int(news[0])
    expected = comm.expected.pop(key)
    if flags & (FAULT | OVERFLOW | _OTHER_CALL):
        with suppress(SumOverflow):
            handle.wait()
        raise_faults(0 if flags & _OTHER_CALL and not flags & FAULT else flags, own.fault, own.called)
        return None
    if not flags:
        comm.expected[key] = expected  # as the newest
    comm.supports += np.array([own.count, own.rows, own.rows])
    comm.ways[Way.ALL] += 1
    return LastStep(handle=handle, finish=lambda: finish(values))


def begin_sum(comm: Begins, array: Array, how: Options, background: bool) -> Handle:
    """Begin an ordinary sum in place."""
    if how.lanes == EACH:
        return each.begin(comm, collectives.allreduce(array, how, comm.ranks), background=background)
    return comm.allreduce_async(array, how.operator, lanes=how.lanes, saturate=how.saturate, background=background)


def seems_dense(whole: Array, block: int) -> bool:
    """Tell by some of the whole blocks of a flat array whether nearly all of them have a value that is not zero."""
    blocks = whole[: len(whole) // block * block].reshape(-1, block)
    most = max(1, min(_MOST_SAMPLED, _VALUES_SAMPLED // block))
    some = blocks[:: max(1, len(blocks) // most)]
    return int(some.astype(bool).any(axis=1).sum()) >= DENSE_FROM * len(some)
