"""The process group: c10d's collectives on a communicator, and on gloo what a switch does not do.

Up to torch 2.14 a `Backend` cannot be made in Python. On 2.15 the works of such a backend never say that they are
completed. So this is a whole `ProcessGroup`, which torch uses in place of its own.  torch 2.13 calls some collectives
by new names (`all_gather_single`) and others by old ones (`_allgather_base`): both are here.  C++ reaches the methods
that its trampoline knows; what else it calls goes to the gloo that is registered.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from switchsum.torch import buckets, sparse
from switchsum.torch.detours import Detours
from switchsum.torch.forms import listed, only_one
from switchsum.torch.forwarded import Forwarded, Tensors
from switchsum.torch.gloo import LOOPBACK, open_gloo, timeout_of
from switchsum.torch.graphs import kept_out_of_graphs
from switchsum.torch.group_calls import collective, refused
from switchsum.torch.group_membership import GroupMembership
from switchsum.torch.lane_choice import asked_for, lanes_for, of_call, rows_lanes
from switchsum.torch.reductions import Fused, Reduction, Single, choose, fuse, kind_of, reduce_parts
from switchsum.torch.staging import begin_later
from switchsum.torch.tensors import Staged, apart, buffer_for, check_written, hand_out, join, same_size, stage
from switchsum.torch.words import words
from switchsum.torch.work import SwitchWork
from switchsum_host.api.collectives import Options
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.statistics import Statistics
from switchsum_protocol.errors import UsageError

BACKEND: Final = "switchsum"
SUM: Final = dist.ReduceOp.SUM
_CPU: Final = torch.device("cpu")
_MADE: Final = "torch.distributed.new_group makes groups of some ranks"
_MEMBERS: Final = "switchsum.torch.ElasticGroup takes ranks in and lets them go"
_WATCHED: Final = "torch.profiler and the flight recorder see each call"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatistics:
    """What a process group has done so far."""

    switch: Statistics | None
    """The communicator's; None while a sub-group has not joined its job, and in a group of one."""
    over_gloo: dict[str, int] = field(default_factory=dict)
    """Calls that gloo served, by name, and by dtype where that is why."""


