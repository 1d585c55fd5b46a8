"""Averages of any tensors by any compressor, outside DistributedDataParallel: `average(tensors, "int10")`.

An average is begun on the communicator's thread of steps. There a compressor may wait for answers (a scale, then
levels), while the caller goes on at once. Later collectives of this rank begin behind it, as on all other ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from switchsum.torch.compression import compressor_of
from switchsum.torch.group import SwitchGroup
from switchsum.torch.hooks import FLOATS, Compressor, Floats, NarrowLanes, begin, to_arrays, to_tensors
from switchsum.torch.records import begin_to_compare, compare, facts_of
from switchsum.torch.tensors import Staged, hand_out, join, stage
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.record import Announced, Record, said
from switchsum_host.api.steps import LastStep
from switchsum_host.compress import base
from switchsum_host.compress.base import Part
from switchsum_protocol.errors import UsageError

Group: TypeAlias = "dist.ProcessGroup | Communicator"
"""Ranks: a process group of torch, or a communicator of `switchsum.connect`."""


class Work(Protocol):
    """An average under way."""

    def wait(self) -> object:
        """Return when the tensors hold the averages; raises what the collective failed with, every time."""
        ...


class Average:
    """Averages tensors over ranks, call by call, compressed.

    What a compressor has not sent is added to the next call's tensors.  That state belongs into checkpoints, each
    rank's own.

    Example:
        >>> import torch
        >>> import switchsum.torch
        >>> from switchsum.testing import on_ranks
        >>> def exchange(comm):
        ...     averages, weights = switchsum.torch.Average("topk:0.5", comm), torch.tensor([1.0, comm.rank * 8])
        ...     work = averages([weights], async_op=True)
        ...     # compute something else here
        ...     work.wait()
        ...     return weights.tolist()
        >>> on_ranks(2, exchange)[0]
        [0.5, 4.0]

    """

    def __init__(self, how: str | Compressor | None = "int10", group: Group | None = None) -> None:
        """Use a compressor by its name in docs/compression.md, or one of your own; None: float32, as `all_reduce`.

        Args:
            how: The same on every rank.
            group: A process group of the backend 'switchsum', a communicator of `switchsum.connect`, or, with `how`
                None, a process group of any backend.  None: the group of all ranks.

        Raises:
            UsageError: an unknown name, or compression on another backend.

        """
        named = compressor_of(how) if isinstance(how, str) else how
        self._compressor: Compressor = named or NarrowLanes("int32")
        self._first_state = self._compressor.state_dict()
        self.group = _found(group)
        if how is not None and not isinstance(self.group, SwitchGroup | Communicator):
            raise UsageError(f"compression ({how}) needs the backend 'switchsum'; on {_name(self.group)} use how=None")

    def __call__(
        self, tensors: Sequence[torch.Tensor], *, names: Sequence[str] = (), async_op: bool = False
    ) -> Work | None:
        """Write every tensor's average over the ranks to it.

        The tensors' values are read before this returns; until `wait` has returned they must not be written to.

        Args:
            tensors: float32, float16 or bfloat16, on one device, alike in number and shapes on every rank; of a
                DTensor, such as a parameter under FSDP2, this rank's shard.
            names: Under which a compressor keeps what it has not sent; by default places in the list.
            async_op: Return at once.

        Returns:
            With `async_op` the work to wait for, else None.

        Raises:
            UsageError: tensors of other kinds, in which case no rank is told.
            OperationMismatch: ranks differ in tensors or compressor; every rank raises it.

        """
        _check(tensors)
        work = self.begin(tensors, names, waits=not async_op)
        if async_op:
            return work
        work.wait()
        return None

    @property
    def how(self) -> str:
        """The compressor, with its arguments."""
        return said(self._compressor)

    @property
    def must_be_alike(self) -> frozenset[str]:
        """Names of what the compressor keeps and ranks must have alike."""
        if isinstance(self._compressor, base.Compressor):
            return self._compressor.must_be_alike
        return frozenset(self._compressor.state_dict())

    def compare(self, record: Record, about: str, device: torch.device) -> None:
        """Compare a record with those of the other ranks; raises OperationMismatch on all if any has another one.

        Args:
            record: What this rank has.
            about: What for, in the error's words.
            device: Where other backends exchange it.

        """
        if size_of(self.group) > 1:
            compare(record, about, self.group.connect() if isinstance(self.group, SwitchGroup) else self.group, device)

    def begin(
        self, tensors: Sequence[torch.Tensor], names: Sequence[str] = (), above: Record | None = None, *, waits: bool
    ) -> Work:
        """Begin what `__call__` does, with what ranks must have alike in whatever the average is for.

        Args:
            tensors: Tensors of one dtype, which get the average.
            names: What each is called, in errors; empty: their places.
            above: What ranks must have alike in what the average is for, as an outer step.
            waits: Whether the caller waits at once. Then ranks of another backend compare the record first.

        """
        return self._begin([local(one) for one in tensors], names, above, waits)

    def _begin_nothing(self) -> Work:
        """Begin the average of no tensors: a rank that has some, and others that have none, hear of it at once."""
        if not isinstance(self.group, SwitchGroup | Communicator):
            return Here()
        communicator = self.group if isinstance(self.group, Communicator) else self.group.connect()
        handle = communicator.barrier_async(label="average of no tensors")
        if isinstance(self.group, SwitchGroup):
            return self.group.begun([handle], [], handle.wait)
        return _Once(handle.wait)

    def state_dict(self) -> dict[str, Any]:
        """Return what has not been sent, and whatever else the next call depends on, as tensors for torch.save."""
        return {key: to_tensors(value) for key, value in self._compressor.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint.

        Args:
            state: What `state_dict` has returned on this rank.

        Raises:
            UsageError: It is the state of another compressor.

        """
        self._compressor.load_state_dict({key: to_arrays(value) for key, value in state.items()})

    def move(self, group: Group) -> None:
        """Go on among other ranks, all of whom call it; what a compressor keeps is dropped, for new ranks lack it."""
        self.group = group
        self._compressor.load_state_dict(self._first_state)

    @contextmanager
    def among(self, communicator: Communicator) -> Iterator[None]:
        """Average among some of the ranks within the block; what the compressor has not sent is kept.

        Args:
            communicator: That of these ranks.

        """
        former, self.group = self.group, communicator
        try:
            yield
        finally:
            self.group = former

    def _begin(self, tensors: Sequence[torch.Tensor], names: Sequence[str], above: Record | None, waits: bool) -> Work:
        keys = list(names) or [str(place) for place in range(len(tensors))]
        parts = [
            Part(key=f"{key}/{'x'.join(map(str, one.shape))}", shape=tuple(one.shape))
            for key, one in zip(keys, tensors, strict=True)
        ]
        if size_of(self.group) == 1:
            return Here()
        if not tensors:
            return self._begin_nothing()
        average = f"an average of {len(tensors)} tensor{'s' * (len(tensors) > 1)}"
        record = Record(
            title=above.title if above is not None else average,
            facts={**facts_of(list(tensors), keys), "above": above.facts if above is not None else {}},
        )
        joined = join(tensors)  # a copy
        if not isinstance(self.group, SwitchGroup | Communicator):
            return _dense(joined, tensors, self.group, record, waits)
        staged = stage(joined, torch.float32)
        communicator = self.group if isinstance(self.group, Communicator) else self.group.connect()
        announced: Any = Announced(communicator, record)
        handle = communicator.begin_steps(lambda: _all_but_last(self._compressor, announced, parts, staged))
        write = lambda: hand_out(torch.from_numpy(handle.wait()), tensors, staged)  # noqa: E731
        if isinstance(self.group, SwitchGroup):
            return self.group.begun([handle], list(tensors), write)
        return _Once(write)


