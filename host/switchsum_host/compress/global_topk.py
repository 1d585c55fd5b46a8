"""The largest values of all ranks together, found by counting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..api.sparse import largest
from .base import Communicates, Exchanged, Floats, Part, Stateless, check_density, count_of
from .select import exchange_at

MANTISSA_BITS: Final = 4
"""Magnitudes that share the exponent and so many bits are of one class: they differ by 1/16 at most."""
_FLOAT32_MANTISSA_BITS: Final = 23
_SHIFT: Final = _FLOAT32_MANTISSA_BITS - MANTISSA_BITS
CLASSES: Final = 1 << (31 - _SHIFT)

Counts = npt.NDArray[np.int32]


class GlobalTopK(Stateless):
    """Sends the values of largest magnitude of all ranks together, in all no more than one rank sends with `TopK`.

    Ranks count their candidates by magnitude and add the counts.  Then each rank sends its part of as many values as
    travel.
    """

    def __init__(self, density: float, *, lanes: str = "int32") -> None:
        """Choose how much is sent; the same on all ranks.

        Args:
            density: Share of values that travel, of all ranks together, above 0 and up to 1.
            lanes: What values travel as, as in `Communicator.allreduce`.

        Raises:
            UsageError: The density is out of range.

        Note:
            In the mean this is gTop-k (ICDCS 2019) with a common threshold (NeurIPS 2021, hard thresholds) that need
            not be guessed.  A value that is sent is never less than 15/16 of one that another rank keeps back.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import GlobalTopK
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([1, 2, 30, 4], np.float32)
            >>> def exchange(comm):
            ...     return GlobalTopK(0.25).exchange(comm, "layer", gradient if comm.rank else gradient / 10).mean
            >>> on_ranks(2, exchange)[0]
            array([ 0.,  0., 15.,  0.], dtype=float32)

        """
        check_density(density)
        self._density = density
        self._lanes = lanes

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        k = count_of(self._density, values.size)
        chosen = largest(values, k)
        candidates = values[chosen]
        own = counted(candidates)
        total = own.copy()
        comm.allreduce(total)
        chosen = chosen[largest(candidates, share(own, total, k))]
        return exchange_at(comm, values, chosen, lanes=self._lanes)


def counted(values: Floats) -> Counts:
    """Return how many values there are of each class of magnitudes, zeros left out."""
    bits: npt.NDArray[Any] = np.abs(values[values != 0]).view(np.uint32) >> np.uint32(_SHIFT)
    return np.bincount(bits, minlength=CLASSES).astype(np.int32)


def share(own: Counts, total: Counts, k: int) -> int:
    """Return how many of a rank's values are among the `k` largest of all, a part of the class where these end.

    Ranks round up: together they send fewer than one value each too many.
    """
    above = np.cumsum(total[::-1], dtype=np.int64)[::-1] - total
    last = int(np.count_nonzero(above >= k))  # classes are ordered: of these no value is sent
    if last == len(total) or not total[last]:
        return int(own.sum())
    left = min(k - int(above[last]), int(total[last]))
    of_last = -(-int(own[last]) * left // int(total[last]))
    return int(own[last + 1 :].sum()) + of_last
