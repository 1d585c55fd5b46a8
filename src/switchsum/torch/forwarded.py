"""The collectives of a process group that gloo serves: from rank to rank, or a value of its own for each rank."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from switchsum.torch.agreement import Agreement, Counts
from switchsum.torch.completer import keep_order
from switchsum.torch.detours import GLOOS, Detours
from switchsum.torch.flight_recorder import FlightRecorder, Watch
from switchsum.torch.gloo import timeout_of
from switchsum.torch.graphs import kept_out_of_graphs
from switchsum.torch.group_calls import passed_on
from switchsum.torch.tensors import check_written, is_away, is_usable
from switchsum.torch.words import dtype_name, words
from switchsum.torch.work import NO_TIMEOUT, SwitchWork
from switchsum_host.api.communicator import Communicator
from switchsum_protocol.errors import CollectiveTimeout, UsageError

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
        works: Sequence[dist.Work | _Later],
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
        self._waited, self._works, self._name = waited, works, name
        threading.Thread(target=complete, name=f"switchsum torch {name}", daemon=True).start()

    def is_completed(self) -> bool:
        """Return whether the tensors hold the results, or a call has failed."""
        return self._waited.done() and super().is_completed()

    def _wait_for(self, seconds: float) -> None:
        if not wait_for_futures([self._waited], seconds).done:
            raise self.overdue(seconds)

    def overdue(self, seconds: float) -> CollectiveTimeout:
        """Return what to raise where it has not ended in so many seconds: the switch's part knows who is missing."""
        for work in self._works:
            if isinstance(work, _Later | _Behind) and (found := work.overdue(seconds)) is not None:
                return found
        return CollectiveTimeout(f"{self._name} over gloo: not done within {seconds:g} s")


class _Later:
    """A call of gloo's that begins when all ranks have called the same; waited for once, on a thread of its own."""

    def __init__(
        self, before: threading.Event, begun: threading.Event, agreed: Agreement, begin: Callable[[], dist.Work]
    ) -> None:
        self._before, self._begun, self._agreed, self._begin = before, begun, agreed, begin

    def overdue(self, seconds: float) -> CollectiveTimeout | None:
        """Return what to raise where ranks have not made the call in so many seconds; None: all have."""
        return self._agreed.overdue(seconds)

    def wait(self) -> None:
        """Wait for its turn among gloo's calls, which go by their order, and then until it has ended."""
        try:
            self._agreed.wait()
            self._before.wait()
            work = self._begin()
        finally:
            self._begun.set()
        work.wait()