@kept_out_of_graphs
class SwitchGroup(Forwarded):
    """A process group whose collectives, called through `torch.distributed`, go through a switch."""

    def __init__(
        self,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        connect: Callable[[], Communicator],
        closed: Callable[[], object],
        address: str = LOOPBACK,
        others: Mapping[str, dist.ProcessGroup] = MappingProxyType({}),
        closing: threading.Event | None = None,
    ) -> None:
        """Use `connect` for the communicator when it is first needed, and call `closed` when it is not any more.

        `address` is where the group's gloo listens; `others` are torch's own groups of the same ranks for types of
        devices (`cpu`, `cuda`) that are not this one's.  `closing` is set when the group is closed, so that `connect`
        ends early.
        """
        super().__init__(rank, size)  # the form that can be subclassed
        self.lanes: str | None = asked_for()
        """What all sums of floats in large tensors travel as; None: what suits their dtype.

        `SWITCHSUM_LANES` is its first value.  A call within `switchsum.torch.lanes` has those of the block.
        """
        self._store = store
        self._closed: Callable[[], object] = closed
        self.membership = GroupMembership(rank, connect, closing or threading.Event())
        self._passed = 0
        self._last_begun = threading.Event()
        self._last_begun.set()
        self._detours = Detours()
        self._buckets = buckets.Buckets(self)
        self._gloo = open_gloo(store, rank, size, timeout, address)
        self._timeout_at_first = timeout_of(self._gloo)
        self.others = others
        for name, backend in {_CPU.type: self._gloo, **_backends_of(others)}.items():
            kind = dist.Backend.backend_type_map.get(backend.name(), dist.ProcessGroup.BackendType.CUSTOM)
            self._register_backend(torch.device(name), kind, backend)
            if name == _CPU.type:
                self._set_default_backend(kind)

    def getBackendName(self) -> str:
        """Return the backend's name."""
        return BACKEND

    def get_group_store(self) -> dist.Store:
        """Return the group's store."""
        return self._store

    def connect(self) -> Communicator:
        """Return the communicator; the first call makes it, which every rank of the group must do.

        Raises what joining the job failed with, every time.
        """
        return self.membership.connect()

    def connect_in_background(self) -> None:
        """Begin to join the job; the first collective waits for it.

        So a collective with async_op=True does not wait for ranks that have not begun it, and ranks may begin the first
        collectives of several groups in different orders.
        """
        self.membership.connect_in_background()

    def statistics(self) -> GroupStatistics:
        """Return what has happened so far."""
        communicator = self.membership.communicator
        return GroupStatistics(
            switch=None if communicator is None else communicator.statistics(), over_gloo=dict(self._detours.counts)
        )

    def shutdown(self) -> None:
        """Leave the job; collectives that are under way fail.

        While an exception is handled, or when one has ended the program, the others hear that this rank is lost.
        """
        self.membership.leave()
        # It knows the group: as a cycle, gloo's threads and sockets would stay until Python looks for cycles.
        closed, self._closed = self._closed, bool
        closed()

    def abort(self) -> None:
        """Do the same as `shutdown`."""
        self.shutdown()

    def begun(self, handles: list[Handle], tensors: list[torch.Tensor], finish: Callable[[], object]) -> SwitchWork:
        """Return work for collectives that were begun on the communicator; `finish` puts results into `tensors`."""
        work = SwitchWork(handles, tensors, finish)
        self.membership.watch(work, handles)
        return self.noted(work)

    def begun_so_far(self) -> tuple[int, int] | None:
        """Return how many collectives were begun, here and on gloo; None while there is no communicator."""
        communicator = self.membership.communicator
        return None if communicator is None else (communicator.begun, self._passed)

    def refuse(self, error: BaseException) -> None:
        """Let the other ranks hear that this one has refused a call, so that theirs ends at once."""
        if self.size() == 1 or not isinstance(error, Exception):
            return
        with suppress(Exception), self.checked():
            raise error

    def break_off(self, error: BaseException) -> None:
        """Break the communicator, for what was raised has left a call half begun."""
        if self.membership.communicator is not None:
            self.membership.communicator.queue.interrupted(error)

    # What is reduced.

    @collective
    def allreduce(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Reduce each tensor in place, over all ranks."""
        return self._allreduce(listed(tensors), opts or c10d.AllreduceOptions(), "allreduce")

    @collective
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Do the same; small tensors travel as one, and all that are in flight together share round trips."""
        return self._allreduce(listed(tensors), opts or c10d.AllreduceCoalescedOptions(), "allreduce_coalesced")

    def _allreduce(self, tensors: list[torch.Tensor], opts: Any, name: str) -> dist.Work:
        if self._is_alone or not tensors:
            return self.over_gloo(name, tensors, opts)
        called = self._reduces("all_reduce", tensors, opts)
        if tensors[0].layout == torch.sparse_coo:
            return self._allreduce_sparse(tensors, opts, called)
        reductions = self._choose(name, tensors, opts)
        if reductions is None:
            return self.over_gloo(name, tensors, opts, called=called)
        parts, bucket = fuse(tensors, reductions), self._buckets.next(tensors)
        start = partial(reduce_parts, parts=parts, asked=self._asked(), called=called)
        handles = self._started([one.part for one in parts], partial(buckets.begin, bucket, start))
        return self.begun(handles, tensors, lambda: _write_results(parts))

    def _allreduce_sparse(self, tensors: list[torch.Tensor], opts: Any, called: str) -> dist.Work:
        reductions = self._choose("allreduce of sparse tensors", [tensor._values() for tensor in tensors], opts)
        if reductions is None:
            return self.over_gloo("allreduce", tensors, opts, called=called)
        if any(tensor.sparse_dim() != 1 for tensor in tensors):
            self._detours.take("allreduce of tensors that are sparse in several dimensions")
            return self.over_gloo("allreduce", tensors, opts, called=called)
        if any(reduction.operator not in ("sum", "average") for reduction in reductions):
            raise NotImplementedError(
                "allreduce of sparse tensors knows only SUM and AVG, because missing values count as zero"
            )
        lanes = rows_lanes(self._asked())
        ways = [Options(operator=one.operator, lanes=lanes, label=called) for one in reductions]
        sums = [sparse.SparseSum(self.connect(), tensor, how) for tensor, how in zip(tensors, ways, strict=True)]
        return self.begun([one.handle for one in sums], tensors, lambda: _write_results(sums))

    @collective
    def reduce(self, tensors: Tensors, opts: Any) -> dist.Work:
        """Reduce a tensor over all ranks; only the root gets the result."""
        tensors = only_one("reduce", tensors, opts)
        if self._is_alone:
            return self.over_gloo("reduce", tensors, opts)
        called = self._reduces("reduce", tensors, opts, opts.rootRank)
        check_written(*tensors[: opts.rootRank == self.rank()])
        reductions = self._choose("reduce", tensors, opts)
        if reductions is None:
            if opts.rootRank != self.rank():  # gloo uses the tensors of other ranks as scratch memory
                tensors = [tensor.detach().clone() for tensor in tensors]
            return self.over_gloo("reduce", tensors, opts, called=called)
        reduction, communicator = reductions[0], self.connect()
        part, operator = reduction.stage(tensors[0]), reduction.operator
        lanes = lanes_for(part.plain(), operator, communicator, self._asked())

        def start(to: Communicator) -> list[Handle]:
            values = part.array().reshape(-1)
            return [to.reduce_async(values, opts.rootRank, operator, lanes=lanes, label=called)]

        handles = self._started([part], start)
        results = [Single(reduction, part)] if opts.rootRank == self.rank() else []
        return self.begun(handles, tensors, lambda: _write_results(results))

    @collective
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> dist.Work:
        """Reduce a tensor for each rank, which gets its result; where they differ in size, it drops the others'."""
        opts = opts or c10d.ReduceScatterOptions()
        shares = [tensor for group in inputs for tensor in group]
        sizes, wanted = [tensor.numel() for tensor in shares], [tensor.numel() for tensor in outputs]
        if len(sizes) != self.size() or wanted != sizes[self.rank() :][:1]:
            raise ValueError(f"reduce_scatter of {sizes} values over {self.size()} ranks: {wanted}")
        check_written(*outputs)
        lists = [list(group) for group in inputs]
        if self._is_alone:
            return self.over_gloo("reduce_scatter", list(outputs), lists, opts)
        if same_size(shares):  # then a rank takes down its own alone
            return self._reduce_scatter(list(outputs), [join(shares)], opts)
        called = self._reduces("reduce_scatter", shares, opts)
        reductions = self._choose("reduce_scatter", shares[:1], opts)
        if reductions is None:
            return self.over_gloo("reduce_scatter", list(outputs), lists, opts, called=called)
        reduction, communicator = reductions[0], self.connect()
        part = reduction.stage(join(shares), copy=True)
        operator = reduction.operator
        lanes = lanes_for(part.plain(), operator, communicator, self._asked())
        handles = self._started(
            [part], lambda to: [to.allreduce_async(part.array(), operator, lanes=lanes, label=called)]
        )

        def finish() -> None:
            own = reduction.convert(part.values.split(sizes)[self.rank()], outputs[0].dtype)
            hand_out(own.reshape(-1), outputs, part)

        return self.begun(handles, list(outputs), finish)

    @collective
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        """Reduce a tensor over all ranks; each rank gets its part along the first axis."""
        return self._reduce_scatter([output], [input], opts)

    @collective
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """Do the same for several tensors."""
        return self._reduce_scatter(list(outputs), list(inputs), opts)

    def _reduce_scatter(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        opts = opts or c10d.ReduceScatterOptions()
        for output, whole in zip(outputs, inputs, strict=True):
            if output.numel() * self.size() != whole.numel():
                raise ValueError(f"reduce_scatter of {whole.numel()} values over {self.size()} ranks: {output.numel()}")
        called = self._reduces("reduce_scatter", inputs, opts)
        reductions = None if self._is_alone else self._choose("reduce_scatter", inputs, opts)
        if reductions is None:
            return self.each_over_gloo("_reduce_scatter_base", outputs, inputs, opts, called=called)
        rows, asked = self.size(), self._asked()
        parts = [Single(one, one.stage_result(output)) for one, output in zip(reductions, outputs, strict=True)]
        staged = [one.stage(whole) for one, whole in zip(reductions, inputs, strict=True)]

        def start(to: Communicator) -> list[Handle]:
            handles = []
            for one, whole in zip(parts, staged, strict=True):
                values, out = whole.array().reshape(rows, -1), one.part.array().reshape(1, -1)
                operator = one.reduction.operator
                lanes = lanes_for(values, operator, to, asked)
                handles.append(to.reduce_scatter_async(values, operator, out=out, lanes=lanes, label=called))
            return handles

        return self.begun(self._started(staged, start), outputs, lambda: _write_results(parts))

    def _started(self, parts: Sequence[Staged], start: Callable[[Communicator], list[Handle]]) -> list[Handle]:
        """Begin collectives; those of a GPU's values on a thread that waits until these have come down."""
        to = self.connect()
        if all(part.device is None for part in parts):
            return start(to)
        self._passed += 1  # counts as begun: `_refusals_heard` breaks off what is interrupted here, instead of refusing
        return [begin_later(to, lambda: start(to))]

    def _started_gathers(self, own: Sequence[Staged], parts: Sequence[Staged]) -> list[Handle]:
        called = words("all_gather", [one.tensor for one in own])

        def start(to: Communicator) -> list[Handle]:
            pairs = zip(own, parts, strict=True)
            return [to.allgather_async(one.bits(), out=part.rows(self.size()), label=called) for one, part in pairs]

        return self._started(own, start)

    # What is only moved, bit by bit.

    @collective
    def broadcast(self, tensors: Tensors, opts: Any = None) -> dist.Work:
        """Give every rank the root's tensor."""
        opts = opts or c10d.BroadcastOptions()
        tensors = only_one("broadcast", tensors, opts)
        called = words("broadcast", tensors, root=opts.rootRank)
        if self._is_alone or tensors[0].layout != torch.strided:
            return self.over_gloo("broadcast", tensors, opts, called=called)
        parts = [(stage if opts.rootRank == self.rank() else buffer_for)(tensor) for tensor in tensors]

        def start(to: Communicator) -> list[Handle]:
            return [to.broadcast_async(part.bits(), opts.rootRank, label=called) for part in parts]

        handles = self._started(parts, start)
        return self.begun(handles, tensors, lambda: _write_results(parts * (opts.rootRank != self.rank())))

    @collective
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give every rank the tensors of all ranks, one by one."""
        if len(outputs) != 1:
            raise UsageError(f"allgather gathers one tensor of each rank, not {len(outputs)}: call allgather_coalesced")
        gathered, own = list(outputs[0]), only_one("allgather", inputs)[0]
        if self._is_alone or own.layout != torch.strided:
            opts = opts or c10d.AllgatherOptions()
            return self.over_gloo("allgather", [gathered], [own], opts, called=words("all_gather", [own]))
        if len(gathered) != self.size() or not same_size([own, *gathered]):
            raise ValueError(f"allgather needs {self.size()} tensors of the input's size and dtype")
        return self._allgather([gathered], [own])

    @collective
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> dist.Work:
        """Give every rank the lists of tensors of all ranks."""
        if self._is_alone:
            return self.over_gloo("allgather_coalesced", [list(one) for one in outputs], list(inputs), opts)
        return self._allgather([list(one) for one in zip(*outputs, strict=True)], list(inputs))

    def _allgather(self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor]) -> dist.Work:
        check_written(*(tensor for gathered in outputs for tensor in gathered))
        buffers = [apart(own, (self.size(), own.numel()), own.dtype, like=own) for own in inputs]
        handles = self._started_gathers([stage(own) for own in inputs], buffers)

        def finish() -> None:
            for gathered, part in zip(outputs, buffers, strict=True):
                hand_out(part.values.reshape(-1), gathered, part)

        return self.begun(handles, [tensor for gathered in outputs for tensor in gathered], finish)

    @collective
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        """Give every rank the tensors of all ranks, in one."""
        return self._gather_single([output], [input], opts)

    @collective
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> dist.Work:
        """Do the same for several tensors."""
        return self._gather_single(list(outputs), list(inputs), opts)

    def _gather_single(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], opts: Any) -> dist.Work:
        for output, own in zip(outputs, inputs, strict=True):
            if output.dtype != own.dtype or output.numel() != own.numel() * self.size():
                raise ValueError(f"the gathered tensor must have {self.size()} times the input's size, and its dtype")
        if self._is_alone:
            return self.each_over_gloo("_allgather_base", outputs, inputs, opts or c10d.AllgatherOptions())
        parts = [buffer_for(output) for output in outputs]
        handles = self._started_gathers([stage(own) for own in inputs], parts)
        return self.begun(handles, outputs, lambda: _write_results(parts))

    @collective
    def barrier(self, opts: Any = None) -> dist.Work:
        """Wait for every rank."""
        if self._is_alone:
            return self.over_gloo("barrier", opts or c10d.BarrierOptions())
        return self.begun([self.connect().barrier_async()], [], lambda: None)

    def _start_coalescing(self, device: torch.device) -> None:
        """Note what is begun from now on: all that is in flight together is coalesced."""
        if device.type in self.others:
            self.others[device.type]._start_coalescing(device)
        else:
            self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work:
        """Return work that has ended when all has that was begun meanwhile: callers wait for no other."""
        if device.type in self.others:
            return self.others[device.type]._end_coalescing(device)
        works, self._coalesced = self._coalesced or [], None
        handles = [handle for work in works if isinstance(work, SwitchWork) for handle in work.handles]
        return self.begun(handles, [], lambda: [work.wait() for work in works])

    # torch 2.13 still calls some of these, and scripts of its users all of them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = Forwarded.all_to_all_single
    gather_into_tensor = Forwarded.gather_single

    # torch 2.14 would hand these to the gloo beside the switch: hooks see no sum there, and it alone has new members.
    supports_reconfigure = False
    get_reconfigure_handle = refused("get_reconfigure_handle", _MEMBERS)
    reconfigure = refused("reconfigure", _MEMBERS)
    split_group = refused("split_group", _MADE)
    merge_remote_group = refused("merge_remote_group", _MADE)
    register_pre_hook = refused("register_pre_hook", _WATCHED)
    register_post_hook = refused("register_post_hook", _WATCHED)

    @property
    def _is_alone(self) -> bool:
        """Whether there is nobody to talk to, so that nothing need go anywhere."""
        return self.size() == 1

    def _reduces(self, call: str, tensors: Sequence[torch.Tensor], opts: Any, root: int | None = None) -> str:
        """Return in words what a call reduces."""
        return words(call, tensors, kind_of(opts.reduceOp).name, root)

    def _asked(self) -> str | None:
        """Return the lanes that a call's floats are asked to travel in: the caller's, or else the group's."""
        return of_call() or self.lanes

    def _choose(self, call: str, tensors: Sequence[torch.Tensor], opts: Any) -> list[Reduction] | None:
        """Return how the switch reduces each tensor; None, and noted, if it cannot do all of them."""
        chosen = []
        for tensor in tensors:
            reduction = choose(opts.reduceOp, tensor, self.size())
            if isinstance(reduction, str):
                self._detours.take(f"{call} {reduction}", tensor.dtype)
                return None
            chosen.append(reduction)
        return chosen


def _backends_of(others: Mapping[str, dist.ProcessGroup]) -> dict[str, Any]:
    """Return the backend of each type of device that has a group of its own."""
    return {device: other._get_backend(torch.device(device)) for device, other in others.items()}


def _write_results(parts: Iterable[Staged | sparse.SparseSum | Fused | Single]) -> None:
    for part in parts:
        part.write_result()
