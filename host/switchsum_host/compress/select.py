"""Compressors that send some of the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError
from switchsum_switch.kernels.decorators import kernel

from ..api.rough import rough_sums
from ..api.sparse import largest, put_blocks, take_blocks
from .base import (
    Communicates,
    Compressor,
    CompressorState,
    Exchanged,
    Floats,
    Part,
    Stateless,
    Steps,
    check_density,
    count_of,
    is_finite,
    norms_of,
)


def exchange_at(
    comm: Communicates,
    values: Floats,
    indices: npt.NDArray[np.int64],
    *,
    keep: int | None = None,
    lanes: str = "int32",
) -> Exchanged:
    """Average the values at each rank's own indices, and keep the `keep` largest averages.

    `own` is what this rank meant to say: narrow lanes round it without bias, which no error feedback makes up for.
    """
    own = np.zeros(values.size, np.float32)
    own[indices] = values[indices]
    total = comm.allreduce_sparse(indices, values[indices], values.size, "average", lanes=lanes, keep=keep)
    if keep is not None:
        kept = own[total.indices]
        own[indices] = 0
        own[total.indices] = kept
    return Exchanged(own=own, mean=total.to_dense())


class TopK(Stateless):
    """Sends each rank's values of largest magnitude, which are found exactly.  Use it within `ErrorFeedback`."""

    def __init__(self, density: float, *, kept: float | None = None, lanes: str = "int32") -> None:
        """Choose how much is sent; the same on all ranks.

        Args:
            density: Share of values that a rank sends, above 0 and up to 1.
            kept: Share of averages that are kept, the largest ones; None: all.  A rank's value whose average is not
                kept counts as not sent.
            lanes: What values travel as, as in `Communicator.allreduce`.

        Raises:
            UsageError: A share is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import TopK
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([1, -8, 2, 0], np.float32)
            >>> on_ranks(2, lambda comm: TopK(0.5).exchange(comm, "layer", gradient).mean)[0]
            array([ 0., -8.,  2.,  0.], dtype=float32)

        """
        check_density(density)
        if kept is not None:
            check_density(kept)
        self._density = density
        self._kept = kept
        self._lanes = lanes

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        chosen = largest(values, count_of(self._density, values.size))
        keep = None if self._kept is None else count_of(self._kept, values.size)
        return exchange_at(comm, values, chosen, keep=keep, lanes=self._lanes)


class ThresholdTopK(Compressor):
    """Sends the values beyond a threshold, which is computed anew now and then (Ok-Topk, PPoPP 2022, section 3.1).

    Between two computations the threshold follows the number of values that it let through: by the fifth root of that
    number over the wanted one, and by a factor of two at most.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "thresholds": "each rank chooses its own values",
        "steps": "each rank computes its own threshold",
    }

    def __init__(self, density: float, period: int = 64, *, kept: float | None = None, lanes: str = "int32") -> None:
        """Choose how much is sent; the same on all ranks.

        Args:
            density: Share of values that a rank sends, roughly, above 0 and up to 1.
            period: Exchanges between two computations of the threshold.
            kept: As in `TopK`; Ok-Topk keeps as large a share as a rank sends.
            lanes: What values travel as, as in `Communicator.allreduce`.

        Raises:
            UsageError: A number is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import ThresholdTopK
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([1, -8, 2, 0], np.float32)
            >>> on_ranks(2, lambda comm: ThresholdTopK(0.25).exchange(comm, "layer", gradient).mean)[0]
            array([ 0., -8.,  0.,  0.], dtype=float32)

        """
        check_density(density)
        if kept is not None:
            check_density(kept)
        self._kept = kept
        self._lanes = lanes
        if period < 1:
            raise UsageError(f"period must be at least 1, not {period}")
        self._density = density
        self._period = period
        self._thresholds: dict[str, float] = {}
        self._steps = Steps()

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        k = count_of(self._density, values.size)
        step = self._steps.count(parts)
        keep = None if self._kept is None else count_of(self._kept, values.size)
        if not is_finite(values):  # a step that is skipped: no threshold follows from it
            return exchange_at(comm, values, largest(values, k), keep=keep, lanes=self._lanes)
        thresholds = {self._thresholds.get(part.key) for part in parts}
        threshold = thresholds.pop() if len(thresholds) == 1 else None  # None: parts that were not together before
        # Zero is what there was where fewer than k values were not: of others it would let all through.
        if (not threshold or step % self._period == 0) and values.size:
            threshold = float(np.abs(values[largest(values, k)]).min())
        threshold = threshold or 0.0
        indices = np.empty(values.size, np.int64)
        indices = indices[: beyond(values, threshold, indices)].copy()
        following = threshold * float(np.clip((max(1, len(indices)) / max(1, k)) ** 0.2, 0.5, 2.0))
        self._thresholds.update((part.key, following) for part in parts)
        return exchange_at(comm, values, indices, keep=keep, lanes=self._lanes)

    def _state(self) -> CompressorState:
        return {"thresholds": self._thresholds, "steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._thresholds, self._steps = state["thresholds"], Steps(state["steps"])


@kernel
def beyond(values: Floats, threshold: float, indices: npt.NDArray[np.int64]) -> int:
    """Write the indices of values that are not zero and of at least the threshold's magnitude; return their number."""
    count = 0
    for i in range(values.size):
        # NaN counts as large: it must not be lost.
        if not abs(values[i]) < threshold and values[i] != 0:
            indices[count] = i
            count += 1
    return count


class BlockTopK(Stateless):
    """Sends the blocks whose norms, added over all ranks, are largest.

    All ranks send the same blocks, so that neither indices nor a bitmap travel.  The norms travel as 8 bits each; of
    nearly equal blocks any may be chosen.
    """

    def __init__(self, density: float, block: int = 256, *, lanes: str = "int32") -> None:
        """Choose how much is sent; the same on all ranks.

        Args:
            density: Share of blocks that travel, above 0 and up to 1.
            block: Number of values in a block.
            lanes: What values travel as, as in `Communicator.allreduce`.

        Raises:
            UsageError: A number is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import BlockTopK
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([1, 1, 8, 8], np.float32)
            >>> on_ranks(2, lambda comm: BlockTopK(0.5, block=2).exchange(comm, "layer", gradient).mean)[0]
            array([0., 0., 8., 8.], dtype=float32)

        """
        check_density(density)
        if block < 1:
            raise UsageError(f"a block has at least one value, not {block}")
        self._density = density
        self._block = block
        self._lanes = lanes

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        norms = rough_sums(comm, norms_of(values, self._block))
        kept = largest(norms, count_of(self._density, len(norms)))
        blocks = take_blocks(values, self._block, kept)
        # Pages of zeros that are never touched cost nothing.
        own, mean = np.zeros(values.size, np.float32), np.zeros(values.size, np.float32)
        put_blocks(own, self._block, kept, blocks)
        put_blocks(mean, self._block, kept, comm.allreduce(blocks, "average", lanes=self._lanes))
        return Exchanged(own=own, mean=mean)
