"""The collectives as callers call them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import numpy.typing as npt

from switchsum.host import collectives
from switchsum.host.collectives import Call, How, Place
from switchsum.host.handle import Handle

Array = TypeVar("Array", bound=npt.NDArray[Any])


class CollectiveCalls(ABC):
    """Every rank calls the same collectives in the same order."""

    rank: int
    """0 to world_size - 1."""
    world_size: int
    """Number of ranks."""

    @abstractmethod
    def _start(self, call: Call, background: bool) -> Handle:
        """Begin a collective, and have a thread go on with it in the background if wanted."""

    @property
    def _place(self) -> Place:
        return Place(rank=self.rank, world_size=self.world_size)

    def allreduce(
        self, array: Array, op: str = "sum", *, lanes: str = "int32", narrow: bool = False, saturate: bool = False
    ) -> Array:
        """Combine `array` over all ranks, element by element, in place, and return it; all ranks get the same bits.

        `op` is one of

        - "sum", of float32, float16, bfloat16 (ml_dtypes) and integers of 8 to 32 bits; of float64 if `narrow` allows
          that it goes through float32.  A float sum of n ranks is off by at most n/2 steps of its block plus the
          rounding to its dtype; see `switchsum.protocol.lanes`.  A block (as many values as the switch's program has
          lanes) with NaN or infinity on any rank comes out all NaN on every rank.  Integer sums are exact; where one
          does not fit its dtype, every rank raises SumOverflow and the element holds the nearest value; with `saturate`
          none raises.
        - "average", of floats: the sum over the number of ranks.

        `lanes` is what floats travel as in sums and averages: "int16" and "int8" take half and a quarter of the bytes,
        and round at random so that the mean is right; a sum of n ranks is then off by up to n steps.

        Arrays may have any shape and layout.  Raises UnsupportedDtype or UsageError; OperationMismatch if another rank
        called something else; CollectiveTimeout, WorkerLost, SwitchLost or NotAdmitted when it cannot go on.
        """
        self.allreduce_async(array, op, lanes=lanes, narrow=narrow, saturate=saturate, background=False).wait()
        return array

    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
    ) -> Array:
        """Like `allreduce`, but only `root` gets the result; elsewhere the array stays as it is.  Returns it."""
        self.reduce_async(array, root, op, lanes=lanes, narrow=narrow, saturate=saturate, background=False).wait()
        return array

    def reduce_scatter(
        self,
        array: Array,
        op: str = "sum",
        *,
        out: Array | None = None,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
    ) -> Array:
        """Combine `array` as `allreduce` does, and return this rank's part of the result; `array` stays as it is.

        The first axis is cut into one part for each rank, and must be a multiple of their number.  The part goes into
        `out` if given, which must have the part's shape and the array's dtype.
        """
        handle = self.reduce_scatter_async(
            array, op, out=out, lanes=lanes, narrow=narrow, saturate=saturate, background=False
        )
        result: Array = handle.wait()
        return result

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Fill `array` on every rank with the bits that it has on `root`, and return it.

        Any dtype but Python objects, any layout; dtype and shape are the same on all ranks.  Blocks that are all zero
        do not travel.
        """
        self.broadcast_async(array, root, background=False).wait()
        return array

    def allgather(self, array: Array, *, out: Array | None = None) -> Array:
        """Return the arrays of all ranks, bit by bit, stacked along a new first axis in the order of ranks.

        Any dtype but Python objects; dtype and shape are the same on all ranks.  The result goes into `out` if given.
        """
        result: Array = self.allgather_async(array, out=out, background=False).wait()
        return result

    def barrier(self) -> None:
        """Wait until every rank has called it; raises what `allreduce` does."""
        self.barrier_async(background=False).wait()

    def allreduce_async(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        background: bool = True,
    ) -> Handle:
        """Begin an allreduce and return at once; leave the array alone until the handle's `wait` has returned.

        Many may be in flight, and small ones share round trips.  With `background` a thread goes on with them while
        the caller computes; without, they move only while somebody waits for one.  All of that holds for the other
        collectives' forms that end in `_async`, too.
        """
        how = How(operator=op, lanes=lanes, narrow=narrow, saturate=saturate)
        return self._start(collectives.allreduce(array, how), background)

    def reduce_async(
        self,
        array: npt.NDArray[Any],
        root: int = 0,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        background: bool = True,
    ) -> Handle:
        """Begin a `reduce`."""
        how = How(operator=op, lanes=lanes, narrow=narrow, saturate=saturate)
        return self._start(collectives.reduce(array, root, how, self._place), background)

    def reduce_scatter_async(
        self,
        array: npt.NDArray[Any],
        op: str = "sum",
        *,
        out: npt.NDArray[Any] | None = None,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        background: bool = True,
    ) -> Handle:
        """Begin a `reduce_scatter`; `array` may be used at once."""
        how = How(operator=op, lanes=lanes, narrow=narrow, saturate=saturate)
        return self._start(collectives.reduce_scatter(array, how, self._place, out=out), background)

    def broadcast_async(self, array: npt.NDArray[Any], root: int = 0, *, background: bool = True) -> Handle:
        """Begin a `broadcast`."""
        return self._start(collectives.broadcast(array, root, self._place), background)

    def allgather_async(
        self, array: npt.NDArray[Any], *, out: npt.NDArray[Any] | None = None, background: bool = True
    ) -> Handle:
        """Begin an `allgather`; `array` may be used at once."""
        return self._start(collectives.allgather(array, self._place, out=out), background)

    def barrier_async(self, *, background: bool = True) -> Handle:
        """Begin a barrier, which has ended when every rank has begun it."""
        return self._start(collectives.barrier(), background)
