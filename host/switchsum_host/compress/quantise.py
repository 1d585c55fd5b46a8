"""Compressors that send all values with few bits, as integers that the switch adds exactly.

So that integers of different ranks can be added, a scale is agreed on first: the largest (or the average) of the
ranks' own, a handful of values.  Lanes of 8 bits hold up to 127 over the number of ranks either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError

from .base import LARGEST, Communicates, Compressor, CompressorState, Exchanged, Floats, Part, Steps, name_of, norms_of


class Qsgd(Compressor):
    """Sends each value as a whole number of levels of its bucket's norm (QSGD, NIPS 2017, section 3.1).

    Levels are rounded up or down at random, so that the mean is right.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "steps": "each rank rounds by itself, and its values are right in the mean",
    }

    def __init__(self, levels: int = 15, bucket: int = 512, seed: int = 0, *, norm: str = "l2") -> None:
        """Choose levels and buckets; the same on all ranks.

        Args:
            levels: Levels between zero and the norm.  Up to 127 over the number of ranks fit lanes of 8 bits.
            bucket: How many values share a norm.
            seed: Number that rounding starts from.
            norm: "l2", or "max" for the largest magnitude.

        Raises:
            UsageError: A number is below 1, or there is no such norm.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import Qsgd
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([3, -3, 0], np.float32)  # whole levels of the largest magnitude lose nothing
            >>> on_ranks(2, lambda comm: Qsgd(levels=1, norm="max").exchange(comm, "layer", gradient).mean)[0]
            array([ 3., -3.,  0.], dtype=float32)

        """
        if levels < 1 or bucket < 1:
            raise UsageError(f"levels and bucket must be at least 1, not {levels} and {bucket}")
        if norm not in ("l2", "max"):
            raise UsageError(f"norm must be l2 or max, not {norm!r}")
        self._levels = levels
        self._bucket = bucket
        self._norm = norm
        self._seed = seed
        self._steps = Steps()

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        prepared = self._prepared(values)
        scales_of = norms_of if self._norm == "l2" else _largest_of
        norms = comm.allreduce(scales_of(prepared, self._bucket), "max")
        norms = np.repeat(norms, self._bucket)[: values.size] if len(norms) > 1 else norms
        step = self._steps.count(parts)
        random = np.random.default_rng([self._seed, comm.rank, step, *name_of(parts)])
        scaled = np.where(norms > 0, prepared / norms * np.float32(self._levels), np.float32(0))
        # Rounding in float32 may reach a hair beyond the norm.
        scaled = np.clip(scaled, -self._levels, self._levels)
        levels = np.floor(scaled + random.random(values.size, np.float32))
        levels[np.isnan(levels)] = 0  # of a bucket with a norm that is not finite: none of its averages is
        unit = norms / np.float32(self._levels)
        own = np.clip(levels, -self._levels, self._levels).astype(_lanes_for(self._levels, comm.world_size))
        total = comm.allreduce(own.copy())
        mean = total.astype(np.float32) * (unit / np.float32(comm.world_size))
        return Exchanged(own=own.astype(np.float32) * unit, mean=mean)

    def _prepared(self, values: Floats) -> Floats:
        return values

    def _state(self) -> CompressorState:
        return {"steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._steps = Steps(state["steps"])


class TernGrad(Qsgd):
    """Sends minus one, zero or one times the largest magnitude, chosen at random (TernGrad, NIPS 2017).

    The mean is right.  All ranks share the scale (section 4 there).
    """

    def __init__(self, seed: int = 0, *, clip: float | None = None, bucket: int = 1 << 20) -> None:
        """Choose clipping and buckets; the same on all ranks.

        Args:
            seed: Number that rounding starts from.
            clip: Limit of values, in standard deviations; None: no limit.
            bucket: How many values share a scale.

        Raises:
            UsageError: A number is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import TernGrad
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([3, -3, 0], np.float32)
            >>> on_ranks(2, lambda comm: TernGrad().exchange(comm, "layer", gradient).mean)[0]
            array([ 3., -3.,  0.], dtype=float32)

        """
        if clip is not None and not clip > 0:
            raise UsageError(f"clip must be positive, not {clip}")
        super().__init__(levels=1, bucket=bucket, seed=seed, norm="max")
        self._clip = clip

    def _prepared(self, values: Floats) -> Floats:
        if self._clip is None or not values.size:
            return values
        most = np.float32(min(self._clip * float(values.std(dtype=np.float64)), LARGEST))
        return np.clip(values, -most, most)


def _largest_of(values: Floats, bucket: int) -> Floats:
    """Return the largest magnitude of each bucket of a row; the last one may have fewer values."""
    magnitudes = np.abs(values)
    return np.maximum.reduceat(magnitudes, np.arange(0, values.size, bucket)) if values.size else magnitudes


def _lanes_for(levels: int, ranks: int) -> npt.DTypeLike:
    """Return the narrowest integers that hold the sum."""
    for kind in (np.int8, np.int16):
        if levels * ranks <= np.iinfo(kind).max:
            return kind
    return np.int32
