"""Compressors around compressors, which keep what is lost for the next time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from switchsum_protocol.errors import UsageError

from ..api.sparse import largest
from .base import (
    Communicates,
    Compressor,
    CompressorState,
    Exchanged,
    Floats,
    Part,
    Steps,
    check_density,
    count_of,
    is_finite,
    split,
)
from .select import exchange_at


class ErrorFeedback(Compressor):
    """Adds to each gradient what the compressor lost of the ones before (EF-SGD, ICML 2019, algorithm 2).

    If any rank has a NaN or an infinity, the average is NaN on all ranks, so that GradScaler skips the step.  What was
    lost before that step stays as it was.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "lost": "what this rank has not sent",
        "inner": "the inner compressor has a record of its own",
    }

    def __init__(self, inner: Compressor) -> None:
        """Wrap a compressor.

        Args:
            inner: The compressor.  It is given gradients with what was lost added.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import ErrorFeedback, TopK
            >>> from switchsum.testing import on_ranks
            >>> def two_steps(comm):
            ...     compressor, gradient = ErrorFeedback(TopK(0.5)), np.array([3, 2], np.float32)
            ...     return [compressor.exchange(comm, "layer", gradient).mean.tolist() for _ in range(2)]
            >>> on_ranks(2, two_steps)[0]
            [[3.0, 0.0], [0.0, 4.0]]

        """
        self._inner = inner
        self._lost: dict[str, Floats] = {}

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        whole = _gathered(parts, self._lost)
        whole += values
        exchanged = self._inner.exchange_parts(comm, parts, _counted(whole))
        if not is_finite(exchanged.mean):
            return exchanged
        whole -= exchanged.own
        for part, own in split(parts, whole):
            self._lost[part.key] = own.reshape(part.shape)
        return exchanged

    @property
    def must_be_alike(self) -> frozenset[str]:
        """See `Compressor`."""
        return super().must_be_alike | self._inner.must_be_alike

    def lost(self, key: str) -> Floats:
        """Return what is still to be sent of one parameter.

        Args:
            key: The parameter's name.

        Returns:
            An array of the gradient's shape.

        Raises:
            KeyError: No gradient of that name was exchanged.

        """
        return self._lost[key]

    def _state(self) -> CompressorState:
        return {"lost": self._lost, "inner": self._inner._state()}

    def _restore(self, state: CompressorState) -> None:
        self._lost = state["lost"]
        self._inner.load_state_dict(state["inner"])


class DeepGradientCompression(Compressor):
    """Sends the largest values of an accumulated velocity (DGC, ICLR 2018).

    It has that paper's momentum correction, masking, clipping and warm-up.  Momentum is applied here, before values are
    chosen: the optimizer must have none.
    """

    ranks_may_differ: ClassVar[Mapping[str, str]] = {
        "velocity": "of this rank's gradients",
        "accumulated": "what this rank has not sent",
        "steps": "each rank chooses its own values",
    }

    def __init__(
        self,
        density: float,
        momentum: float = 0.9,
        *,
        clip: float | None = None,
        warm_up: int = 0,
        lanes: str = "int32",
    ) -> None:
        """Choose how much is sent; the same on all ranks.

        Args:
            density: Share of values that a rank sends after the warm-up, above 0 and up to 1.
            momentum: At least 0 and below 1.
            clip: Limit of the norm of a gradient, over all ranks; None: no limit.
            warm_up: Exchanges in which the density falls to `density`.
            lanes: What values travel as, as in `Communicator.allreduce`.

        Raises:
            UsageError: A number is out of range.

        Example:
            >>> import numpy as np
            >>> from switchsum_host.compress import DeepGradientCompression
            >>> from switchsum.testing import on_ranks
            >>> gradient = np.array([3, 2], np.float32)
            >>> on_ranks(2, lambda comm: DeepGradientCompression(0.5).exchange(comm, "layer", gradient).mean)[0]
            array([3., 0.], dtype=float32)

        """
        check_density(density)
        if not 0 <= momentum < 1:
            raise UsageError(f"momentum must be at least 0 and below 1, not {momentum}")
        if clip is not None and not clip > 0:
            raise UsageError(f"clip must be positive, not {clip}")
        if warm_up < 0:
            raise UsageError(f"warm_up must not be negative, and is {warm_up}")
        self._density = density
        self._momentum = np.float32(momentum)
        self._clip = clip
        self._warm_up = warm_up
        self._lanes = lanes
        self._velocity: dict[str, Floats] = {}
        self._accumulated: dict[str, Floats] = {}
        self._steps = Steps()

    def density_at(self, step: int) -> float:
        """Return the share of values that travel in an exchange: it falls exponentially during the warm-up.

        Args:
            step: Number of the exchange, from 0.

        Returns:
            A share, `density` from the step `warm_up` on.

        """
        if step >= self._warm_up:
            return self._density
        return float(self._density ** ((step + 1) / (self._warm_up + 1)))

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """See `Compressor`; `own` is what this rank sent of its accumulated velocity."""
        step = self._steps.count(parts)
        values = _counted(values)
        if self._clip is not None:
            # Each of n ranks has its share of the norm of their sum (section 3.2 there).
            most = self._clip / comm.world_size**0.5
            norm = float(np.linalg.norm(values.astype(np.float64)))
            values = values * np.float32(most / norm) if norm > most else values
        velocity, accumulated = _gathered(parts, self._velocity), _gathered(parts, self._accumulated)
        velocity = self._momentum * velocity + values
        accumulated += velocity
        chosen = largest(accumulated, count_of(self.density_at(step), values.size))
        exchanged = exchange_at(comm, accumulated, chosen, lanes=self._lanes)
        if not is_finite(exchanged.mean):
            return exchanged  # as if the step had not been
        velocity[chosen] = 0
        accumulated[chosen] = 0
        self._velocity.update((part.key, own) for part, own in split(parts, velocity))
        self._accumulated.update((part.key, own) for part, own in split(parts, accumulated))
        return exchanged

    def _state(self) -> CompressorState:
        return {"velocity": self._velocity, "accumulated": self._accumulated, "steps": self._steps}

    def _restore(self, state: CompressorState) -> None:
        self._velocity, self._accumulated = state["velocity"], state["accumulated"]
        self._steps = Steps(state["steps"])


def _counted(values: Floats) -> Floats:
    """Return values, all NaN if one is not finite: whatever is chosen of them, the other ranks hear of it."""
    return values if is_finite(values) else np.full(values.size, np.nan, np.float32)


def _gathered(parts: Sequence[Part], kept: Mapping[str, Floats]) -> Floats:
    """Return what was kept of parts side by side, in memory of its own; zeros for parts that are new."""
    found = [kept[part.key] if part.key in kept else np.zeros(part.size, np.float32) for part in parts]
    return np.concatenate([one.reshape(-1) for one in found])
