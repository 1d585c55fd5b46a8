"""What all compressors have in common."""

from __future__ import annotations

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import UsageError

from ..api.operation_queue import Handle
from ..api.record import Announced, Record, call_of
from ..api.sparse import SparseSum

Floats = npt.NDArray[np.float32]
CompressorState = dict[str, Any]
"""Numbers, arrays and dictionaries of them, for `torch.save` and the like."""
Reduced = TypeVar("Reduced", bound=npt.NDArray[Any])
LARGEST: Final = (1 - 2.0**-22) * 2.0**128
"""Largest scale. A sum of rounded numbers may be slightly larger than a scale, and is still a finite float32."""


class Communicates(Protocol):
    """What a compressor needs of a communicator: `allreduce` and `allreduce_sparse`, as `Communicator` has them."""

    rank: int
    """0 to world_size - 1."""
    world_size: int
    """Number of ranks."""

    def allreduce(self, array: Reduced, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Reduced:
        """Combine arrays in place, as `Communicator.allreduce` does."""
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
        """Add sparse arrays, as `Communicator.allreduce_sparse` does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The gradient of one parameter, among others that lie side by side in a row."""

    key: str
    """Names the parameter, the same in every step."""
    shape: tuple[int, ...]
    """Shape of the gradient."""

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


NOTHING: Final = Part(key="", shape=(0,))
"""Empty part, for an exchange without parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """The result of an exchange on this rank."""

    own: Floats
    """Values that this rank has sent, in full: the part of its gradient that was not lost."""
    mean: Floats
    """The average of all ranks' `own`, the same bits on every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An exchange that was started; this one has ended already."""

    mean: Floats
    handles: tuple[Handle, ...] = ()
    """Collectives that have not ended."""

    def finish(self) -> Floats:
        """Return the average."""
        return self.mean


class Compressor(ABC):
    """Averages gradients over all ranks, approximately, with fewer bytes.

    Every rank makes the same compressor, with the same arguments, and exchanges the same keys in the same order.
    Otherwise every rank raises OperationMismatch.

    A compressor of your own implements `_exchange_parts`, `_state` and `_restore`.  All ranks must have the same state:
    a digest of it is compared in each exchange.  `ranks_may_differ` names what each rank has for itself.

    Example:
        >>> import numpy as np
        >>> from switchsum_host.compress import TopK
        >>> from switchsum.testing import on_ranks
        >>> gradient = np.array([1, -8, 2, 0], np.float32)
        >>> on_ranks(2, lambda comm: TopK(0.25).exchange(comm, "layer.weight", gradient).mean)[0]
        array([ 0., -8.,  0.,  0.], dtype=float32)

    """

    sums_in_network: ClassVar[bool] = True
    """Whether the switch adds the messages: a rank then receives as many bytes as it sends."""

    ranks_may_differ: ClassVar[Mapping[str, str]] = {}
    """What of the state may differ between ranks, by its name in `state_dict`, and why."""

    _arguments: Mapping[str, Any]
    """Arguments of the constructor, defaults included."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Note the arguments, of whatever class: all ranks must agree in them."""
        made = super().__new__(cls)
        # A copy is made without any, and then gets all that the original has.
        bound = inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
        bound.apply_defaults()
        made._arguments = dict([*bound.arguments.items()][1:])  # behind `self`
        return made

    def __repr__(self) -> str:
        """Return the call that makes such a one."""
        return call_of(type(self).__name__, self._arguments)

    def exchange(self, comm: Communicates, key: str, gradient: Floats) -> Exchanged:
        """Average one gradient over all ranks, and wait for the result.

        Args:
            comm: A communicator.
            key: Names the parameter; the same in every step and on all ranks.  What a compressor remembers has this
                name.
            gradient: float32, of any shape; it stays as it is.

        Returns:
            An `Exchanged` with arrays of the gradient's shape.

        Raises:
            UsageError: The gradient is no float32.
            SwitchsumError: What the communicator raises.

        """
        shape = gradient.shape
        exchanged = self.exchange_parts(comm, (Part(key=key, shape=shape),), flat(gradient))
        return Exchanged(own=exchanged.own.reshape(shape), mean=exchanged.mean.reshape(shape))

    def exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """Average gradients that lie side by side in a row, together.

        What is remembered belongs to each part, so that parts may come in other company the next time.

        Args:
            comm: A communicator.
            parts: Key and shape of each gradient, in the order of the row.
            values: The gradients, one row of float32.

        Returns:
            An `Exchanged` with rows of the same length.

        Raises:
            UsageError: The parts do not fill the row.
            SwitchsumError: What the communicator raises.

        """
        parts = parts or (NOTHING,)
        with np.errstate(all="ignore"):  # what is not finite shows in the average
            return self._exchange_parts(self._announced(comm, parts), parts, values)

    def begin(self, comm: Communicates, key: str, gradient: Floats) -> Begun:
        """Start the average of one gradient.

        Args:
            comm: A communicator.
            key: As in `exchange`.
            gradient: As in `exchange`.

        Returns:
            The exchange; its `finish()` returns the average.

        """
        return Begun(mean=self.exchange(comm, key, gradient).mean)

    def begin_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Begun:
        """Start the average of a bucket of gradients, as hooks of training frameworks do.

        A compressor that needs answers first, such as scales, waits for them here.

        Args:
            comm: A communicator.
            parts: As in `exchange_parts`.
            values: As in `exchange_parts`.

        Returns:
            The exchange; its `finish()` returns the average once its `handles` have ended.

        """
        parts = parts or (NOTHING,)
        with np.errstate(all="ignore"):
            return self._begin_parts(self._announced(comm, parts), parts, flat(values))

    @abstractmethod
    def _exchange_parts(self, comm: Communicates, parts: Sequence[Part], values: Floats) -> Exchanged:
        """Do what `exchange_parts` says; there is one part at least."""

    def _begin_parts(self, comm: Any, parts: Sequence[Part], values: Floats) -> Begun:
        """Do what `begin_parts` says: here all is done when this returns."""
        return Begun(mean=self._exchange_parts(comm, parts, values).mean)

    def _announced(self, comm: Communicates, parts: Sequence[Part]) -> Any:
        """Return a communicator whose first collective has all in it that ranks must agree in."""
        return Announced(comm, self.record(parts))

    def record(self, parts: Sequence[Part]) -> Record:
        """Return what ranks must have alike in an exchange: class, arguments, parts, and state but `ranks_may_differ`.

        Args:
            parts: As in `exchange_parts`.

        Returns:
            A `Record`.

        """
        state = {name: value for name, value in self._state().items() if name not in self.ranks_may_differ}
        first, more = parts[0], f" and {len(parts) - 1} more" if len(parts) > 1 else ""
        kept = f", {' and '.join(sorted(state))} as kept" if state else ""
        return Record(
            title=f"{self!r} of {first.key!r} {list(first.shape)}{more}{kept}",
            facts={"parts": [(part.key, part.shape) for part in parts], "state": state},
        )

    @property
    def must_be_alike(self) -> frozenset[str]:
        """Names of what is kept and ranks must have alike, with those of a compressor within."""
        return frozenset(self._state()) - self.ranks_may_differ.keys()

    def state_dict(self) -> CompressorState:
        """Return a copy of all that the next exchange depends on, for a checkpoint.

        Returns:
            Numbers, arrays and dictionaries of them.

        """
        return copy.deepcopy(self._state())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint.

        Args:
            state: What the `state_dict` of a compressor of the same kind has returned.

        Raises:
            UsageError: It is the state of another kind of compressor.

        """
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


def norms_of(values: Floats, block: int) -> Floats:
    """Return the norm of each block of a row; the last one may have fewer values.

    Squares are added up in float64: those of float32 are beyond it from 1e19 on, and zero below 1e-23.  A norm that no
    float32 holds is the largest.
    """
    end = values.size // block * block
    rows, rest = values[:end].reshape(-1, block), values[end:].reshape(1, -1)
    squares = [np.einsum("ij,ij->i", one, one, dtype=np.float64) for one in (rows, rest) if one.size]
    norms = np.sqrt(np.concatenate(squares)) if squares else np.zeros(0)
    return np.minimum(norms, LARGEST, out=norms, where=np.isfinite(norms)).astype(np.float32)


class Steps(dict[str, int]):
    """How many exchanges each part has been in."""

    def count(self, parts: Sequence[Part]) -> int:
        """Return how many it was for the first part, and count one more for all."""
        step = self.of(parts)
        self.note(parts, step)
        return step

    def of(self, parts: Sequence[Part]) -> int:
        """Return how many it was for the first part."""
        return self.get(parts[0].key, 0)

    def note(self, parts: Sequence[Part], step: int) -> None:
        """Count the exchange with this number, from 0 on, for all parts."""
        self.update((part.key, step + 1) for part in parts)


def count_of(density: float, size: int) -> int:
    """Return how many values a density comes to, at least one."""
    return min(size, max(1, round(density * size)))


def check_density(density: float) -> None:
    """Raise UsageError if it is no share."""
    if not 0 < density <= 1:
        raise UsageError(f"density must be above 0 and at most 1, not {density}")