def average(
    tensors: Sequence[torch.Tensor],
    how: str | None = "int10",
    *,
    group: Group | None = None,
    async_op: bool = False,
) -> Work | None:
    """Write every tensor's average over the ranks to it, compressed by a name of docs/compression.md.

    Methods that lose something (`topk`, `powersgd`, ...) add it to the next call with the same name and group, to the
    tensor at the same place in the list.  Where a program averages several lists, each has an `Average` of its own.

    Args:
        tensors: float32, float16 or bfloat16, on one device, alike in number and shapes on every rank.
        how: "int10", "topk:0.01+int16" and so on; None: float32.
        group: A process group or a communicator, as in `Average`; None: all ranks.
        async_op: Return at once.

    Returns:
        With `async_op` the work to wait for, else None.

    Raises:
        UsageError: an unknown name, tensors of other kinds, or compression on another backend.

    Example:
        >>> import torch
        >>> import switchsum.torch
        >>> from switchsum.testing import on_ranks
        >>> def exchange(comm):
        ...     weights = torch.full((8,), float(comm.rank))
        ...     switchsum.torch.average([weights], None, group=comm)
        ...     return weights[:2].tolist()
        >>> on_ranks(2, exchange)
        [[0.5, 0.5], [0.5, 0.5]]

    """
    kept = _kept.setdefault(_found(group), {})
    if how not in kept:
        kept[how] = Average(how, group)
    return kept[how](tensors, async_op=async_op)


