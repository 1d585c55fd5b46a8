"""Communication hooks for DistributedDataParallel: compressed gradients through the switch."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import nn
from torch.futures import Future

from switchsum.torch.buckets import Bucket
from switchsum.torch.group import SwitchGroup
from switchsum.torch.layers import Counted, Layers, Measured
from switchsum.torch.tensors import stage
from switchsum.torch.work import future_for
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.record import Record, call_of
from switchsum_host.compress.base import Part, split
from switchsum_host.engine.operation import EACH
from switchsum_protocol.errors import UsageError

__all__ = ["CompressedHook", "Compressor", "EachValue", "Exchange", "NarrowLanes", "SmallBlocks", "compressed"]

Floats = npt.NDArray[np.float32]

FLOATS: Final = {torch.float32, torch.float16, torch.bfloat16}


class Exchange(Protocol):
    """A compressed average under way."""

    @property
    def handles(self) -> Sequence[Handle]:
        """Collectives that have not ended; maybe none."""
        ...

    def finish(self) -> Floats:
        """Return the average, once they have; called again only where a signal handler has raised in it."""
        ...


class Compressor(Protocol):
    """The methods of a compressor that a hook calls.

    A compressor that also has `begin_parts(communicator, parts, values)`, as those of `switchsum_host.compress` have,
    is given a bucket at a time.  It keeps what it keeps for each of the parts.
    """

    def begin(self, communicator: Communicator, key: str, gradient: Floats) -> Exchange:
        """Start the average of one parameter's gradient over all ranks.

        Ranks call it in the same order.  A compressor that needs answers before it can go on may wait for them here.

        Args:
            communicator: The group's communicator.
            key: Names the parameter, whichever bucket it is in.
            gradient: `[n]`, float32; nothing of it may be kept but what is not sent, under `key`.

        Returns:
            The average under way.

        """
        ...

    def state_dict(self) -> Mapping[str, Any]:
        """Return residuals, and whatever else the next step depends on."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Args:
            state: What `state_dict` has returned.

        """
        ...


@dataclass(frozen=True, slots=True)
class _Whole:
    """A whole gradient under way."""

    handles: Sequence[Handle]
    values: Floats

    def finish(self) -> Floats:
        """Return the average."""
        return self.values


class _OneAllreduce:
    """Sends each bucket by one allreduce, and keeps nothing."""

    def __init__(self, **options: Any) -> None:
        """Use `options` of `Communicator.allreduce`."""
        self._options = options

    def __repr__(self) -> str:
        return call_of(type(self).__name__, self._options)

    def begin(self, communicator: Communicator, key: str, gradient: Floats) -> _Whole:
        """Begin the average."""
        return self.begin_parts(communicator, (), gradient)

    def begin_parts(self, communicator: Communicator, parts: Sequence[Part], gradient: Floats) -> _Whole:
        """Begin the average of a bucket."""
        values = gradient.copy()
        record = Record(
            title=f"{type(self).__name__} of {len(parts)} gradients",
            facts={"parts": [(part.key, part.shape) for part in parts]},
        )
        return _Whole([communicator.allreduce_async(values, "average", label=record.text, **self._options)], values)

    def state_dict(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Do nothing."""


class NarrowLanes(_OneAllreduce):
    """Sends every value in lanes of 16 or 8 bits, and keeps nothing for the next step.

    Values are rounded at random, so that the mean is right.  With 8 bits, which come down as 16, the sum is off by 1.5
    % at 4 ranks and by 2 % at 16 (docs/accuracy.md).

    Example:
        >>> from switchsum.torch.hooks import NarrowLanes, compressed
        >>> hook = compressed(NarrowLanes("int8"))
        >>> # model.register_comm_hook(None, hook)

    """

    def __init__(self, lanes: str = "int16") -> None:
        """Choose lanes.

        Args:
            lanes: "int16" or "int8"; the first average raises UsageError for others.

        """
        super().__init__(lanes=lanes)


class EachValue(_OneAllreduce):
    """Sends every value with an exponent of its own, and keeps nothing for the next step.

    Sums have the same bits in buckets of every size.  A value takes five bytes in place of four (docs/accuracy.md).

    Example:
        >>> from switchsum.torch.hooks import EachValue, compressed
        >>> hook = compressed(EachValue())
        >>> # model.register_comm_hook(None, hook)

    """

    def __init__(self) -> None:
        super().__init__(lanes=EACH)


