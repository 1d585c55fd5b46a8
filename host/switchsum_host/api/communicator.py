"""The communicator: collectives for callers, on top of a queue of operations.

A collective is made of a caller's array (`collectives`), begun on the queue, and waited for.  A call that blocks waits.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeAlias, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import SwitchsumError, UsageError

from ..engine.call_times import CALLS
from ..engine.operation import EACH, INT4, Operation
from . import collectives, parts
from .collectives import Collective, Options, Ranks, Way
from .driver import CommunicatorDriver
from .operation_queue import CommunicatorMembership, Handle, OperationQueue

if TYPE_CHECKING:
    from .expected import Expected, Key
    from .missed import QuorumSum
    from .quorum import How, QuorumHow, Quorums
    from .sparse import SparseSum
    from .statistics import Statistics
    from .steps import LastStep

Values: TypeAlias = npt.NDArray[Any]
Array = TypeVar("Array", bound=Values)
Made = TypeVar("Made")
P = ParamSpec("P")

_log: Final = logging.getLogger("switchsum.host.api.communicator")
MOST_KNOWN: Final = 256
"""Kinds of allreduces that are kept."""


def whole(method: Callable[P, Made]) -> Callable[P, Made]:
    """Break the communicator where a call does not come to its end, unless by an error of ours.

    Nobody could tell whether other ranks wait for what this one has begun.
    """

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> Made:
        try:
            result = method(*arguments, **options)
        except BaseException as error:
            _note_foreign(arguments[0], error)
            raise
        interrupts = arguments[0].queue.interrupts  # type: ignore[attr-defined]
        if interrupts.is_asked_for:
            interrupts.raise_now()
        return result

    return call


def _note_foreign(communicator: Any, error: BaseException) -> None:
    trace = error.__traceback__
    is_about_arguments = isinstance(error, TypeError) and trace is not None and trace.tb_next is None
    if not is_about_arguments and not isinstance(error, SwitchsumError):
        communicator.queue.interrupted(error)
    elif communicator.queue.interrupts.is_asked_for:
        communicator.queue.interrupts.raise_now()


class Communicator:
    """One rank of a job, made by `switchsum.connect`.

    Every rank calls the same collectives in the same order.  Several threads may call them; one works at a time.

    The communicator stays usable after UsageError, UnsupportedDtype and SumOverflow.  Any other error breaks it: every
    later call raises that error again.  A call that one rank refuses still counts as a call.  Unless all ranks refuse
    it, all of them raise OperationMismatch.

    An exception that a signal handler raises during a collective reaches the caller unchanged.  The array's content is
    undefined then, and later calls raise Interrupted.  Ctrl-C waits for the collective's end, but for two seconds at
    most, and a second Ctrl-C does not wait.  For this, `connect` must be called in the main thread, while Python's own
    handler is in place.  A signal handler may close the communicator.  It may not call a collective while it interrupts
    one: that is a UsageError.

    A forked child cannot use its parent's communicator, and does it no harm when it ends.

    Example:
        >>> import numpy as np
        >>> from switchsum.testing import on_ranks
        >>> on_ranks(2, lambda comm: comm.allreduce(np.array([1.0, comm.rank], np.float32)))
        [array([2., 1.], dtype=float32), array([2., 1.], dtype=float32)]

    """

    def __init__(
        self,
        driver: CommunicatorDriver,
        membership: CommunicatorMembership,
        *,
        rank: int,
        world_size: int,
        connect_again: Callable[..., Communicator] | None = None,
        about: str = "",
    ) -> None:
        """Take what `connect` has made; `connect_again` does so with another rank, world size or job.

        `about` is what `repr` adds: job, switch and link.
        """
        self.rank = rank
        """0 to world_size - 1."""
        self.world_size = world_size
        """Number of ranks."""
        self.lanes_per_frame = driver.lanes_per_frame
        """32-bit lanes in a frame."""
        self.queue = OperationQueue(driver, membership, f"switchsum rank {rank}")
        """Collectives in flight. Only this package uses it."""
        self.ranks = Ranks(rank=rank, world_size=world_size, lanes_per_frame=self.lanes_per_frame)
        """The same facts for `collectives`."""
        self.supports = np.zeros(3, np.int64)
        """Rows that this rank had in sparse allreduces so far, that some rank had, and of the whole arrays."""
        self.ways = np.zeros(len(Way), np.int64)
        """How many sparse allreduces so far went each way."""
        self.expected: dict[Key, Expected] = {}
        """What the next ones are expected to be."""
        self._about = about
        self.connect_again = connect_again
        self._quorums: Quorums | None = None
        self._known: dict[Hashable, Operation] = {}
        self._purposes: dict[int, tuple[int, object]] = {}
        atexit.register(_close_at_exit, weakref.ref(self))

    def __repr__(self) -> str:
        """Say which rank of which job this is, and how it reaches the switch."""
        state = "closed" if self.queue.closed else "broken" if self.queue.error is not None else "open"
        about = f", {self._about}" if self._about else ""
        return f"<Communicator rank {self.rank} of {self.world_size}{about}, {self.lanes_per_frame} lanes, {state}>"

    def statistics(self) -> Statistics:
        """Return counters of what this rank has done so far.

        Returns:
            A `Statistics`: collectives, rounds, frames, bytes, repeats.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import communicators
            >>> [comm] = communicators(1)
            >>> _ = comm.allreduce(np.ones(4, np.float32))
            >>> comm.statistics().collectives
            1

        """
        from .statistics import Statistics  # noqa: PLC0415

        queue = self.queue
        counts = queue.driver.counts
        seconds = queue.seconds
        return Statistics.of(counts, self.supports, self.ways, collectives=queue.finished, collective_s=seconds)

    @property
    def begun(self) -> int:
        """Collectives that were begun, those of several steps once for each."""
        return self.queue.driver.submitted

    def note_purpose(self, purpose: object, first: int) -> None:
        """Have reports say by the text of `purpose` what the collectives from number `first` on are for.

        The text is asked for when a report is made, on another thread.
        """
        for serial in range(first, self.begun):
            self._purposes[serial % CALLS] = serial, purpose

    def purpose_of(self, serial: int) -> str:
        """Return what one of the latest collectives is for; empty: nobody has said so."""
        number, purpose = self._purposes.get(serial % CALLS, (-1, ""))
        return str(purpose) if number == serial else ""

    def note_wait(self) -> None:
        """Take note that the program has waited for all collectives so far, in a way that is not seen here."""
        self.queue.driver.note_wait()

    @property
    def quorums(self) -> Quorums:
        """Operations that may go on without ranks that are late; raises UsageError in virtual time."""
        if self._quorums is None:
            from .quorum import Quorums  # noqa: PLC0415 - few jobs go on without ranks

            self._quorums = Quorums(self)
        return self._quorums

    def close(self, *, failed: bool = False) -> None:
        """Leave the job.  The communicator can be used no more, and calling `close` again does nothing.

        A collective that another thread waits for ends with UsageError.  So does the one that a signal handler
        interrupts when it closes the communicator.  A `with` block closes the communicator at its end.

        Args:
            failed: Tell the other ranks that this rank is lost, for they may wait for it.  They raise WorkerLost.

        """
        queue = self.queue
        if os.getpid() != queue.pid or queue.closed:
            return
        if self._quorums is not None:
            self._quorums.close(failed=failed)
        queue.close()
        queue.membership.leave(failed=failed)
        _log.info("has left after %d collectives", queue.finished)

    def __del__(self) -> None:
        """Leave the job if nobody has closed the communicator and nobody can any more."""
        if hasattr(self, "queue"):
            with suppress(SwitchsumError):
                self.close()

    @overload
    def allreduce(self, array: Array, op: str = "sum", **how: Unpack[How]) -> Array: ...
    @overload
    def allreduce(self, array: Array, op: str = "sum", **how: Unpack[QuorumHow]) -> QuorumSum: ...

    @whole
    def allreduce(
        self,
        array: Array,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        block: int | str | None = None,
        label: str = "",
        quorum: float | None = None,
        patience_s: float | None = None,
    ) -> Array | QuorumSum:
        """Combine `array` over all ranks, element by element, in place.  All ranks get the same bits.

        Arrays may have any shape and layout in memory.  Shape and dtype are the same on all ranks.

        Args:
            array: What this rank contributes; it is overwritten with the result.
            op: "sum": float32, float16, bfloat16 (ml_dtypes), every integer dtype, and float64 with `narrow`.
                "average": the sum over the number of ranks, of floats.  "max" and "min": every real dtype, exact; NaN
                wins over everything, and negative zero is less than zero.  "or": integers and bool.
            lanes: What floats travel as in sums and averages.  "int32": 4 bytes a value.  "int16": half of the bytes.
                "int8": a quarter up and half down.  The last two round at random, right in the mean, and are off by up
                to n steps for n ranks (16 ranks in "int8": by 2 %).  "each": the bits of a sum depend on the values of
                its element alone; up to 64 ranks.  "int4": for sums of int8 whose values are -8 to 7 on up to 16 ranks;
                half a byte a value up, and one down.
            narrow: Allow float64, which then travels as float32.
            saturate: Give the nearest value where an integer sum does not fit its dtype, and raise no SumOverflow.
            block: Values in a block, for sparse arrays: blocks that are zero on all ranks do not travel.  None: a block
                fills a frame.  32 to 2,048 make sense, and several such blocks share a frame.  "auto": blocks of 32, if
                they take less than nine tenths of the frames.
            label: Names the call in errors; the same on all ranks.
            quorum: Go on without ranks that are late, if at least this share of all takes part: above 0 and up to 1.
                None: wait for all.  See docs/slow-ranks.md.
            patience_s: With `quorum`, seconds for which the first rank to come waits for the others.

        Returns:
            `array`; with `quorum` a `QuorumSum` with it, the ranks that took part, and what this rank has missed.

        Raises:
            UnsupportedDtype: The switch cannot reduce this dtype by this `op`.
            UsageError: Another argument is wrong.  The rank that called so raises it.
            SumOverflow: An integer sum does not fit its dtype.  Every rank raises it, and the element holds the nearest
                value.
            OperationMismatch: Ranks called different things.  Every rank raises it.  A rank whose own call was refused
                raises it in its next call.
            CollectiveTimeout: Ranks did not call it in time; `missing` says which.
            WorkerLost: A rank died or left; `rank` says which.
            SwitchLost: The switch does not answer.
            NotAdmitted: The job was removed, or goes on under a new epoch.

        Note:
            A float sum of n ranks is off by at most n/2 steps of its block plus the rounding to its dtype
            (docs/accuracy.md). A block with a NaN or an infinity on any rank comes out all NaN on every rank.

            With `block`, a call costs up to one bit for each block and two to six round trips.  If ranks have few
            blocks in common, blocks are sorted by the ranks that have them.  This costs one more bit for each rank and
            block, and one more round trip.  "auto" never sorts.  The error of a float sum, and the NaN, concern all
            blocks in the same frame, and SumOverflow counts frames.  Few blocks of floats travel to all ranks, which
            add them: see `allreduce_sparse`.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.allreduce(np.array([1, comm.rank]), "max"))
            [array([1, 1]), array([1, 1])]

        """
        how = Options(op, lanes, narrow, saturate, label)
        if quorum is not None or patience_s is not None:
            from .quorum import allreduce  # noqa: PLC0415 - few jobs go on without ranks

            return allreduce(self, array, how, block, quorum, patience_s)
        self._allreduce(array, how, block, stays=True).wait()
        return array

    def _allreduce(
        self, array: Values, how: Options, block: int | str | None, *, stays: bool = False, background: bool = False
    ) -> Handle:
        """Begin an allreduce in place; raises UsageError or UnsupportedDtype."""
        if block is not None:
            return self._blocks(array, how, block, stays=stays)
        return self._enqueue(self._prepared(array, how), stays=stays, background=background)

    def _prepared(self, array: Values, how: Options) -> Handle:
        """Return a handle, with the operation of an earlier call like it if there is one.

        Raises UsageError or UnsupportedDtype.
        """
        is_plain = type(array) is np.ndarray and array.flags.carray and array.dtype.isnative and how.lanes != INT4
        key: Hashable = None
        if is_plain:
            key = array.dtype, array.shape, how
            try:
                known = self._known.get(key)
            except TypeError:  # an option that is no option, which is refused below
                is_plain, known = False, None
            if known is not None:
                return Handle(self.queue, known, array, saturates=how.saturate)
        handle = self._made(lambda: collectives.allreduce(array, how, self.ranks))
        if is_plain and not (how.narrow and array.dtype == np.float64):
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = handle.operation
        return handle

    def _blocks(self, array: Values, how: Options, block: int | str, *, stays: bool = False) -> Handle:
        """Begin an allreduce in small blocks; raises what an allreduce of whole frames does."""
        from . import sparse  # noqa: PLC0415 - many jobs add no sparse arrays

        with self.checked():
            sparse.check_blocks(array, block, how)
        return self.begin_steps(
            lambda: sparse.allreduce_blocks(self, array, block, how, background=not stays), stays=stays
        )

    @whole
    def allreduce_sparse(
        self,
        indices: npt.NDArray[Any],
        values: npt.NDArray[Any],
        size: int,
        op: str = "sum",
        *,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> SparseSum:
        """Add sparse arrays.  Every rank gets the rows that some rank has, with their sums.

        Indices may come in any order, and each rank may have another number of them, or none.  Values of repeated
        indices are added up first: integers exactly, others as float64.

        Args:
            indices: This rank's rows, `[k]`, integers from 0 to `size` - 1.
            values: What this rank has in these rows, `[k, ...]`.
            size: Number of rows of the whole array; the same on all ranks.
            op: "sum", or "average" of floats.
            lanes: What floats travel as, as in `allreduce`.
            keep: Keep only so many sums, the largest ones: single values, not rows.  The same on all ranks; None: all.
            label: Names the call in errors; the same on all ranks.

        Returns:
            A `SparseSum` with `indices` `[m]`, in order, and `values` `[m, ...]`.  Its `to_dense()` gives the array
            `[size, ...]`.

        Raises:
            UsageError: On any rank an index is outside 0 to `size` - 1, indices and values differ in number, `op`,
                `lanes` or the dtype cannot be added, or `keep` is negative.  Every rank raises it, and the communicator
                stays usable.
            SumOverflow: On any rank the values of a repeated index do not fit.  Every rank raises it, and nothing is
                added.
            OperationMismatch: Ranks differ in `size`, dtype, `op`, `lanes` or `keep`.  Every rank raises it.
            SwitchsumError: What `allreduce` raises.

        Note:
            How many rows each rank has decides in which way they are added; `statistics()` counts the ways.  Few rows
            of floats travel to all ranks, which add them in the order of ranks, in float64, rounded once: then a NaN or
            an infinity concerns its own sum alone.  In the other ways, and with `lanes`, it makes the frame that it
            travels in NaN: rows nearby in the union.  With `keep`, sums of floats may travel in lanes of 8 bits first,
            rounded at random, and the largest ones then travel exactly (Ok-Topk's global top-k).  Of nearly equal sums
            any may be kept.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> def add(comm):
            ...     return comm.allreduce_sparse(np.array([0, comm.rank + 1]), np.ones(2, np.float32), size=4)
            >>> on_ranks(2, add)[0].to_dense()
            array([2., 1., 1., 0.], dtype=float32)

        """
        how = Options(op, lanes, label=label)
        total: SparseSum = self._sparse(indices, values, size, how, keep, stays=True).wait()
        return total

    @whole
    def allreduce_sparse_async(
        self,
        indices: npt.NDArray[Any],
        values: npt.NDArray[Any],
        size: int,
        op: str = "sum",
        *,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> Handle:
        """Start an `allreduce_sparse` in the background.  Errors in its arguments are raised by `handle.wait()`.

        It has several steps, which a thread takes.  Collectives that are called after it begin behind its last step.

        Returns:
            A `Handle`; its `wait` returns the `SparseSum`.

        """
        return self._sparse(indices, values, size, Options(op, lanes, label=label), keep)

    def _sparse(
        self, indices: Values, values: Values, size: int, how: Options, keep: int | None, *, stays: bool = False
    ) -> Handle:
        """Begin an allreduce of sparse arrays; raises UsageError."""
        from . import sparse  # noqa: PLC0415

        with self.checked():
            indices, values = sparse.given(indices, values, size)
        fault = sparse.fault_of_keep(keep, values.shape)
        return self.begin_steps(
            lambda: sparse.allreduce_sparse(self, indices, values, size, how, not stays, keep=keep, fault=fault),
            stays=stays,
        )

    @whole
    def allreduce_topk(
        self,
        array: Array,
        k: int | None = None,
        op: str = "sum",
        *,
        density: float | None = None,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> Array:
        """Add the `k` values of largest magnitude of each rank, over all ranks, in place.

        The rest of a rank's values is lost; `switchsum_host.compress` has ways to keep it for the next call.

        Args:
            array: What this rank contributes; it is overwritten with the sums, and with zero elsewhere.
            k: How many values this rank sends.  It may differ between ranks and be 0; more than there are means all.
            op: "sum" or "average".
            density: In place of `k`: the share of values that this rank sends, above 0 and up to 1.
            lanes: What floats travel as, as in `allreduce`.
            keep: Keep only so many sums, as in `allreduce_sparse`.
            label: Names the call in errors; the same on all ranks.

        Returns:
            `array`.

        Raises:
            UsageError: On any rank `k` is negative, or `density` is no share.  Every rank raises it, and the content of
                `array` is undefined.
            SwitchsumError: What `allreduce_sparse` raises.

        Note:
            Of values of equal magnitude the first are taken, and NaN before all others.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.allreduce_topk(np.array([1, 5, comm.rank + 8], np.float32), k=1))[0]
            array([ 0.,  0., 17.], dtype=float32)

        """
        self._topk(array, k, density, Options(op, lanes, label=label), keep, stays=True).wait()
        return array

    @whole
    def allreduce_topk_async(
        self,
        array: npt.NDArray[Any],
        k: int | None = None,
        op: str = "sum",
        *,
        density: float | None = None,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> Handle:
        """Start an `allreduce_topk` in the background; values are chosen there, too.  See `allreduce_sparse_async`.

        Returns:
            A `Handle`; its `wait` returns the array.

        """
        return self._topk(array, k, density, Options(op, lanes, label=label), keep)

    def _topk(
        self,
        array: Values,
        k: int | None,
        density: float | None,
        how: Options,
        keep: int | None,
        *,
        stays: bool = False,
    ) -> Handle:
        """Begin an allreduce of the largest values; raises UsageError."""
        from . import sparse  # noqa: PLC0415

        with self.checked():
            collectives.check_written("allreduce_topk", array)
        chosen, fault = sparse.largest_wanted(array, k, density)
        fault = fault or sparse.fault_of_keep(keep, (array.size,))
        return self.begin_steps(
            lambda: sparse.allreduce_topk(self, array, chosen, how, not stays, keep=keep, fault=fault), stays=stays
        )

    @whole
    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        label: str = "",
    ) -> Array:
        """Combine `array` over all ranks, as `allreduce` does, on one rank alone.

        Args:
            array: What this rank contributes.  On `root` it is overwritten with the result; elsewhere it stays as it
                is.
            root: The rank that gets the result.
            op: As in `allreduce`.
            lanes: As in `allreduce`.
            narrow: As in `allreduce`.
            saturate: As in `allreduce`.
            label: Names the call in errors; the same on all ranks.

        Returns:
            `array`.

        Raises:
            UsageError: There is no such rank as `root`, or another argument is wrong.
            SwitchsumError: What `allreduce` raises.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.reduce(np.array([1, 2]), root=1))
            [array([1, 2]), array([2, 4])]

        """
        how = Options(op, lanes, narrow, saturate, label)
        self._begin(lambda: parts.reduce(array, root, how, self.ranks), stays=True).wait()
        return array

    @whole
    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        *,
        out: Array | None = None,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        label: str = "",
    ) -> Array:
        """Combine `array` over all ranks, as `allreduce` does, and return this rank's part of the result.

        Args:
            array: What this rank contributes; it stays as it is.  Its first axis is cut into one part for each rank,
                and must be a multiple of their number.
            op: As in `allreduce`.
            out: Where the part goes: an array of the part's shape and the array's dtype.  None: a new array.
            lanes: As in `allreduce`.
            narrow: As in `allreduce`.
            saturate: As in `allreduce`.
            label: Names the call in errors; the same on all ranks.

        Returns:
            This rank's part of the result: `out`, or a new array.

        Raises:
            UsageError: The first axis cannot be cut so, `out` has another shape or dtype, or another argument is wrong.
            SwitchsumError: What `allreduce` raises.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.reduce_scatter(np.array([1, 2, 3, 4])))
            [array([2, 4]), array([6, 8])]

        """
        how = Options(op, lanes, narrow, saturate, label)
        made = self._begin(lambda: parts.reduce_scatter(array, how, self.ranks, out=out), stays=True)
        part: Array = made.wait()
        return part

    @whole
    def broadcast(self, array: Array, root: int = 0, *, label: str = "") -> Array:
        """Fill `array` on every rank with the bits that it has on `root`.

        Args:
            array: An array of any layout and any dtype but Python objects; dtype and shape are the same on all ranks.
            root: The rank whose array all get.
            label: Names the call in errors; the same on all ranks.

        Returns:
            `array`.

        Raises:
            UsageError: There is no such rank as `root`, or the array is read-only.
            UnsupportedDtype: The array holds Python objects.
            SwitchsumError: What `allreduce` raises.

        Note:
            Blocks that are all zero do not travel.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.broadcast(np.array([comm.rank + 7]), root=1))
            [array([8]), array([8])]

        """
        self._begin(lambda: parts.broadcast(array, root, self.ranks, label=label), stays=True).wait()
        return array

    @whole
    def allgather(self, array: Array, *, out: Array | None = None, label: str = "") -> Array:
        """Return the arrays of all ranks, bit by bit, stacked along a new first axis.

        Args:
            array: What this rank contributes; any dtype but Python objects.  Dtype and shape are the same on all ranks.
            out: Where the result goes: an array `[world_size, ...]` of the array's dtype.  None: a new array.
            label: Names the call in errors; the same on all ranks.

        Returns:
            The arrays in the order of ranks, `[world_size, ...]`: `out`, or a new array.

        Raises:
            UsageError: `out` has another shape or dtype.
            UnsupportedDtype: The array holds Python objects.
            SwitchsumError: What `allreduce` raises.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.allgather(np.array([comm.rank, 5])).tolist())[0]
            [[0, 5], [1, 5]]

        """
        stacked: Array = self._begin(
            lambda: parts.allgather(array, self.ranks, out=out, label=label), stays=True
        ).wait()
        return stacked

    @whole
    def allgatherv(self, array: Array, *, sizes: Sequence[int] | None = None, label: str = "") -> list[Array]:
        """Return the arrays of all ranks, bit by bit, which may have different lengths.

        Args:
            array: What this rank contributes, with at least one axis; any dtype but Python objects.  The dtype and all
                axes but the first are the same on all ranks.
            sizes: Length of each rank's first axis, the same list on all ranks.  None: ranks tell each other their
                lengths first, in one more operation.
            label: Names the call in errors; the same on all ranks.

        Returns:
            A new array for each rank, in the order of ranks.

        Raises:
            UsageError: The array has no axis, or `sizes` has not one length for each rank, or another one for this.
            UnsupportedDtype: The array holds Python objects.
            OperationMismatch: Ranks differ in dtype, in further axes, or in `sizes`.  Every rank raises it.
            SwitchsumError: What `allreduce` raises.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> [part.tolist() for part in on_ranks(2, lambda comm: comm.allgatherv(np.arange(comm.rank + 1)))[0]]
            [[0], [0, 1]]

        """
        gathered: list[Array] = self._allgatherv(array, sizes, label, stays=True).wait()
        return gathered

    @whole
    def allgatherv_async(
        self, array: npt.NDArray[Any], *, sizes: Sequence[int] | None = None, label: str = ""
    ) -> Handle:
        """Start an `allgatherv` and return at once; `array` stays as it is until the handle's `wait` has returned.

        Returns:
            A `Handle`; its `wait` returns the list of arrays.

        """
        return self._allgatherv(array, sizes, label)

    def _allgatherv(self, array: Values, sizes: Sequence[int] | None, label: str, *, stays: bool = False) -> Handle:
        """Begin a gathering of parts of different length; raises UsageError or UnsupportedDtype."""
        from . import ragged  # noqa: PLC0415 - few jobs have parts of different length

        with self.checked():
            ragged.check(array, sizes, self.ranks)
        return self.begin_steps(lambda: ragged.allgatherv(self, array, sizes, label, not stays), stays=stays)

    @whole
    def barrier(self, *, label: str = "") -> None:
        """Wait until every rank has called it.

        Args:
            label: Names the call in errors; the same on all ranks.

        Raises:
            SwitchsumError: What `allreduce` raises.

        """
        self._begin(lambda: collectives.barrier(label), stays=True).wait()

    def compute(self, seconds: float) -> None:
        """Say that the computation before the next collective takes so many seconds of virtual time.

        It does nothing unless time is virtual (`switchsum run --virtual-time`).

        Args:
            seconds: How long it takes, 0 or more.

        Raises:
            UsageError: `seconds` is negative or not finite, or the communicator is closed.
            SwitchLost: The simulation has ended.

        Example:
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.compute(1.5e-3))
            [None, None]

        """
        if not 0 <= seconds < math.inf:
            raise UsageError(f"a computation takes 0 seconds or more, not {seconds!r}")
        self.queue.compute(seconds)

    def now(self) -> float:
        """Return what time it is.

        Returns:
            Seconds of virtual time where that is simulated, else of the machine's monotonic clock.

        Example:
            >>> from switchsum.testing import on_ranks
            >>> on_ranks(2, lambda comm: comm.now() <= comm.now())
            [True, True]

        """
        return self.queue.driver.clock()

    @whole
    def allreduce_async(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        block: int | str | None = None,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Start an `allreduce` and return at once.  Leave the array alone until the handle's `wait` has returned.

        Many collectives may be under way, and small ones share round trips.  What was called first is served first.

        Args:
            array: What this rank contributes; it is overwritten with the result.
            op: As in `allreduce`.
            lanes: As in `allreduce`.
            narrow: As in `allreduce`.
            saturate: As in `allreduce`.
            block: As in `allreduce`.  A collective with small blocks has several steps, which a thread takes in any
                case: see `allreduce_sparse_async`.
            label: Names the call in errors; the same on all ranks.
            background: Have a thread go on with it while the caller computes.  False: it moves only while somebody
                waits for a collective.

        Returns:
            A `Handle`; its `wait` returns the array, or raises what `allreduce` does.

        Raises:
            UnsupportedDtype: As `allreduce`, at once.
            UsageError: As `allreduce`, at once.

        Note:
            Contiguous arrays that overlap are added in turn: the second call waits for the end of the first.

        Example:
            >>> import numpy as np
            >>> from switchsum.testing import on_ranks
            >>> def add_two(comm):
            ...     handles = [comm.allreduce_async(np.full(2, number)) for number in (1, 10)]
            ...     return [handle.wait().tolist() for handle in handles]
            >>> on_ranks(3, add_two)[0]
            [[3, 3], [30, 30]]

        """
        return self._allreduce(array, Options(op, lanes, narrow, saturate, label), block, background=background)

    @whole
    def reduce_async(
        self,
        array: npt.NDArray[Any],
        root: int = 0,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Start a `reduce` and return at once; `background` is that of `allreduce_async`.

        Returns:
            A `Handle`; its `wait` returns the array.

        """
        how = Options(op, lanes, narrow, saturate, label)
        return self._begin(lambda: parts.reduce(array, root, how, self.ranks), background=background)

    @whole
    def reduce_scatter_async(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Start a `reduce_scatter` and return at once; `array` may be used again immediately.

        Returns:
            A `Handle`; its `wait` returns this rank's part.

        """
        how = Options(op, lanes, narrow, saturate, label)
        return self._begin(lambda: parts.reduce_scatter(array, how, self.ranks, out=out), background=background)

    @whole
    def broadcast_async(
        self, array: npt.NDArray[Any], root: int = 0, *, label: str = "", background: bool = True
    ) -> Handle:
        """Start a `broadcast` and return at once; `background` is that of `allreduce_async`.

        Returns:
            A `Handle`; its `wait` returns the array.

        """
        return self._begin(lambda: parts.broadcast(array, root, self.ranks, label=label), background=background)

    @whole
    def allgather_async(
        self,
        array: npt.NDArray[Any],
        *,
        out: npt.NDArray[Any] | None = None,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Start an `allgather` and return at once; `array` may be used again immediately.

        Returns:
            A `Handle`; its `wait` returns the stacked arrays.

        """
        return self._begin(lambda: parts.allgather(array, self.ranks, out=out, label=label), background=background)

    @whole
    def barrier_async(self, *, label: str = "", background: bool = True) -> Handle:
        """Start a barrier, which ends when every rank has started it.

        Returns:
            A `Handle`; its `wait` returns at the barrier's end.

        """
        return self._begin(lambda: collectives.barrier(label), background=background)

    # What all of them have in common.  A call that blocks begins with `stays`, and waits for the handle.

    def start(self, collective: Collective, *, stays: bool = False, background: bool = False) -> Handle:
        """Begin a collective; with `stays` drive it to its end, with `background` have a thread go on with it."""
        handle = self._handle(collective)
        self.queue.enqueue(handle, stays=stays, background=background)
        return handle

    def begin_steps(self, steps: Callable[[], LastStep], *, stays: bool = False) -> Handle:
        """Begin a collective of several steps, of which `steps` takes all but the last.

        A thread for them takes the steps; with `stays` the caller's thread does.
        """
        from .steps import begin_steps  # noqa: PLC0415 - most jobs have no collective of several steps

        return begin_steps(self.queue, steps, stays=stays)

    def break_off(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        self.queue.break_off(error)

    def refuse(self) -> None:
        """Let the other ranks hear that this one has refused what they call: their call ends with OperationMismatch."""
        with suppress(SwitchsumError):
            self.start(collectives.refused(), background=True)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Tell the other ranks if arguments are refused before any collective was called.

        For libraries whose calls check arguments of their own.  An error within the block takes the place of one
        collective: the other ranks' call raises OperationMismatch at once, and not CollectiveTimeout after the
        time-out.

        Example:
            >>> import numpy as np
            >>> from switchsum import UsageError
            >>> from switchsum.testing import communicators
            >>> [comm] = communicators(1)
            >>> gradient = np.ones(4)
            >>> with comm.checked():
            ...     if gradient.dtype != np.float32:
            ...         raise UsageError(f"this takes float32, not {gradient.dtype}")
            Traceback (most recent call last):
            switchsum_switch.errors.UsageError: this takes float32, not float64

        """
        try:
            yield
        except BaseException:
            self.refuse()
            raise

    def _handle(self, collective: Collective) -> Handle:
        """Return the handle of a collective that is to be begun; raises UsageError."""
        operation, values, finish, saturates, at_end, holds = collective
        operation.make_record(self.lanes_per_frame, self.world_size)
        handle = Handle(self.queue, operation, values, finish, saturates=saturates)
        if at_end is not None:
            handle.at_end, handle.holds = at_end, values if holds is None else holds
        return handle

    def _made(self, make: Callable[[], Collective]) -> Handle:
        """Return the handle of what a function returns; if it refuses the arguments, let the other ranks hear of it."""
        try:
            return self._handle(make())
        except BaseException:
            self.refuse()
            raise

    def _begin(self, make: Callable[[], Collective], *, stays: bool = False, background: bool = False) -> Handle:
        """Begin what a function returns; if it refuses the arguments, let the other ranks hear of it."""
        return self._enqueue(self._made(make), stays=stays, background=background)

    def _enqueue(self, handle: Handle, *, stays: bool = False, background: bool = False) -> Handle:
        """Begin a collective, with `stays` and `background` as in `start`; return what its caller waits for."""
        if handle.operation.lanes == EACH:
            from . import each  # noqa: PLC0415

            return self.begin_steps(lambda: each.last_step(self, handle, background=not stays), stays=stays)
        self.queue.enqueue(handle, stays=stays, background=background)
        if not stays and self.queue.interrupts.is_asked_for:  # nobody would have the handle
            self.queue.interrupts.raise_now()
        return handle

    def reform(self) -> Communicator:
        """Go on without the ranks that are lost.  This communicator is closed, and a new one is returned.

        Every rank that is not lost calls it, usually after WorkerLost.  Ranks are numbered anew in their old order,
        under a new epoch.  The new communicator has the other arguments of `connect` as before.  Collectives that had
        not ended are lost.

        To go on with as many ranks as before, close this communicator, start a process in the lost rank's place, and
        call `connect` again.

        Returns:
            The communicator of all ranks that are left.

        Raises:
            CollectiveTimeout: Ranks are neither lost nor called it; `missing` says which.
            UsageError: The communicator is closed, or was not made by `connect`.
            SwitchsumError: What `connect` raises.

        """
        if self.connect_again is None:
            raise UsageError("this communicator was not made by connect")
        if os.getpid() != self.queue.pid or self.queue.closed:
            raise UsageError("this communicator is closed: switchsum.connect makes another one")
        if self._quorums is not None:
            self._quorums.close()
        self.queue.close()
        try:
            rank, world_size = self.queue.membership.reform(self.queue.driver.timeout_s)
        finally:
            self.queue.membership.leave()
        return self.connect_again(rank=rank, world_size=world_size)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(failed=value is not None)


def _close_at_exit(reference: weakref.ref[Communicator]) -> None:
    """Leave the job when the program ends without having closed its communicator."""
    communicator = reference()
    if communicator is not None:
        communicator.close(failed=is_failing())


def is_failing() -> bool:
    """Whether an exception is being handled in this thread, or has ended the program."""
    return sys.exception() is not None or getattr(sys, "last_value", None) is not None
