"""Compressors around compressors, which keep what is lost for the next time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from switchsum.protocol.errors import UsageError

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

    An infinity or NaN of any rank makes the average NaN on all, so that GradScaler skips the step; what was lost before
    stays as it was.
    """

    def __init__(self, inner: Compressor) -> None:
        """`inner` sees gradients with what was lost."""
        self._inner = inner
        self._lost: dict[str, Floats] = {}

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        whole = _gathered(parts, self._lost)
        whole += values
        exchanged = self._inner.exchange_parts(comm, parts, _told(whole))
        if not is_finite(exchanged.mean):
            return exchanged
        whole -= exchanged.own
        for part, own in split(parts, whole):
            self._lost[part.key] = own.reshape(part.shape)
        return exchanged

    def lost(self, key: str) -> Floats:
        """Return what is still to be sent."""
        return self._lost[key]

    def _state(self) -> CompressorState:
        return {"lost": self._lost, "inner": self._inner._state()}

    def _restore(self, state: CompressorState) -> None:
        self._lost = state["lost"]
        self._inner.load_state_dict(state["inner"])


class DeepGradientCompression(Compressor):
    """Top-k of an accumulated velocity (DGC, ICLR 2018): momentum correction, masking, clipping and warm-up.

    Momentum happens here, before the choice: the optimiser must have none.
    """

    def __init__(
        self,
        density: float,
        momentum: float = 0.9,
        *,
        clip: float | None = None,
        warm_up: int = 0,
        lanes: str = "int32",
    ) -> None:
        """`density` is the share of values that a rank sends, to which it falls in the first `warm_up` exchanges.

        `momentum` is at least 0 and below 1, `clip` bounds a gradient's norm, over all ranks, and `lanes` is what
        values travel as.
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
        """Return the share of values that travel in an exchange: it falls exponentially during the warm-up."""
        if step >= self._warm_up:
            return self._density
        return float(self._density ** ((step + 1) / (self._warm_up + 1)))

    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """See `Compressor`; `own` is what this rank sent of its accumulated velocity."""
        step = self._steps.count(parts)
        values = _told(values)
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


def _told(values: Floats) -> Floats:
    """Return values, all NaN if one is not finite: whatever is chosen of them, the other ranks hear of it."""
    return values if is_finite(values) else np.full(values.size, np.nan, np.float32)


def _gathered(parts: Sequence[Part], kept: Mapping[str, Floats]) -> Floats:
    """Return what was kept of parts side by side, in memory of its own; zeros for parts that are new."""
    found = [kept[part.key] if part.key in kept else np.zeros(part.size, np.float32) for part in parts]
    return np.concatenate([one.reshape(-1) for one in found])