_kept: Final[WeakKeyDictionary[Any, dict[str | None, Average]]] = WeakKeyDictionary()
"""State that `average` keeps, by group and name."""


def share(tensors: Sequence[torch.Tensor], group: Group, root: int = 0) -> None:
    """Give every rank of a group the root's tensors."""
    for tensor in map(local, tensors):
        if isinstance(group, Communicator):
            staged = stage(tensor, copy=True)
            group.broadcast(staged.bits(), root)
            staged.write_result()
        else:
            dist.broadcast(tensor, group=group, group_src=root)


def size_of(group: Group) -> int:
    """Return the number of ranks."""
    return group.world_size if isinstance(group, Communicator) else group.size()


class Here:
    """An average that is there already."""

    def wait(self) -> object:
        """Return at once."""
        return True


class _Once:
    """An average that no work of a process group stands for: whoever waits first writes the results."""

    def __init__(self, write: Callable[[], object]) -> None:
        self._write: Callable[[], object] | None = write

    def wait(self) -> object:
        """See `Work`."""
        if self._write is not None:
            self._write()
            self._write = None
        return True


def _dense(
    joined: torch.Tensor, tensors: Sequence[torch.Tensor], group: dist.ProcessGroup, record: Record, waits: bool
) -> Work:
    """Begin an average in float32 over another backend than ours; gloo knows sums alone.

    Other backends do not tell ranks whose calls differ.  So ranks compare a record in a small gathering: before the sum
    where somebody `waits` for it, else beside it, so that the rank may go on.
    """
    check = begin_to_compare(record, group, joined.device)
    if waits:
        check()
    sums = joined.float()
    work = dist.all_reduce(sums, group=group, async_op=True)

    def write_means() -> None:
        if not waits:
            check()
        work.wait()
        means = sums / group.size()
        for tensor, own in zip(tensors, means.split([one.numel() for one in tensors]), strict=True):
            tensor.detach().copy_(own.reshape(tensor.shape))

    return _Once(write_means)


class _Ended(Handle):
    """Stands for a compressor's collectives, all of which have ended."""

    def __init__(self) -> None:
        pass

    @property
    def is_done(self) -> bool:
        """See `Handle`."""
        return True

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """See `Handle`."""
        callback(self)

    def wait(self) -> Any:
        """See `Handle`."""
        return None


def _all_but_last(
    compressor: Compressor, communicator: Communicator, parts: Sequence[Part], staged: Staged
) -> LastStep:
    """Begin an exchange, on the thread of steps; what is left has the averages, side by side."""
    exchanges = begin(compressor, communicator, parts, staged.array().reshape(-1))
    handles = [handle for exchange in exchanges for handle in exchange.handles]

    def finish() -> Floats:
        for handle in handles:
            handle.wait()
        return np.concatenate([exchange.finish() for exchange in exchanges])

    return LastStep(handle=handles[-1] if handles else _Ended(), finish=finish)


def _check(tensors: Sequence[torch.Tensor]) -> None:
    """Refuse what cannot be averaged; raises UsageError."""
    if isinstance(tensors, torch.Tensor):
        raise UsageError("average takes a list of tensors: [tensor]")
    for one in tensors:
        if one.dtype not in FLOATS or one.layout != torch.strided:
            raise UsageError(f"average takes dense float32, float16 and bfloat16, not {one.layout} {one.dtype}")
    if len({one.device for one in tensors}) > 1:
        raise UsageError("average takes tensors on one device: call it for each device")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its graph; of a DTensor this rank's shard, in the same memory."""
    plain = tensor.detach()
    return plain.to_local() if hasattr(plain, "to_local") else plain


def _found(group: Group | None) -> Group:
    """Return a group, of all ranks where none is given; raises UsageError."""
    found = group or dist.group.WORLD
    if not isinstance(found, dist.ProcessGroup | Communicator):
        raise UsageError('no group: dist.init_process_group("switchsum") first, or pass group=switchsum.connect(...)')
    return found


def _name(group: dist.ProcessGroup | Communicator) -> str:
    return "a communicator" if isinstance(group, Communicator) else group.name()