class SmallBlocks(_OneAllreduce):
    """Sends only blocks with a value that is not zero on some rank, several of them in a frame.

    Nothing is lost.  Gradients of embeddings and of experts that few samples reach are mostly such zeros (OmniReduce,
    SIGCOMM 2021, section 3.2).

    Example:
        >>> from switchsum.torch.hooks import SmallBlocks, compressed
        >>> hook = compressed(SmallBlocks(32))
        >>> # model.register_comm_hook(None, hook)

    """

    def __init__(self, block: int | str = "auto", lanes: str = "int32") -> None:
        """Choose blocks and lanes.

        Args:
            block: Values in a block, or "auto", as in `Communicator.allreduce`; the first average raises UsageError for
                others.
            lanes: What values travel as, as in `Communicator.allreduce`.

        """
        super().__init__(lanes=lanes, block=block)


class CompressedHook:
    """A hook for `DistributedDataParallel.register_comm_hook(None, hook)` of one model.  `compressed` makes it.

    Its state belongs into checkpoints, each rank's own.
    """

    def __init__(
        self,
        compressor: Compressor,
        group: dist.ProcessGroup | None = None,
        model: nn.Module | None = None,
        check_every: int = 0,
    ) -> None:
        if not isinstance(check_every, int) or check_every < 0:
            raise UsageError(f"check_every must be a number of steps, or 0 for never, not {check_every!r}")
        self.compressor = compressor
        self._measured = Measured(every=check_every)
        self._group = group
        self._model = model
        self._names: dict[torch.Tensor, str] = {}
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
            done: Future[torch.Tensor] = future_for([buffer])
            done.set_result(buffer)
            return done
        if buffer.layout != torch.strided or buffer.dtype not in FLOATS:
            buffer /= group.size()
            return group.allreduce([buffer]).get_future().then(lambda future: future.value()[0])
        staged = stage(buffer, torch.float32)
        gradient: Floats = staged.array()
        communicator, parts = group.connect(), self._parts(bucket)
        if bucket.index() == 0:
            communicator.note_wait()
        exact = gradient.copy() if self._measured.is_due(parts) else None
        counted: Any = Counted(communicator)
        used = self._used(counted, parts, gradient)
        travels = None if used.all() else np.repeat(used, [part.size for part in parts])
        number = communicator.begun
        exchanges = begin(
            self.compressor,
            counted,
            [part for part, is_used in zip(parts, used, strict=True) if is_used],
            gradient if travels is None else gradient[travels],
        )
        communicator.note_purpose(Bucket(weakref.ref(group), bucket.index(), buffer.numel()), number)
        handles = [handle for exchange in exchanges for handle in exchange.handles]
        if exact is not None:
            label = f"exact averages, one in {self._measured.every} (check_every)"
            handles.append(communicator.allreduce_async(exact, "average", label=label))

        means: list[Floats] = []
        noted: list[None] = []

        def finish() -> None:  # which begins anew after what a signal handler has raised in it
            while len(means) < len(exchanges):
                means.append(exchanges[len(means)].finish())
            mean = np.concatenate(means) if means else np.zeros(0, np.float32)
            if travels is not None:
                whole = np.zeros(len(travels), np.float32)
                whole[travels], mean = mean, whole
            staged.lift(lambda: buffer.copy_(torch.from_numpy(mean)))
            if not noted:
                noted.append(None)
                self._measured.note(parts, counted.payload, mean, exact)

        return group.begun(handles, [buffer], finish).get_future().then(lambda future: future.value()[0])

    def _used(self, communicator: Communicator, parts: Sequence[Part], gradient: Floats) -> npt.NDArray[np.bool_]:
        """Return which parameters some rank has used, as far as their gradients tell, where not all may be.

        DistributedDataParallel takes no average of others: what is kept of them must stay until it does.
        """
        if not getattr(self._model, "find_unused_parameters", False):
            return np.ones(len(parts), bool)
        used = np.array([values.any() for _, values in split(parts, gradient)], np.uint8)
        return communicator.allreduce(used, "or").astype(bool)

    def _parts(self, bucket: dist.GradBucket) -> list[Part]:
        """Return a bucket's parameters by names that outlive the bucket.

        DistributedDataParallel makes its buckets anew after the first step, in the order in which gradients came, and
        begins with the first ones again where a checkpoint is resumed.
        """
        parameters = bucket.parameters()
        if self._model is not None and not self._names:
            self._names = {one: name.removeprefix("module.") for name, one in self._model.named_parameters()}
        elif self._model is None and bucket.index() == 0 and parameters[0] not in self._names:
            self._names = {}  # the first bucket of all, or of another model that goes on with this state
        parts = []
        for one in parameters:
            if self._model is not None and one not in self._names:
                raise UsageError(
                    "the hook was given gradients of another model: pass it the model that it is registered on"
                )
            # Numbers are those of the first step, whose buckets follow from the model and their size.
            name = self._names.setdefault(one, str(len(self._names)))
            parts.append(Part(key=f"{name}/{'x'.join(map(str, one.shape))}", shape=tuple(one.shape)))
        return parts

    def statistics(self) -> Layers:
        """Return, for each parameter, the bytes that were saved and the error in steps that were checked.

        Returns:
            A `Layers`: a dict from a parameter's name to its `LayerStatistics`, which prints as a table
            (docs/pytorch.md shows one).  It is empty in a group of one rank, where nothing travels.

        """
        return self._measured.layers()

    def state_dict(self) -> dict[str, Any]:
        """Return the compressor's state as tensors, for torch.save.

        Returns:
            What `load_state_dict` takes.

        """
        return {key: to_tensors(value) for key, value in self.compressor.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint.

        Args:
            state: What `state_dict` has returned.

        Raises:
            UsageError: It is the state of another kind of compressor.

        """
        self.compressor.load_state_dict({key: to_arrays(value) for key, value in state.items()})


def begin(compressor: Compressor, communicator: Communicator, parts: Sequence[Part], values: Floats) -> list[Exchange]:
    """Begin an average of parts: together, or one by one with a compressor that knows no parts."""
    if not parts:
        return []
    begin_parts = getattr(compressor, "begin_parts", None)
    if begin_parts is not None:
        return [begin_parts(communicator, parts, values)]
    return [compressor.begin(communicator, part.key, own) for part, own in split(parts, values)]


def to_tensors(state: Any) -> Any:
    """Return a state with tensors for arrays, which torch.load takes without trusting the file."""
    if isinstance(state, Mapping):
        return {key: to_tensors(value) for key, value in state.items()}
    return torch.from_numpy(state.copy()) if isinstance(state, np.ndarray) else state


def to_arrays(state: Any) -> Any:
    """Return a state with arrays for tensors."""
    if isinstance(state, Mapping):
        return {key: to_arrays(value) for key, value in state.items()}
    return state.numpy().copy() if isinstance(state, torch.Tensor) else state


# DistributedDataParallel compares annotations with the classes themselves; here they are text.
CompressedHook.__call__.__annotations__.update({"bucket": dist.GradBucket, "return": Future[torch.Tensor]})


def compressed(
    compressor: Compressor,
    group: dist.ProcessGroup | None = None,
    *,
    model: nn.Module | None = None,
    check_every: int = 0,
) -> CompressedHook:
    """Return a hook that averages each bucket of gradients by a compressor.

    `switchsum.torch.compress` does this by name.  Use this function for a compressor with arguments of your own.

    Args:
        compressor: One of `switchsum_host.compress` or of this module.
        group: The ranks that average; None: all ranks.
        model: The DistributedDataParallel.  What is kept for the next step then has its parameters' names.  A model
            with `find_unused_parameters` must be given: what is kept of parameters that no rank has used then stays.
            None: names are places in the first step's buckets, so that a checkpoint needs the same `bucket_cap_mb`
            again.
        check_every: Average one in so many steps without compression, too, the first among them, so that
            `hook.statistics()` knows each parameter's error; 0: none.

    Returns:
        The hook.  It takes torch's wrappers, such as `fp16_compress_wrapper`.

    Raises:
        UsageError: `compressor` is a name, or `check_every` is no number of steps.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> from switchsum_host.compress import ErrorFeedback, TopK
        >>> from switchsum.torch.hooks import compressed
        >>> dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = DistributedDataParallel(torch.nn.Linear(4, 2))
        >>> model.register_comm_hook(None, compressed(ErrorFeedback(TopK(0.01)), model=model))
        >>> dist.destroy_process_group()

    """
    if isinstance(compressor, str):
        raise UsageError(
            f"compressed takes a compressor, not a name: use switchsum.torch.compress(model, {compressor!r})"
        )
    return CompressedHook(compressor, group, model, check_every)
