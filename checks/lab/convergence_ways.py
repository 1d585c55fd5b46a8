"""What is compared: ways of averaging gradients, each as a rank that one process plays and as a hook of a real model.

A rank of ours averages through its worker's engine; one of gloo's around a ring, which adds as gloo adds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from checks.bench.accuracy import around_a_ring
from switchsum_host.compress import ErrorFeedback, PowerSgd
from switchsum_protocol.errors import UsageError

Floats = npt.NDArray[np.float32]
TCP_HEADERS: Final = 66 / 8948
"""Bytes of headers for each byte that gloo sends, Ethernet to TCP, with an MTU of 9,000."""
POWER_RANK: Final = 4


class Ring:
    """Ranks that add arrays as gloo's ring does."""

    def __init__(self, ranks: int) -> None:
        self.barrier = threading.Barrier(ranks, timeout=600)
        self.given: list[Any] = [None] * ranks
        self.total: Any = None


class RingRank:
    """A rank of a ring, and how much it has moved."""

    def __init__(self, ring: Ring, rank: int, world_size: int) -> None:
        self._ring = ring
        self.rank = rank
        self.world_size = world_size
        self.moved = 0.0
        """Bytes that it has sent, and has received."""

    def allreduce(self, array: Any, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Any:
        """Add arrays, in place."""
        self.moved += 2 * (self.world_size - 1) / self.world_size * array.nbytes * (1 + TCP_HEADERS)
        self._ring.given[self.rank] = array
        if self._ring.barrier.wait() == 0:
            self._ring.total = around_a_ring([one.reshape(-1) for one in self._ring.given])
        self._ring.barrier.wait()
        total = self._ring.total.reshape(array.shape)
        array[...] = total / array.dtype.type(self.world_size) if op == "average" else total
        self._ring.barrier.wait()
        return array

    def allreduce_sparse(self, *_: Any, **__: Any) -> Any:
        """Refuse: gloo adds no sparse arrays in place."""
        raise UsageError("a ring adds dense arrays")


Average = Callable[[Any, Sequence[Any], Floats], Floats]
"""Averages a rank's gradient with the others', by its communicator and the parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way of averaging gradients."""

    make: Callable[[], Average]
    """Return what a rank averages with that this process plays."""
    attach: Callable[[Any], object]
    """Let a DistributedDataParallel average so."""
    is_ring: bool = False
    """Whether it is gloo's."""
    own_momentum: bool = False
    """Whether it has momentum, and the optimizer none."""
    bucket_mb: float | None = None
    """Of the DistributedDataParallel; None: torch's default."""


def _ours(make: Callable[[], Any], attach: Callable[[Any], object], *, own_momentum: bool = False) -> Way:
    """Return a way of a compressor's."""

    def average_of_one() -> Average:
        compressor = make()

        def average(comm: Any, parts: Sequence[Any], values: Floats) -> Floats:
            begun = compressor.begin_parts(comm, parts, values)
            for handle in begun.handles:
                handle.wait()
            mean: Floats = begun.finish()
            return mean

        return average

    return Way(make=average_of_one, attach=attach, own_momentum=own_momentum)


def _by_name(how: str) -> Way:
    """Return one of those that `switchsum.torch.compress` knows."""

    def make() -> Any:
        from switchsum.torch.compression import compressor_of

        return compressor_of(how)

    def attach(model: Any) -> object:
        from switchsum.torch import compress

        return compress(model, how)

    return _ours(make, attach, own_momentum=how.startswith("dgc"))


def _dense() -> Way:
    """Return no compression: lanes of 32 bits."""

    def make() -> Any:
        from switchsum.torch.hooks import NarrowLanes

        return NarrowLanes("int32")

    return _ours(make, lambda _: None)


def _whole(comm: Any, parts: Sequence[Any], values: Floats) -> Floats:
    mean: Floats = comm.allreduce(values.copy(), "average")
    return mean


def _half(comm: Any, parts: Sequence[Any], values: Floats) -> Floats:
    """Do what torch's fp16_compress_hook does."""
    shares = values.astype(np.float16) / np.float16(comm.world_size)
    mean: Floats = comm.allreduce(shares).astype(np.float32)
    return mean


def _attach_half(model: Any) -> object:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    return model.register_comm_hook(None, fp16_compress_hook)


def _power() -> Average:
    compressor = ErrorFeedback(PowerSgd(POWER_RANK))
    return lambda comm, parts, values: compressor.exchange_parts(comm, parts, values).mean


def _attach_power(model: Any) -> object:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    # The least that torch takes: its warm start needs the buckets that the second step has.
    state = PowerSGDState(None, matrix_approximation_rank=POWER_RANK, start_powerSGD_iter=2)
    return model.register_comm_hook(state, powerSGD_hook)


NAMES: Final = (
    *("int16", "int16:32", "int10", "int8", "thc", "thc:4", "blocks:32", "qsgd", "terngrad"),
    *("topk:0.01", "topk:0.01+int16", "topk:0.01+keep", "oktopk:0.01", "globaltopk:0.01", "globaltopk:0.02"),
    *("blocktopk:0.05", "dgc:0.01", "powersgd:4"),
)
"""Of `switchsum.torch.compress`: every method there is."""
WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "gloo": Way(make=lambda: _whole, attach=lambda _: None, is_ring=True),
        "gloo, fp16 hook": Way(make=lambda: _half, attach=_attach_half, is_ring=True),
        # torch's hook waits for the second factors in a thread of gloo's, of which a group has two: two buckets hang.
        "gloo, PowerSGD 4": Way(make=_power, attach=_attach_power, is_ring=True, bucket_mb=25),
        "dense": _dense(),
        **{name: _by_name(name) for name in NAMES},
    }
)
MAIN: Final = (
    *("gloo", "gloo, fp16 hook", "gloo, PowerSGD 4", "dense", "int16", "int16:32", "int10", "int8", "thc", "thc:4"),
    *("topk:0.01", "topk:0.01+keep", "blocktopk:0.05", "powersgd:4"),
)
"""Those with which every task is trained."""
ALONE: Final = "alone"
"""Beside them where steps are timed: no communication, what a step takes at least."""
ALONE_OVER: Final[Mapping[str, str]] = MappingProxyType({"switchsum": ALONE, "gloo": "alone, gloo"})
"""Its name in the job of each backend, where both are timed: the machine is not as fast in each minute."""
ALL_OF: Final = "digits"
"""The task that is trained in all ways; it is the quickest."""


def ways_of(task: str) -> tuple[str, ...]:
    """Return the names of those with which a task is trained."""
    return tuple(name for name in WAYS if task == ALL_OF or name in MAIN)