@kept_out_of_graphs
class Forwarded(dist.ProcessGroup):
    """The calls that a group passes on to its gloo."""

    others: Mapping[str, dist.ProcessGroup]
    """torch's own groups of the same ranks, for types of devices that are not this one's."""
    recorder: FlightRecorder | None = None
    """Recorder of the latest collectives for torchfrtrace, if that is wanted."""
    flight: Watch | None = None
    """Told of what a collective has failed with; of the group of all ranks, and so are its sub-groups'."""
    _gloo: Any
    _detours: Detours
    _timeout_at_first: timedelta
    """Time-out with which the group was made."""
    _passed: int
    """Number of calls that went to gloo."""
    _last_begun: threading.Event
    """Set when gloo has begun the last call that was asked for, or never will."""
    _coalesced: list[dist.Work] | None = None
    """Works that were begun since torch has asked for coalescing."""

    @passed_on
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give the root the tensors of all ranks."""
        opts = opts or c10d.GatherOptions()
        self._check_lists("gather", outputs, inputs, opts.rootRank)
        called = words("gather", list(tensors_in([inputs])), root=opts.rootRank)
        return self._passed_on("gather", outputs, inputs, opts, called=called)

    @passed_on
    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        """Give the root the tensors of all ranks, in one."""
        opts = opts or c10d.GatherOptions()
        lists: list[list[torch.Tensor]] = []
        if opts.rootRank == self.rank():
            with self.checked():
                if output.numel() != input.numel() * self.size() or output.dtype != input.dtype:
                    raise UsageError(
                        f"the gathered tensor must have {self.size()} times the input's size, and its dtype"
                    )
                check_written(output)
            lists = [[torch.empty_like(input) for _ in range(self.size())]]

        def finish() -> None:
            if lists:
                output.detach().copy_(torch.stack(lists[0]).reshape(output.shape))

        return _Behind("gather", [self.gather(lists, [input], opts)], [output] if lists else [], finish)

    @passed_on
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> dist.Work:
        """Give each rank a tensor of the root."""
        opts = opts or c10d.ScatterOptions()
        self._check_lists("scatter", inputs, outputs, opts.rootRank)
        called = words("scatter", list(tensors_in([outputs])), root=opts.rootRank)
        return self._passed_on("scatter", outputs, inputs, opts, called=called)

    def _check_lists(self, call: str, lists: Sequence[Tensors], own: Tensors, root: int) -> None:
        """Refuse a root's list that has not a tensor like its own one for each rank; raises UsageError."""
        kinds = [(one.dtype, one.numel()) for one in tensors_in(lists)]
        like = [(one.dtype, one.numel()) for one in tensors_in([own])]
        with self.checked():
            if root == self.rank() and kinds != like * self.size():
                raise UsageError(
                    f"{call}: the root must list {self.size()} tensors, each with its own tensor's dtype and "
                    "number of elements"
                )

    @passed_on
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give each rank a tensor of every rank; this group's gloo has it for parts of one tensor only."""
        sizes = [[tensor.numel() for tensor in tensors] for tensors in (outputs, inputs)]
        flat = [torch.cat([tensor.detach().reshape(-1) for tensor in tensors]) for tensors in (outputs, inputs)]
        work = self.all_to_all_single(flat[0], flat[1], sizes[0], sizes[1], opts)

        def finish() -> None:
            for tensor, values in zip(outputs, flat[0].split(sizes[0]), strict=True):
                tensor.detach().copy_(values.reshape(tensor.shape))

        return _Behind("alltoall", [work], list(outputs), finish)

    @passed_on
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
        called = f"all_to_all of {dtype_name(input.dtype)}"
        opts = opts or c10d.AllToAllOptions()
        with self.checked():
            counts = Counts(called, self._counts(input, splits[1]), self._counts(output, splits[0]))
        return self._passed_on("alltoall_base", output, input, *splits, opts, called=called, counts=counts)

    def _counts(self, whole: torch.Tensor, splits: list[int]) -> list[int]:
        """Return how many values of a tensor are for, or of, each rank; raises UsageError."""
        rows, size = len(whole) if whole.dim() else 1, self.size()
        if splits and (len(splits) != size or sum(splits) != rows):
            raise UsageError(
                f"all_to_all of {rows} rows over {size} ranks needs {size} splits that add up to {rows}, not {splits}"
            )
        if not splits and rows % size:
            raise UsageError(f"all_to_all cannot divide {rows} rows equally among {size} ranks: pass split sizes")
        return [one * (whole.numel() // max(rows, 1)) for one in splits or [rows // size] * size]

    @passed_on
    def send(self, tensors: Tensors, destination: int, tag: int = 0) -> dist.Work:
        """Send a tensor to one rank."""
        return self._passed_on("send", tensors, destination, tag)

    @passed_on
    def recv(self, tensors: Tensors, source: int, tag: int = 0) -> dist.Work:
        """Receive a tensor from one rank."""
        return self._passed_on("recv", tensors, source, tag)

    @passed_on
    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> dist.Work:
        """Receive a tensor from any rank."""
        return self._passed_on("recv_anysource", tensors, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for every rank; raises CollectiveTimeout with all that are missing, whatever `wait_all_ranks` says.

        `timeout` None: that of the group.  The switch knows all that are missing at once, so that there is no reason to
        name the first one alone.
        """
        opts = c10d.BarrierOptions()
        if timeout is not None:
            opts.timeout = timeout
        self.barrier(opts).wait()

    def own_timeout_of(self, opts: Any) -> float | None:
        """Return the seconds that a call's options give it, or that its group was given later; None: as it began.

        Zero means no limit, as in gloo, and less that the call has none of its own.
        """
        given = getattr(opts, "timeout", None)
        if given is None or given < NO_TIMEOUT:
            given = timeout_of(self._gloo)
            if given == self._timeout_at_first:
                return None
        return given.total_seconds() if given > NO_TIMEOUT else math.inf

    def barrier(self, opts: Any = None) -> dist.Work:
        """Wait for every rank."""
        raise NotImplementedError

    def connect(self) -> Communicator:
        """Return the communicator."""
        raise NotImplementedError

    def checked(self) -> AbstractContextManager[object]:
        """Return what lets the other ranks hear of it where arguments are refused."""
        context: AbstractContextManager[object] = nullcontext() if self.size() == 1 else self.connect().checked()
        return context

    def over_gloo(self, name: str, *arguments: Any, called: str = "", counts: Counts | None = None) -> dist.Work:
        """Have gloo do a call, on which all ranks have agreed through the switch if it has a name in words.

        gloo compares nothing: it waits for its time-out, adds what does not belong together, or ends the process.
        """
        keep_order()
        self._passed += 1
        call, tensors = getattr(self._gloo, name), list(tensors_in(arguments))
        is_known = name not in _MOVED or all(tensor.dtype in GLOOS for tensor in tensors)
        results = list(tensors_in(arguments[:1]))
        begin: Callable[[], dist.Work] = functools.partial(call, *arguments)
        if not is_known or not all(_is_gloos(tensor) for tensor in tensors):
            if name != "send":
                with self.checked() if called else nullcontext():
                    check_written(*results)
            begin = functools.partial(_by_way_of_memory, name, call, arguments)
        if not called or self.size() == 1:
            work = begin()
        else:
            agreed = counts.agree(self.connect()) if counts else Agreement(self.connect().barrier_async(label=called))
            work = self._when_agreed(name, agreed, begin, results, arguments[-1])
        if name in _WITHOUT_FUTURE and not isinstance(work, SwitchWork):
            work = _Behind(name, [work], results)
        return self.noted(work)

    def _when_agreed(
        self, name: str, agreed: Agreement, begin: Callable[[], dist.Work], results: list[torch.Tensor], opts: Any
    ) -> dist.Work:
        """Have gloo begin a call when all ranks have called the same, in the order of the calls."""
        before, begun = self._last_begun, threading.Event()
        if not getattr(opts, "asyncOp", True) and before.is_set():  # the caller waits in any case
            agreed.wait()
            return begin()
        self._last_begun = begun
        return _Behind(name, [_Later(before, begun, agreed, begin)], results)

    def noted(self, work: Begun) -> Begun:
        """Note a work that was begun, where torch has asked for coalescing, and return it."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def each_over_gloo(self, name: str, outputs: Tensors, inputs: Tensors, opts: Any, called: str = "") -> dist.Work:
        """Have gloo do a call for each of several tensors: its coalesced forms are called otherwise in each torch."""
        works = [self.over_gloo(name, *pair, opts, called=called) for pair in zip(outputs, inputs, strict=True)]
        if len(works) == 1:
            return works[0]
        return _Behind(name, works, list(outputs))

    def _passed_on(self, name: str, *arguments: Any, called: str = "", counts: Counts | None = None) -> dist.Work:
        self._detours.note(name)
        return self.over_gloo(name, *arguments, called=called, counts=counts)
