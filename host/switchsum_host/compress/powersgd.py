"""PowerSGD: two thin factors instead of a matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from switchsum_protocol.errors import UsageError

from .base import Communicates, Compressor, CompressorState, Exchanged, Floats, Part, is_finite, split
from .factors import orthonormal, product


class PowerSgd(Compressor):
    """Sends two thin factors of each gradient in place of its matrix (PowerSGD, NeurIPS 2019, algorithm 1).

    It takes one step of a power iteration a gradient, from where the last one ended.  The switch adds both factors,
    those of all parts together.  Use it within `ErrorFeedback`.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "factors": "any factors will do: an exchange leaves the same ones on all ranks",
    }

    def __init__(self, rank: int = 2, seed: int = 0) -> None:
        """Choose the rank of the approximation; the same on all ranks.

        Args:
            rank: Columns of each factor, from 1 on.
            seed: Number that the first factors are drawn from.

        Raises:
            UsageError: The rank is below 1.

        Note:
            A part with several axes is a matrix whose rows are its first axis.  A part with one axis, or whose matrix
            is too thin to become smaller, is laid out as nearly square as its size allows, with zeros at the end.  A
            part that neither layout makes smaller travels whole: it has a few dozen values.

            `own` and `mean` of an exchange are the same array's values: every rank's message says the average.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import PowerSgd
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.outer(np.arange(8), np.arange(9)).astype(np.float32)  # a matrix of rank 1
            >>> mean = on_ranks(2, lambda comm: PowerSgd(1).exchange(comm, "layer", gradient).mean)[0]
            >>> bool(np.allclose(mean, gradient, atol=1e-3))
            True

        """
        if rank < 1:
            raise UsageError(f"rank must be at least 1, not {rank}")
        self._rank = rank
        self._seed = seed
        self._factors: dict[str, Floats] = {}

    def values_of(self, shape: tuple[int, ...]) -> int:
        """Return how many values travel for a gradient of a shape, in both factors together.

        Args:
            shape: The gradient's shape.

        Returns:
            A number of values.

        """
        layout = self._layout(shape)
        return math.prod(shape) if layout is None else self._rank * sum(layout)

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        rows = {part.key: row for part, row in split(parts, values)}
        layouts = {part.key: self._layout(part.shape) for part in parts}
        matrices = {key: _matrix(rows.pop(key), *layout) for key, layout in layouts.items() if layout is not None}
        lefts = {key: matrix @ self._right(key, matrix.shape[1]) for key, matrix in matrices.items()}
        # What is left of the rows travels whole, beside the factors.
        averages = _average(comm, lefts | rows)
        lefts = {key: orthonormal(averages[key]) for key in matrices}
        rights = _average(comm, {key: matrix.T @ lefts[key] for key, matrix in matrices.items()})
        self._factors.update((key, right) for key, right in rights.items() if is_finite(right))
        own, mean = values.copy(), np.empty_like(values)
        for (part, said), (_, to) in zip(split(parts, own), split(parts, mean), strict=True):
            if part.key in matrices:
                product(lefts[part.key], rights[part.key], to)
                said[:] = to
            else:
                to[:] = averages[part.key]
        return Exchanged(own=own, mean=mean)

    def _layout(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """Return rows and columns of the matrix that a part becomes; None for one that travels whole."""
        size = math.prod(shape)
        for rows in (shape[0] if len(shape) > 1 else 0, math.isqrt(size)):
            if rows and self._rank * (rows + -(-size // rows)) < size:
                return rows, -(-size // rows)
        return None

    def _right(self, key: str, columns: int) -> Floats:
        """Return the factor that the last exchange has left; a random one, the same on all ranks, for a new part."""
        found = self._factors.get(key)
        if found is None:
            random = np.random.default_rng([self._seed, *key.encode()])
            found = random.standard_normal((columns, self._rank)).astype(np.float32)
        return found

    def _state(self) -> CompressorState:
        return {"factors": self._factors}

    def _restore(self, state: CompressorState) -> None:
        self._factors = state["factors"]


def _matrix(values: Floats, rows: int, columns: int) -> Floats:
    """Return a row as a matrix, zeros at its end where it has fewer values."""
    if values.size < rows * columns:
        values = np.concatenate([values, np.zeros(rows * columns - values.size, np.float32)])
    return values.reshape(rows, columns)


def _average(comm: Communicates, arrays: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the averages of arrays over all ranks, which travel side by side; of none, nothing travels."""
    if not arrays:
        return {}
    row = comm.allreduce(np.concatenate([one.reshape(-1) for one in arrays.values()]), "average")
    ends = np.cumsum([one.size for one in arrays.values()])[:-1]
    return {key: part.reshape(arrays[key].shape) for key, part in zip(arrays, np.split(row, ends), strict=True)}
