"""Sums of all rows, as the last calls came to: they begin at once, without a first step that tells how many there are.

While the values travel, ranks tell each other that nothing is wrong, and that each still has nearly all rows.

- Few floats have one value more behind them, which is zero.  A rank that something is wrong with sends zeros and a NaN
  there, which makes the sum of the last frame NaN on all ranks.  Then nothing has come of it, and all ranks begin as
  ever.
- Others have a word beside them that is zero, and so needs only a header.  If a rank has few rows now, the sum is right
  all the same: what it lacks is zero.  The next call asks again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np

from switchsum_protocol.errors import SumOverflow

from ..engine.dtypes import most_values
from ..engine.operation import EACH, Operation
from . import collectives, each
from .collectives import Array, Collective, Options, Ranks, Way
from .expected import Dense, Key
from .operation_queue import Handle
from .steps import LastStep
from .supports import FAULT, OVERFLOW, Begins, raise_faults
from .ways import DENSE_FROM

_FEWER: Final = 4
_OTHER_CALL: Final = 8
"""Flags beside FAULT and OVERFLOW: this rank has no longer nearly all rows, or calls something else than before."""
_MOST_MARKED: Final = 1 << 16
"""Values of an array with one more behind them. To copy more of them takes as long as another operation."""
_MOST_SAMPLED: Final = 128
_VALUES_SAMPLED: Final = 1 << 12
"""Blocks that are looked at, and their values. A guess will do: if it is wrong, the next call takes longer."""


class Own(NamedTuple):
    """What a rank calls; a tuple, for each small sum makes one."""

    called: str
    """The call: what all ranks must agree in."""
    present: int
    """Rows that this rank has."""
    rows: int
    """Rows of the whole array."""
    values: Callable[[Array | None], Array]
    """Returns the whole array, which is overwritten; or writes it into an array that is given, and returns this one."""
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
    if _is_marked(known, comm.ranks):
        is_usual = not (own.fault or own.overflow or is_other) and own.seems_dense
        return _begin_marked(comm, key, known, own, is_usual, finish)
    flags = FAULT if own.fault else (OVERFLOW * own.overflow | _FEWER * (not own.seems_dense) | _OTHER_CALL * is_other)
    news = np.array([flags], np.uint64)
    told = comm.allreduce_async(news, "or", label=f"{known.called}, all rows", background=False)
    values = np.zeros(known.shape, known.dtype) if own.fault or is_other else own.values(None)
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
    comm.supports += np.array([own.present, own.rows, own.rows])
    comm.ways[Way.ALL] += 1
    return LastStep(handle=handle, finish=lambda: finish(values))


def _is_marked(known: Dense, ranks: Ranks) -> bool:
    """Tell whether a sum has one value more that says that nothing is wrong."""
    is_framed = known.dtype.kind not in "iub" and known.how.lanes != EACH
    return is_framed and most_values(ranks.lanes_per_frame) < math.prod(known.shape) <= _MOST_MARKED


def _begin_marked(
    comm: Begins, key: Key, known: Dense, own: Own, is_usual: bool, finish: Callable[[Array], Any]
) -> LastStep | None:
    """Add up the values and one more, and look at it."""
    size = math.prod(known.shape)
    marked = np.zeros(size + 1, known.dtype)
    values = marked[:-1].reshape(known.shape)
    if is_usual:
        own.values(values)
    else:
        marked[-1] = np.nan
    words = f"{known.called}, all rows"
    operation = comm.ranks.operation(
        ("all rows", known.called, known.dtype, size),
        lambda: Operation.of(marked, words, operator=known.how.operator, lanes=known.how.lanes, words=words),
    )
    handle = comm.start(Collective(operation, marked), stays=True)
    handle.wait()
    expected = comm.expected.pop(key)
    if marked[-1] != 0:
        return None
    comm.expected[key] = expected  # as the newest
    comm.supports += np.array([own.present, own.rows, own.rows])
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
