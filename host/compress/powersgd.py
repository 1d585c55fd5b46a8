"""PowerSGD: two thin factors instead of a matrix."""

from __future__ import annotations

import math

import numpy as np

from switchsum.host.compress.base import Communicates, Compressor, Exchanged, Floats, State, flat
from switchsum.protocol.errors import UsageError


class PowerSgd(Compressor):
    """One step of a power iteration a gradient, from where the last one ended (PowerSGD, NeurIPS 2019, algorithm 1).

    Both factors are averaged as they are: the switch adds them.  A gradient with one axis becomes a matrix that is as
    square as its size allows; one that the factors would not make smaller travels whole.  The average is what every
    rank's message says, so `own` is it: use error feedback.
    """

    def __init__(self, rank: int = 2, seed: int = 0) -> None:
        """`rank` of the approximation."""
        if rank < 1:
            raise UsageError(f"rank must be at least 1, not {rank}")
        self._rank = rank
        self._seed = seed
        self._factors: dict[str, Floats] = {}

    def exchange(self, comm: Communicates, key: str, gradient: Floats) -> Exchanged:
        """See `Compressor`."""
        values = flat(gradient)
        rows = gradient.shape[0] if gradient.ndim > 1 else _most_square(values.size)
        columns = values.size // rows if rows else 0
        if self._rank * (rows + columns) >= values.size:
            mean = comm.allreduce(values.copy(), "average").reshape(gradient.shape)
            return Exchanged(own=gradient.copy(), mean=mean)
        matrix = values.reshape(rows, columns)
        right = self._factors.get(key)
        if right is None:
            random = np.random.default_rng([self._seed, *key.encode()])
            right = random.standard_normal((columns, self._rank)).astype(np.float32)
        left = comm.allreduce(np.ascontiguousarray(matrix @ right), "average")
        # In float64, of the same bits everywhere: the same on every rank of equal machines.
        left = np.linalg.qr(left.astype(np.float64))[0].astype(np.float32)
        right = comm.allreduce(np.ascontiguousarray(matrix.T @ left), "average")
        self._factors[key] = right
        mean = (left @ right.T).reshape(gradient.shape)
        return Exchanged(own=mean.copy(), mean=mean)

    def _state(self) -> State:
        return {"factors": self._factors}

    def _restore(self, state: State) -> None:
        self._factors = state["factors"]


def _most_square(size: int) -> int:
    """Return the largest divisor of a size up to its root."""
    for rows in range(math.isqrt(size), 0, -1):
        if size % rows == 0:
            return rows
    return 0
