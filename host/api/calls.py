"""The collectives as callers call them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import SwitchsumError

from ..engine.operation import Operation
from . import collectives
from .collectives import Options
from .driving import Driving
from .handle import Handle
from .interrupts import breaks_between_steps, breaks_if_interrupted

if TYPE_CHECKING:
    from .sparse import LastStep, SparseSum

Array = TypeVar("Array", bound=npt.NDArray[Any])
Made = TypeVar("Made")

MOST_KNOWN: Final = 256
"""Kinds of allreduces that are kept."""


class CollectiveCalls(Driving):
    """Every rank calls the same collectives in the same order."""

    supports: npt.NDArray[np.int64]
    """Rows that this rank had in sparse allreduces so far, that some rank had, and of the whole arrays."""
    _known: dict[Hashable, Operation]
    """Allreduces in place that were called before, by dtype, shape, operator and lanes."""

    def _checked(self, prepare: Callable[[], Made]) -> Made:
        """Return what a function returns; if it refuses the caller's arguments, let the other ranks hear of it.

        The function does nothing that it could not do again: then it is not a signal handler that has raised.
        """
        try:
            try:
                return prepare()
            except SwitchsumError:
                raise
            except BaseException as error:
                self._note_early(error)
            return prepare()
        except BaseException:
            self._note_early(None)
            self._refuse()
            raise

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
            self._refuse()
            raise

    def _refuse(self) -> None:
        with suppress(SwitchsumError):
            self._start(collectives.refused(self), background=True)

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
        try:  # what `breaks_if_interrupted` does, sooner
            if block is not None:
                how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
                return self._in_blocks(array, block, how)
            self._run(self._allreduce(array, op, lanes, narrow, saturate, label))
            return array
        except BaseException as error:
            self._broken_off(error)
            raise

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
                return Handle(self, known, array, saturates=saturate)
        how = Options(operator=op, lanes=lanes, narrow=narrow, saturate=saturate, label=label)
        handle = self._checked(lambda: collectives.allreduce(array, how, self))
        if is_plain and not (narrow and array.dtype == np.float64):
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = handle._operation
        return handle

    def _unite(self, bits: npt.NDArray[np.uint64], call: str) -> None:
        """Combine bits of all ranks, as the first step of a call that errors describe so."""
        kind = "supports"  # with an allreduce of such bits that a caller asks for this has nothing to do
        self._run(collectives.allreduce(bits, Options(operator="or"), self, kind=kind, words=call))

    @breaks_between_steps
    def _in_blocks(self, array: Array, block: int | str, how: Options) -> Array:
        return self._blocks(array, block, how, background=False)().result()  # type: ignore[no-any-return]

    def _blocks(self, array: Array, block: int | str, how: Options, background: bool) -> Callable[[], LastStep]:
        """Return the steps of an allreduce in small blocks; raises what an allreduce of whole frames does."""
        from . import sparse  # noqa: PLC0415 - many jobs add no sparse arrays

        self._checked(lambda: sparse.check_blocks(array, how))
        return lambda: sparse.allreduce_blocks(self, array, block, how, background)

    @breaks_between_steps
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

    @breaks_if_interrupted
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
        return self._begin_steps(self._sparse(indices, values, size, how, keep, background=True))

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

        indices, values = self._checked(lambda: sparse.given(indices, values, size))
        fault = sparse.fault_of_keep(keep, values.shape)
        return lambda: sparse.allreduce_sparse(self, indices, values, size, how, background, keep=keep, fault=fault)

    @breaks_between_steps
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

    @breaks_if_interrupted
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
        return self._begin_steps(self._topk(array, k, density, how, keep, background=True))

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

        self._checked(lambda: collectives.check_written("allreduce_topk", array))
        chosen, fault = sparse.largest_wanted(array, k, density)
        fault = fault or sparse.fault_of_keep(keep, (array.size,))
        return lambda: sparse.allreduce_topk(self, array, chosen, how, background, keep=keep, fault=fault)

    @breaks_if_interrupted
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
        self._run(self._reduce(array, root, how))
        return array

    @breaks_if_interrupted
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
        result: Array = self._run(self._reduce_scatter(array, how, out))
        return result

    @breaks_if_interrupted
    def broadcast(self, array: Array, root: int = 0, *, label: str = "") -> Array:
        """Fill `array` on every rank with the bits that it has on `root`, and return it.

        Any dtype but Python objects, any layout; dtype and shape are the same on all ranks.  Blocks that are all zero
        do not travel.
        """
        self._run(self._broadcast(array, root, label))
        return array

    @breaks_if_interrupted
    def allgather(self, array: Array, *, out: Array | None = None, label: str = "") -> Array:
        """Return the arrays of all ranks, bit by bit, stacked along a new first axis in the order of ranks.

        Any dtype but Python objects; dtype and shape are the same on all ranks.  The result goes into `out` if given.
        """
        result: Array = self._run(self._allgather(array, out, label))
        return result

    @breaks_if_interrupted
    def barrier(self, *, label: str = "") -> None:
        """Wait until every rank has called it; raises what `allreduce` does."""
        self._run(collectives.barrier(self, label))

    @breaks_if_interrupted
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
            return self._begin_steps(self._blocks(array, block, how, background=True))
        return self._start(self._allreduce(array, op, lanes, narrow, saturate, label), background)

    @breaks_if_interrupted
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
        return self._start(self._reduce(array, root, how), background)

    @breaks_if_interrupted
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
        return self._start(self._reduce_scatter(array, how, out), background)

    @breaks_if_interrupted
    def broadcast_async(
        self, array: npt.NDArray[Any], root: int = 0, *, label: str = "", background: bool = True
    ) -> Handle:
        """Begin a `broadcast`."""
        return self._start(self._broadcast(array, root, label), background)

    @breaks_if_interrupted
    def allgather_async(
        self,
        array: npt.NDArray[Any],
        *,
        out: npt.NDArray[Any] | None = None,
        label: str = "",
        background: bool = True,
    ) -> Handle:
        """Begin an `allgather`; `array` may be used at once."""
        return self._start(self._allgather(array, out, label), background)

    @breaks_if_interrupted
    def barrier_async(self, *, label: str = "", background: bool = True) -> Handle:
        """Begin a barrier, which has ended when every rank has begun it."""
        return self._start(collectives.barrier(self, label), background)

    def _reduce(self, array: npt.NDArray[Any], root: int, how: Options) -> Handle:
        def prepare() -> Handle:
            from . import parts  # noqa: PLC0415 - in here, and below, it is imported again if a signal handler raises

            return parts.reduce(array, root, how, self)

        return self._checked(prepare)

    def _reduce_scatter(self, array: npt.NDArray[Any], how: Options, out: npt.NDArray[Any] | None) -> Handle:
        def prepare() -> Handle:
            from . import parts  # noqa: PLC0415

            return parts.reduce_scatter(array, how, self, out=out)

        return self._checked(prepare)

    def _broadcast(self, array: npt.NDArray[Any], root: int, label: str) -> Handle:
        def prepare() -> Handle:
            from . import parts  # noqa: PLC0415

            return parts.broadcast(array, root, self, label=label)

        return self._checked(prepare)

    def _allgather(self, array: npt.NDArray[Any], out: npt.NDArray[Any] | None, label: str) -> Handle:
        def prepare() -> Handle:
            from . import parts  # noqa: PLC0415

            return parts.allgather(array, self, out=out, label=label)

        return self._checked(prepare)
