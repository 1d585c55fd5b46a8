"""What all compressors have in common."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum.protocol.errors import UsageError

from ..api.handle import Handle
from ..api.sparse import SparseSum

Floats = npt.NDArray[np.float32]
CompressorState = dict[str, Any]
"""Numbers, arrays and dictionaries of them, for `torch.save` and the like."""
Reduced = TypeVar("Reduced", bound=npt.NDArray[Any])


class Communicates(Protocol):
    """What a compressor needs of a communicator."""

    rank: int
    """0 to world_size - 1."""
    world_size: int
    """Number of ranks."""

    def allreduce(self, array: Reduced, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Reduced:
        """Combine arrays in place."""
        ...

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
        """Add sparse arrays."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A parameter's gradient among others that lie side by side."""

    key: str
    """Names the parameter, always the same one."""
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its number of values."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """What came of a gradient."""

    own: Floats
    """What this rank's message says, in full: what of the gradient was not lost."""
    mean: Floats
    """The average of all ranks' `own`, the same bits on every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An exchange that was begun: this one has ended already."""

    mean: Floats
    handles: tuple[Handle, ...] = ()
    """Collectives that have not ended."""

    def finish(self) -> Floats:
        """Return the average."""
        return self.mean


class Compressor(ABC):
    """Averages gradients over all ranks, roughly, with fewer bytes.

    Every rank makes the same compressor and exchanges the same keys in the same order.
    """

    sums_in_network: ClassVar[bool] = True
    """Whether the switch adds the messages, so that a rank receives as many bytes as it sends, however many ranks."""

    def exchange(self, comm: Communicates, key: str, gradient: Floats) -> Exchanged:
        """Exchange one gradient, of any shape, which stays as it is; `key` names what it is the gradient of.

        Raises what the communicator raises, and UsageError for a gradient that is no float32.
        """
        shape = gradient.shape
        exchanged = self.exchange_parts(comm, (Part(key=key, shape=shape),), flat(gradient))
        return Exchanged(own=exchanged.own.reshape(shape), mean=exchanged.mean.reshape(shape))

    @abstractmethod
    def exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """Exchange gradients that lie side by side in a row, together; `own` and `mean` are rows, too.

        What is remembered is each part's own, so that parts may come in another company the next time.
        """

    def begin(self, comm: Communicates, key: str, gradient: Floats) -> Begun:
        """Exchange one gradient; the `finish` of what this returns gives the average."""
        return Begun(mean=self.exchange(comm, key, gradient).mean)

    def begin_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Begun:
        """Exchange a bucket, as hooks of training frameworks do; the `finish` of what this returns gives the average.

        All is done when this returns: phases that need answers wait for them here.
        """
        return Begun(mean=self.exchange_parts(comm, parts, flat(values)).mean)

    def state_dict(self) -> CompressorState:
        """Return a copy of all that the next exchange depends on."""
        return copy.deepcopy(self._state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another one was when it gave its `state_dict`; raises UsageError if that was of another kind."""
        own = self._state()
        if state.keys() != own.keys():
            raise UsageError(f"{type(self).__name__} has {sorted(own)} in its state, not {sorted(state)}")
        self._restore(copy.deepcopy(dict(state)))

    @abstractmethod
    def _state(self) -> CompressorState:
        """Return the state itself."""

    @abstractmethod
    def _restore(self, state: CompressorState) -> None:
        """Take a state over."""


class Stateless(Compressor):
    """One that remembers nothing."""

    def _state(self) -> CompressorState:
        return {}

    def _restore(self, state: CompressorState) -> None:
        pass


def flat(gradient: Floats) -> Floats:
    """Return a gradient as one row; raises UsageError."""
    if gradient.dtype != np.float32:
        raise UsageError(f"compressors take float32, not {gradient.dtype}")
    return np.ascontiguousarray(gradient).reshape(-1)


def split(parts: Sequence[Part], values: Floats) -> Iterator[tuple[Part, Floats]]:
    """Yield parts with their values, as rows that share memory with `values`; raises UsageError."""
    if sum(part.size for part in parts) != values.size:
        raise UsageError(f"parts of {[part.shape for part in parts]} are not the {values.size} values that were given")
    end = 0
    for part in parts:
        begin, end = end, end + part.size
        yield part, values[begin:end]


def is_finite(values: Floats) -> bool:
    """Return whether there is neither an infinity nor a NaN: what scalers of gradients skip a step for."""
    return bool(np.isfinite(values).all())


def name_of(parts: Sequence[Part]) -> bytes:
    """Return what seeds choices that parts make together."""
    return "\n".join(part.key for part in parts).encode()


class Steps(dict[str, int]):
    """How many exchanges each part has been in."""

    def count(self, parts: Sequence[Part]) -> int:
        """Return how many it was for the first part, and count one more for all."""
        step = self.get(parts[0].key, 0)
        self.update((part.key, step + 1) for part in parts)
        return step


def count_of(density: float, size: int) -> int:
    """Return how many values a density comes to, at least one."""
    return min(size, max(1, round(density * size)))


def check_density(density: float) -> None:
    """Raise UsageError if it is no share."""
    if not 0 < density <= 1:
        raise UsageError(f"density must be above 0 and at most 1, not {density}")
