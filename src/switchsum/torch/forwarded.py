"""The collectives of a process group that gloo serves: from rank to rank, or a value of its own for each rank."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from switchsum.torch.completer import keep_order
from switchsum.torch.detours import GLOOS, Detours
from switchsum.torch.graphs import kept_out_of_graphs
from switchsum.torch.tensors import check_written, is_away, is_usable
from switchsum.torch.work import SwitchWork

if TYPE_CHECKING:
    from switchsum.torch.flight_recorder import Watch

Tensors = Sequence[torch.Tensor]
Begun = TypeVar("Begun", bound=dist.Work)

_MOVED: Final = ("gather", "scatter", "alltoall_base")
"""Calls in which gloo wants to know the dtype though it adds nothing; `send` and `recv` do not ask."""
_WITHOUT_FUTURE: Final = ("reduce_scatter", "_reduce_scatter_base")
"""Calls whose works gloo has made no futures for."""


def tensors_in(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def _is_gloos(tensor: torch.Tensor) -> bool:
    """Whether gloo can read and write a tensor: it takes what lies between a strided one's values for more of them."""
    return is_usable(tensor) if tensor.layout == torch.strided else not is_away(tensor)


def _copy_of(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach()
    if tensor.layout != torch.strided:
        return plain.to("cpu", copy=True)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu").copy_(plain)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor's memory as bytes, a row for each of its rows, which are what is divided by ranks."""
    rows = len(tensor) if tensor.dim() else 1
    return tensor.reshape(rows, tensor.numel() // max(rows, 1)).view(torch.uint8)


def _by_way_of_memory(name: str, call: Callable[..., dist.Work], arguments: Sequence[Any]) -> dist.Work:
    """Give gloo copies in ordinary memory, and bring its results back: it does not do everything on a GPU, if anything.

    What is only moved, and of a dtype that gloo does not know, goes as bytes.  What a call writes to is its first
    argument; nothing, of a `send`.
    """
    results = [] if name == "send" else list(tensors_in(arguments[:1]))
    check_written(*results)
    below: dict[torch.Tensor, torch.Tensor] = {one: _copy_of(one) for one in tensors_in(arguments)}

    def lowered(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            own = below[value]
            return _bytes_of(own) if name in _MOVED and own.dtype not in GLOOS else own
        return [lowered(one) for one in value] if isinstance(value, list | tuple) else value

    work = call(*map(lowered, arguments))

    def finish() -> None:
        with torch.no_grad():
            for tensor in results:
                tensor.copy_(below[tensor])  # a detached sparse tensor would be another one

    return _Behind(name, [work], results, finish)


@kept_out_of_graphs
class _Behind(SwitchWork):
    """Work that has ended when others have and `finish` was called.

    A thread waits for those, once, for gloo's from rank to rank cannot be waited for twice; so a future of this work
    comes true though nobody waits.
    """

    def __init__(
        self,
        name: str,
        works: Sequence[dist.Work],
        results: list[torch.Tensor],
        finish: Callable[[], object] = lambda: None,
    ) -> None:
        waited: Future[None] = Future()

        def wait_and_finish() -> None:
            waited.result()
            finish()

        def complete() -> None:
            try:
                for work in works:
                    work.wait()
                waited.set_result(None)
            except Exception as error:
                waited.set_exception(error)
            self.complete()

        super().__init__([], results, wait_and_finish)
        self._waited = waited
        threading.Thread(target=complete, name=f"switchsum torch {name}", daemon=True).start()

    def is_completed(self) -> bool:
        """Whether the tensors hold the results, or a call has failed."""
        return self._waited.done() and super().is_completed()


@kept_out_of_graphs
class Forwarded(dist.ProcessGroup):
    """What a group passes on to its gloo."""

    flight: Watch | None = None
    """Told of what a collective has failed with; of the group of all ranks, and so are its sub-groups'."""
    _gloo: Any
    _detours: Detours
    _passed: int
    """How many calls gloo was given."""
    _coalesced: list[dist.Work] | None = None
    """Works that were begun since torch has asked for coalescing."""

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give the root the tensors of all ranks."""
        return self._passed_on("gather", outputs, inputs, opts or c10d.GatherOptions())

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> dist.Work:
        """Give each rank a tensor of the root."""
        return self._passed_on("scatter", outputs, inputs, opts or c10d.ScatterOptions())

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give each rank a tensor of every rank; this group's gloo has it for parts of one tensor only."""
        sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
        flat = [torch.cat([tensor.detach().reshape(-1) for tensor in tensors]) for tensors in (outputs, inputs)]
        work = self.all_to_all_single(flat[0], flat[1], sizes[0], sizes[1], opts)

        def finish() -> None:
            for tensor, values in zip(outputs, flat[0].split(sizes[0]), strict=True):
                tensor.detach().copy_(values.reshape(tensor.shape))

        return _Behind("alltoall", [work], list(outputs), finish)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        opts: Any = None,
    ) -> dist.Work:
        """Give each rank a part of every rank's tensor."""
        splits = list(output_splits or ()), list(input_splits or ())
        return self._passed_on("alltoall_base", output, input, *splits, opts or c10d.AllToAllOptions())

    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> dist.Work:
        """Send a tensor to one rank."""
        return self._passed_on("send", tensors, destination, tag)

    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> dist.Work:
        """Receive a tensor from one rank."""
        return self._passed_on("recv", tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        """Receive a tensor from any rank."""
        return self._passed_on("recv_anysource", tensors, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Refuse: the switch names missing ranks in any barrier's error."""
        raise NotImplementedError("monitored_barrier: use barrier(), whose time-out names the missing ranks")

    def _over_gloo(self, name: str, *arguments: Any) -> dist.Work:
        keep_order()
        self._passed += 1
        call, tensors = getattr(self._gloo, name), list(tensors_in(arguments))
        is_known = name not in _MOVED or all(tensor.dtype in GLOOS for tensor in tensors)
        if not is_known or not all(_is_gloos(tensor) for tensor in tensors):
            return self._noted(_by_way_of_memory(name, call, arguments))
        work = call(*arguments)
        if name in _WITHOUT_FUTURE:
            work = _Behind(name, [work], list(tensors_in(arguments[:1])))
        return self._noted(work)

    def _noted(self, work: Begun) -> Begun:
        """Note a work that was begun, where torch has asked for coalescing, and return it."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _each_over_gloo(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any) -> dist.Work:
        """Have gloo do a call for each of several tensors: its coalesced forms are called otherwise in each torch."""
        works = [self._over_gloo(name, *pair, opts) for pair in zip(outputs, inputs, strict=True)]
        if len(works) == 1:
            return works[0]
        return _Behind(name, works, list(outputs))

    def _passed_on(self, name: str, *arguments: Any) -> dist.Work:
        self._detours.note(name)
        return self._over_gloo(name, *arguments)
