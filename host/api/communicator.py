"""The communicator: collectives for callers, on top of a queue of operations.

A collective is made of a caller's array (`collectives`), begun on the queue, and waited for.  A call that blocks waits.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import SwitchsumError, UsageError

from ..engine.loop import Driver
from ..engine.operation import EACH, Operation
from . import collectives, parts
from .collectives import Collective, Members, Options
from .operation_queue import Handle, Member, OperationQueue

if TYPE_CHECKING:
    from .sparse import SparseSum
    from .statistics import Statistics
    from .steps import LastStep

Array = TypeVar("Array", bound=npt.NDArray[Any])
Made = TypeVar("Made")
P = ParamSpec("P")

_log: Final = logging.getLogger(__name__)
MOST_KNOWN: Final = 256
"""Kinds of allreduces that are kept."""


def whole(method: Callable[P, Made]) -> Callable[P, Made]:
    """Break the communicator where a call does not come to its end, unless by an error of ours.

    Nobody could tell whether other ranks wait for what this one has begun.
    """

    @wraps(method)
    def call(*arguments: P.args, **options: P.kwargs) -> Made:
        communicator: Any = arguments[0]
        try:
            result = method(*arguments, **options)
        except BaseException as error:
            _note_foreign(communicator, error)
            raise
        if communicator.queue.interrupts.is_asked_for:
            communicator.queue.interrupts.deliver()
        return result

    return call


def _note_foreign(communicator: Any, error: BaseException) -> None:
    trace = error.__traceback__
    is_about_arguments = isinstance(error, TypeError) and trace is not None and trace.tb_next is None
    if not is_about_arguments and not isinstance(error, SwitchsumError):
        communicator.queue.interrupted(error)
    elif communicator.queue.interrupts.is_asked_for:
        communicator.queue.interrupts.deliver()


class Communicator:
    """One rank of a job: every rank calls the same collectives in the same order.

    Collectives may be called from several threads, one of which works at a time.  After an error other than
    UsageError, UnsupportedDtype and SumOverflow the communicator is broken and raises that error again.  A call that is
    refused on some rank still counts as one: unless it is on all of them, all raise OperationMismatch.  In a forked
    child it is inert: nothing of it works there, and neither closing it nor the child's exit touches anything.

    An exception that a signal handler raises in the midst of a collective reaches the caller unchanged.  The array's
    content is undefined then, and the communicator is broken: it raises Interrupted from then on.  Ctrl-C waits for the
    collective's end, up to two seconds and not a second time, if Python's own handler was in place when `connect` was
    called in the main thread.  A signal handler may close the communicator, but call no collective while it interrupts
    one: that is a UsageError.
    """

    def __init__(
        self,
        driver: Driver,
        membership: Member,
        *,
        rank: int,
        world_size: int,
        connect_again: Callable[[int, int], Communicator] | None = None,
        about: str = "",
    ) -> None:
        """Take what `connect` has made; `connect_again` does so for another rank and world size.

        `about` is what `repr` adds: job, switch and link.
        """
        self.rank = rank
        """0 to world_size - 1."""
        self.world_size = world_size
        """Number of ranks."""
        self.lanes_per_frame = driver.engine.lanes_per_frame
        """32-bit lanes in a frame."""
        self.queue = OperationQueue(driver, membership, f"switchsum rank {rank}")
        """What is in flight; for this package's own."""
        self.members = Members(rank=rank, world_size=world_size, lanes_per_frame=self.lanes_per_frame)
        """The same facts for `collectives`."""
        self.supports = np.zeros(3, np.int64)
        """Rows that this rank had in sparse allreduces so far, that some rank had, and of the whole arrays."""
        self._about = about
        self._connect_again = connect_again
        self._known: dict[Hashable, Operation] = {}
        atexit.register(_close_at_exit, weakref.ref(self))

    def __repr__(self) -> str:
        """Say which rank of which job this is, and how it reaches the switch."""
        state = "closed" if self.queue.closed else "broken" if self.queue.error is not None else "open"
        about = f", {self._about}" if self._about else ""
        return f"<Communicator rank {self.rank} of {self.world_size}{about}, {self.lanes_per_frame} lanes, {state}>"

    def statistics(self) -> Statistics:
        """Return what has happened so far."""
        from .statistics import Statistics  # noqa: PLC0415

        queue = self.queue
        counts = queue.driver.engine.counts
        return Statistics.of(counts, self.supports, collectives=queue.finished, collective_s=queue.seconds)

    @property
    def begun(self) -> int:
        """Collectives that were begun, those of several steps once for each."""
        return self.queue.driver.engine.submitted

    def close(self, *, failed: bool = False) -> None:
        """Leave the job; the communicator can be used no more.  Calling it again does nothing.

        Collectives that other threads wait for, or the own one where this is a signal handler, end with UsageError.
        With `failed` the other ranks hear that this one is lost, for they may wait for it.
        """
        queue = self.queue
        if os.getpid() != queue.pid or queue.closed:
            return
        queue.close()
        queue.membership.leave(failed=failed)
        _log.info("has left after %d collectives", queue.finished)

    def __del__(self) -> None:
        """Leave the job if nobody has closed the communicator and nobody can any more."""
        if hasattr(self, "queue"):
            with suppress(SwitchsumError):
                self.close()

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
    ) -> Array:
        """Combine `array` over all ranks, element by element, in place, and return it; all ranks get the same bits.

        `op` is one of

        - "sum", of float32, float16, bfloat16 (ml_dtypes) and every integer dtype; of float64 if `narrow` allows
          that it goes through float32.  A float sum of n ranks is off by at most n/2 steps of its block plus the
          rounding to its dtype; see `switchsum.protocol.lanes`.  A block (as many values as the switch's program has
          lanes) with NaN or infinity on any rank comes out all NaN on every rank.  Integer sums are exact; where one
          does not fit its dtype, every rank raises SumOverflow and the element holds the nearest value; with `saturate`
          none raises.
        - "average", of floats: the sum over the number of ranks.
        - "max" and "min", of every real dtype, exact; NaN wins over everything, and negative zero is less than zero.
        - "or", of integers and bool.

        `lanes` is what floats travel as in sums and averages: "int16" takes half of the bytes, "int8" a quarter up
        and half down; both round at random, right in the mean, and are off by up to n steps (16 ranks in int8: by 2 %).
        With "each", of up to 64 ranks, a sum's bits depend on that element's values alone (docs/accuracy.md).

        Blocks that are zero on all ranks do not travel.  They are as large as a frame; for arrays with smaller ones,
        `block` is the number of values (32 to 2,048 make sense), and several of them share a frame, at the price of a
        bit for each block and two to four round trips.  Where a rank then clearly sends less, blocks lie in frames by
        which ranks have them, for a bit of each rank for each block, and another round trip.  "auto" packs blocks of 32
        values, but not by ranks, if they then take less than nine tenths of the frames, on all ranks together.  A float
        sum's error, and the NaN that a NaN or an infinity makes, are then those of the blocks in the same frame;
        SumOverflow counts frames.

        `label` names the call in errors. Ranks must agree in it, so that it can hold whatever else they must agree in.

        Arrays may have any shape and layout.  Raises UnsupportedDtype or UsageError for what cannot be reduced at all,
        OperationMismatch on every rank if they called something different from each other (one whose call was refused
        raises it from its next call on), CollectiveTimeout, WorkerLost, SwitchLost or NotAdmitted when it cannot go on.
        """
        try:  # what `whole` does, sooner
            if block is not None:
                how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
                return self._blocks(array, block, how, background=False)().result()  # type: ignore[no-any-return]
            self._enqueue_and_wait(self._allreduce(array, op, lanes, narrow, saturate, label))
        except BaseException as error:
            _note_foreign(self, error)
            raise
        if self.queue.interrupts.is_asked_for:
            self.queue.interrupts.deliver()
        return array

    def _allreduce(
        self, array: npt.NDArray[Any], op: str, lanes: str, narrow: bool, saturate: bool, label: str
    ) -> Handle:
        """Prepare an allreduce in place, unless there was one like it; raises UsageError or UnsupportedDtype."""
        is_plain = type(array) is np.ndarray and array.flags.carray and array.dtype.isnative
        key: Hashable = None
        if is_plain:
            key = array.dtype, array.shape, str(op), str(lanes), bool(narrow), bool(saturate), str(label)
            known = self._known.get(key)
            if known is not None:
                return Handle(self.queue, known, array, saturates=saturate)
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        handle = self._made(lambda: collectives.allreduce(array, how, self.members))
        if is_plain and not (narrow and array.dtype == np.float64):
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = handle.operation
        return handle

    def _blocks(self, array: Array, block: int | str, how: Options, background: bool) -> Callable[[], LastStep]:
        """Return the steps of an allreduce in small blocks; raises what an allreduce of whole frames does."""
        from . import sparse  # noqa: PLC0415 - many jobs add no sparse arrays

        with self.checked():
            sparse.check_blocks(array, how)
        return lambda: sparse.allreduce_blocks(self, array, block, how, background)

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
        """Add sparse arrays of `size` rows; return the rows that some rank has, with their sums.

        `indices`, `[k]`, are this rank's rows, `values`, `[k, ...]`, what it has there; k may differ between ranks and
        be 0.  Indices may come in any order, and values of repeated ones are added up first: integers exactly, others
        as float64.  A NaN or an infinity makes the frame that it travels in NaN: rows nearby in the union.

        With `keep`, which is the same on all ranks, only so many sums are kept, the largest ones (Ok-Topk's global
        top-k; of single values, not of rows).  Where that is worth it sums of floats travel in lanes of 8 bits first,
        rounded at random, and those that are largest then travel exactly: of nearly equal sums any may be kept.

        Raises what `allreduce` does, but UsageError on every rank, which may go on, if on any of them an index is
        outside 0 to size - 1, there are not as many values as indices, or `op`, `lanes` or the dtype is none that can
        be added, or `keep` negative; SumOverflow on every rank, before anything is added, if on any of them the values
        of a repeated index alone do not fit; OperationMismatch on every rank if size, dtype, op, lanes or keep differ.
        """
        steps = self._sparse(
            indices, values, size, Options(operator=op, lanes=lanes, label=label), keep, background=False
        )
        return steps().result()  # type: ignore[no-any-return]

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
        """Begin an `allreduce_sparse`; what is wrong with its arguments `wait` raises.

        It has several steps, which a thread takes: collectives that are begun after it wait with their first step for
        its last one to begin.
        """
        how = Options(operator=op, lanes=lanes, label=label)
        return self.begin_steps(self._sparse(indices, values, size, how, keep, background=True))

    def _sparse(
        self,
        indices: npt.NDArray[Any],
        values: npt.NDArray[Any],
        size: int,
        how: Options,
        keep: int | None,
        background: bool,
    ) -> Callable[[], LastStep]:
        from . import sparse  # noqa: PLC0415

        with self.checked():
            indices, values = sparse.given(indices, values, size)
        fault = sparse.fault_of_keep(keep, values.shape)
        return lambda: sparse.allreduce_sparse(self, indices, values, size, how, background, keep=keep, fault=fault)

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
        """Add, over all ranks, each rank's `k` values of largest magnitude, in place, and return the array.

        Instead of `k`, `density` is the share of values, above 0 and up to 1; k may differ between ranks, be 0, and
        more than there are means all.  Of equal values the first are taken, NaN before all others.  What is not among a
        rank's largest is lost: see `switchsum.host.compress` for keeping it.  `keep` is that of `allreduce_sparse`.

        Raises what `allreduce_sparse` does, and UsageError on every rank if on any of them k is negative, or the
        density no share.
        """
        steps = self._topk(array, k, density, Options(operator=op, lanes=lanes, label=label), keep, background=False)
        return steps().result()  # type: ignore[no-any-return]

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
        """Begin an `allreduce_topk`, whose values are chosen in the background, too; see `allreduce_sparse_async`."""
        how = Options(operator=op, lanes=lanes, label=label)
        return self.begin_steps(self._topk(array, k, density, how, keep, background=True))

    def _topk(
        self,
        array: npt.NDArray[Any],
        k: int | None,
        density: float | None,
        how: Options,
        keep: int | None,
        background: bool,
    ) -> Callable[[], LastStep]:
        from . import sparse  # noqa: PLC0415

        with self.checked():
            collectives.check_written("allreduce_topk", array)
        chosen, fault = sparse.largest_wanted(array, k, density)
        fault = fault or sparse.fault_of_keep(keep, (array.size,))
        return lambda: sparse.allreduce_topk(self, array, chosen, how, background, keep=keep, fault=fault)

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
        """Like `allreduce`, but only `root` gets the result; elsewhere the array stays as it is.  Returns it."""
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        self._enqueue_and_wait(self._reduce(array, root, how))
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
        """Combine `array` as `allreduce` does, and return this rank's part of the result; `array` stays as it is.

        The first axis is cut into one part for each rank, and must be a multiple of their number.  The part goes into
        `out` if given, which must have the part's shape and the array's dtype.
        """
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        result: Array = self._enqueue_and_wait(self._reduce_scatter(array, how, out))
        return result

    @whole
    def broadcast(self, array: Array, root: int = 0, *, label: str = "") -> Array:
        """Fill `array` on every rank with the bits that it has on `root`, and return it.

        Any dtype but Python objects, any layout; dtype and shape are the same on all ranks.  Blocks that are all zero
        do not travel.
        """
        self._enqueue_and_wait(self._broadcast(array, root, label))
        return array

    @whole
    def allgather(self, array: Array, *, out: Array | None = None, label: str = "") -> Array:
        """Return the arrays of all ranks, bit by bit, stacked along a new first axis in the order of ranks.

        Any dtype but Python objects; dtype and shape are the same on all ranks.  The result goes into `out` if given.
        """
        result: Array = self._enqueue_and_wait(self._allgather(array, out, label))
        return result

    @whole
    def barrier(self, *, label: str = "") -> None:
        """Wait until every rank has called it; raises what `allreduce` does."""
        self._enqueue_and_wait(self._made(lambda: collectives.barrier(label)))

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
        """Begin an allreduce and return at once; leave the array alone until the handle's `wait` has returned.

        Many may be in flight, and small ones share round trips.  With `background` a thread goes on with them while
        the caller computes; without, they move only while somebody waits for one.  All of that holds for the other
        collectives' forms that end in `_async`, too.  One with small blocks has several steps, which a thread takes in
        any case: see `allreduce_sparse_async`.

        Those that are in flight share the switch's slots, and what was begun first is served first.  Arrays in flight
        that overlap are added in turn if they are contiguous: beginning the second one waits for the end of the first.
        """
        if block is not None:
            how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
            return self.begin_steps(self._blocks(array, block, how, background=True))
        return self._enqueue(self._allreduce(array, op, lanes, narrow, saturate, label), background)

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
        """Begin a `reduce`."""
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        return self._enqueue(self._reduce(array, root, how), background)

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
        """Begin a `reduce_scatter`; `array` may be used at once."""
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        return self._enqueue(self._reduce_scatter(array, how, out), background)

    @whole
    def broadcast_async(
        self, array: npt.NDArray[Any], root: int = 0, *, label: str = "", background: bool = True
    ) -> Handle:
        """Begin a `broadcast`."""
        return self._enqueue(self._broadcast(array, root, label), background)

    @whole
    def allgather_async(
        self,
        array: npt.NDArray[Any],
        *,
        out: npt.NDArray[Any] | None = None,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Begin an `allgather`; `array` may be used at once."""
        return self._enqueue(self._allgather(array, out, label), background)

    @whole
    def barrier_async(self, *, label: str = "", background: bool = True) -> Handle:
        """Begin a barrier, which has ended when every rank has begun it."""
        return self._enqueue(self._made(lambda: collectives.barrier(label)), background)

    def _reduce(self, array: npt.NDArray[Any], root: int, how: Options) -> Handle:
        return self._made(lambda: parts.reduce(array, root, how, self.members))

    def _reduce_scatter(self, array: npt.NDArray[Any], how: Options, out: npt.NDArray[Any] | None) -> Handle:
        return self._made(lambda: parts.reduce_scatter(array, how, self.members, out=out))

    def _broadcast(self, array: npt.NDArray[Any], root: int, label: str) -> Handle:
        return self._made(lambda: parts.broadcast(array, root, self.members, label=label))

    def _allgather(self, array: npt.NDArray[Any], out: npt.NDArray[Any] | None, label: str) -> Handle:
        return self._made(lambda: parts.allgather(array, self.members, out=out, label=label))

    # What all of them have in common.

    def start(self, collective: Collective, *, stays: bool = False, background: bool = False) -> Handle:
        """Begin a collective; with `stays` drive it to its end, with `background` have a thread go on with it."""
        handle = self._handle(collective)
        self.queue.enqueue(handle, stays=stays, background=background)
        return handle

    def begin_steps(self, steps: Callable[[], LastStep]) -> Handle:
        """Begin a collective of several steps, of which `steps` takes all but the last, on a thread for them."""
        from .steps import begin_steps  # noqa: PLC0415 - most jobs have no collective of several steps

        return begin_steps(self.queue, steps)

    def break_off(self, error: SwitchsumError) -> NoReturn:
        """Break the communicator, and raise why."""
        self.queue.break_off(error)

    def refuse(self) -> None:
        """Let the other ranks hear that this one has refused what they call: their call ends with OperationMismatch."""
        with suppress(SwitchsumError):
            self.start(collectives.refused(), background=True)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Let the other ranks hear of it when arguments are refused before any collective was called.

        For libraries whose calls check arguments of their own: what is raised within takes the place of one collective,
        so that the others' call ends with OperationMismatch at once, and not with a time-out.

        Example:
            >>> with comm.checked():
            ...     if gradient.dtype != np.float32:
            ...         raise UsageError(f"this takes float32, not {gradient.dtype}")

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

    def _enqueue(self, handle: Handle, background: bool) -> Handle:
        if handle.operation.lanes == EACH:
            from . import each  # noqa: PLC0415

            return self.begin_steps(lambda: each.last_step(self, handle))
        self.queue.enqueue(handle, background=background)
        if self.queue.interrupts.is_asked_for:  # nobody would have the handle
            self.queue.interrupts.deliver()
        return handle

    def _enqueue_and_wait(self, handle: Handle) -> Any:
        """Begin a collective, stay with it to its end, and return its result."""
        if handle.operation.lanes == EACH:
            from . import each  # noqa: PLC0415

            return each.enqueue(self, handle, background=False).wait()
        self.queue.enqueue(handle, stays=True)
        return handle.wait()

    def reform(self) -> Communicator:
        """Go on without the ranks that are lost: return a new communicator of all the others; this one is closed.

        Every rank that is not lost calls it, after WorkerLost as a rule.  The ranks are numbered anew, in their old
        order, under a new epoch: nothing that was sent before counts any more.  The new communicator has the same
        arguments as this one in all other respects; collectives that had not ended are lost.  To go on with as many
        ranks as before, close this one, have somebody take the lost rank's place, and connect again.

        Raises CollectiveTimeout with the ranks that are neither lost nor call it, or what `connect` does.
        """
        if self._connect_again is None:
            raise UsageError("this communicator was not made by connect")
        if os.getpid() != self.queue.pid or self.queue.closed:
            raise UsageError("this communicator is closed")
        self.queue.close()
        try:
            rank, world_size = self.queue.membership.reform(self.queue.driver.engine.timeout_s)
        finally:
            self.queue.membership.leave()
        return self._connect_again(rank, world_size)

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
