"""Communication hooks for DistributedDataParallel: compressed gradients through the switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.futures import Future

from switchsum.host.communicator import Communicator
from switchsum.host.handle import Handle
from switchsum.host.pytorch.group import SwitchGroup
from switchsum.host.pytorch.tensors import stage
from switchsum.protocol.errors import UsageError

Floats = npt.NDArray[np.float32]

FLOATS: Final = {torch.float32, torch.float16, torch.bfloat16}


class Exchange(Protocol):
    """A compressed average under way."""

    @property
    def handles(self) -> Sequence[Handle]:
        """Collectives that have not ended; maybe none."""
        ...

    def finish(self) -> Floats:
        """Return the average, once they have."""
        ...


class Compressor(Protocol):
    """What sends less than a gradient, and keeps what it has not sent."""

    def begin(self, communicator: Communicator, key: str, gradient: Floats) -> Exchange:
        """Begin the average over ranks of `gradient` `[n]`, of which nothing is kept but the residual under `key`.

        Ranks call it in the same order.  What needs answers before it can go on may wait for them here.
        """
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Return residuals, and whatever else the next step depends on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        ...


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole gradient under way."""

    handles: Sequence[Handle]
    values: Floats

    def finish(self) -> Floats:
        """Return the average."""
        return self.values


class NarrowLanes:
    """Sends every value in lanes of 16 or 8 bits, rounded at random so that the mean is right; keeps nothing."""

    def __init__(self, lanes: str = "int16") -> None:
        """Use "int16" or "int8" lanes; the first average raises UsageError for others."""
        self._lanes = lanes

    def begin(self, communicator: Communicator, key: str, gradient: Floats) -> _Whole:
        """Begin the average."""
        values = gradient.copy()
        return _Whole([communicator.allreduce_async(values, "average", lanes=self._lanes)], values)

    def state_dict(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


class CompressedHook:
    """A hook for `DistributedDataParallel.register_comm_hook(None, hook)`; its state belongs into checkpoints."""

    def __init__(self, compressor: Compressor, group: dist.ProcessGroup | None = None) -> None:
        self.compressor = compressor
        self._group = group
        # torch asks hooks for these two as it would ask a function.
        self.__name__ = "compressed"
        self.__qualname__ = "switchsum.torch.hooks.compressed"

    def __call__(self, state: object, bucket: dist.GradBucket) -> Future[torch.Tensor]:
        """Average a bucket; sparse gradients and dtypes without compression go as they are."""
        group = self._group or dist.group.WORLD
        if not isinstance(group, SwitchGroup):
            raise UsageError("hooks of switchsum.torch need a process group of the backend 'switchsum'")
        buffer = bucket.buffer()
        if group.size() == 1:
            done: Future[torch.Tensor] = Future()
            done.set_result(buffer)
            return done
        if buffer.layout != torch.strided or buffer.dtype not in FLOATS:
            buffer /= group.size()
            return group.allreduce([buffer]).get_future().then(lambda future: future.value()[0])
        gradient: Floats = stage(buffer, torch.float32).array()
        # DistributedDataParallel makes its buckets anew after the first step, so that a bucket's number is no name.
        exchange = self.compressor.begin(group.connect(), f"{bucket.index()}/{buffer.numel()}", gradient)

        def finish() -> None:
            buffer.copy_(torch.from_numpy(exchange.finish()))

        return group.begun(exchange.handles, [buffer], finish).get_future().then(lambda future: future.value()[0])

    def state_dict(self) -> dict[str, Any]:
        """Return the compressor's state as tensors, for torch.save."""
        return {key: _to_tensors(value) for key, value in self.compressor.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.compressor.load_state_dict({key: _to_arrays(value) for key, value in state.items()})


def _to_tensors(state: Any) -> Any:
    """Return a state with tensors for arrays, which torch.load takes without trusting the file."""
    if isinstance(state, Mapping):
        return {key: _to_tensors(value) for key, value in state.items()}
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else state


def _to_arrays(state: Any) -> Any:
    """Return a state with arrays for tensors."""
    if isinstance(state, Mapping):
        return {key: _to_arrays(value) for key, value in state.items()}
    return state.numpy().copy() if isinstance(state, torch.Tensor) else state


# DistributedDataParallel compares annotations with the classes themselves; here they are text.
CompressedHook.__call__.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def compressed(compressor: Compressor, group: dist.ProcessGroup | None = None) -> CompressedHook:
    """Return a hook that averages each bucket as `compressor` does, over `group` (of all ranks by default).

    It takes torch's wrappers (`fp16_compress_wrapper`) like any other hook.
    """
    return CompressedHook(compressor, group)
