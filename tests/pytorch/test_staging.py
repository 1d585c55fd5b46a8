"""What is done for tensors of a GPU, on tensors of the CPU that are taken for such: no machine of ours has one.

A stand-in whose streams are late by as much as anybody lets them shows the waits that are missing; torch.cuda itself
and pinned memory are not tried.
"""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from support.timing import eventually, patience

from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  (it needs torch)

from switchsum.torch import forwarded, staging, tensors, work  # noqa: E402
from switchsum.torch.group_calls import bytes_of  # noqa: E402
from switchsum.torch.hooks import CompressedHook, NarrowLanes  # noqa: E402
from switchsum.torch.reductions import Reduction  # noqa: E402

from .late import LateDevice  # noqa: E402

dist = torch.distributed
TOTAL = sum(range(RANKS))


def options(**values: Any) -> Any:
    return SimpleNamespace(**{"reduceOp": dist.ReduceOp.SUM, "rootRank": 0, **values})


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every tensor for one of a GPU."""
    for module in (tensors, forwarded):
        monkeypatch.setattr(module, "is_away", lambda tensor: True)


@pytest.fixture
def late(away: None, monkeypatch: pytest.MonkeyPatch) -> LateDevice:
    """Have a device that does nothing until it is waited for; 16 bytes come down at a time."""
    device = LateDevice()
    monkeypatch.setattr(staging, "device_of", lambda tensor: device)
    monkeypatch.setattr(tensors, "PIECE_BYTES", 16)
    return device


def one(group: Any, count: int = 8) -> Any:
    return torch.full((count,), float(group.rank()))


@pytest.mark.parametrize("kind", ["away", "late"])
def test_results_come_back_to_where_they_belong(groups: list[Any], kind: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(kind)

    def call(group: Any) -> None:
        sums = one(group)
        small = [one(group, 3), one(group, 5)]
        group.allreduce([sums], options()).wait()
        group.allreduce_coalesced(small, options()).wait()
        assert [value.unique().tolist() for value in (sums, *small)] == [[TOTAL]] * 3
        part, whole = torch.empty(4), torch.empty(8 * RANKS)
        group.reduce_scatter_single(part, one(group, 4 * RANKS), options()).wait()
        group.all_gather_single(whole, one(group)).wait()
        listed = [torch.empty(8) for _ in range(RANKS)]
        group.allgather([listed], [one(group)]).wait()
        share = torch.empty(2)
        group.reduce_scatter([share], [list(one(group, 2 * RANKS).split(2))], options()).wait()
        reported = one(group)
        group.broadcast([reported], options(rootRank=1)).wait()
        assert [value.unique().tolist() for value in (part, share, reported)] == [[TOTAL], [TOTAL], [1.0]]
        for gathered in (whole.split(8), listed):
            assert [value.unique().tolist() for value in gathered] == [[rank] for rank in range(RANKS)]

    on_all(groups, call)


@pytest.mark.usefixtures("away")
@pytest.mark.filterwarnings("ignore:.*over gloo")
def test_gloo_gets_copies_in_ordinary_memory(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        rank = group.rank()
        parts = torch.empty(RANKS)
        future = group.all_to_all_single(parts, torch.arange(float(RANKS)) + 10 * rank).get_future()
        assert future.wait()[0] is parts
        assert parts.tolist() == [10 * other + rank for other in range(RANKS)]
        double = torch.full((4,), rank + 1.0, dtype=torch.float64)
        group.allreduce([double], dist.AllreduceOptions()).wait()
        assert double.tolist() == [RANKS * (RANKS + 1) / 2] * 4
        gathered = [[torch.empty(2) for _ in range(RANKS)]] if rank == 0 else []
        group.gather(gathered, [torch.full((2,), float(rank))]).wait()
        if rank == 0:
            assert [value.tolist() for value in gathered[0]] == [[other] * 2 for other in range(RANKS)]
        # A receiver may begin before its sender, and wait for nothing.
        came = torch.empty(3)
        receiving = group.recv([came], (rank - 1) % RANKS)
        group.send([torch.full((3,), float(rank))], (rank + 1) % RANKS).wait()
        receiving.wait()
        assert came.tolist() == [(rank - 1) % RANKS] * 3

    on_all(groups, call)


def test_copies_wait_for_what_the_callers_stream_was_given_and_callers_for_none(
    groups: list[Any], late: LateDevice
) -> None:
    ready = threading.Event()
    late.stream.give(lambda: ready.wait(patience(20)))  # a kernel that runs for long
    begun = threading.Barrier(RANKS)

    def call(group: Any) -> tuple[float, list[float], list[float]]:
        gradient, reported, read = torch.zeros(10), torch.ones(2), torch.zeros(2)
        late.stream.give(lambda: gradient.fill_(group.rank() + 1.0))
        work = group.allreduce([gradient], options())
        late.stream.give(lambda: read.copy_(reported))  # before it is written over
        broadcast = group.broadcast([reported.fill_(5.0) if group.rank() == 1 else reported], options(rootRank=1))
        chained = work.get_future().then(lambda future: future.value()[0].sum().item())
        begun.wait(patience(20))
        ready.set()
        broadcast.wait()
        return chained.wait(), gradient.tolist(), [*reported.tolist(), *read.tolist()]

    total = RANKS * (RANKS + 1) / 2
    for rank, (chained, gradient, reported) in enumerate(on_all(groups, call)):
        assert (chained, gradient) == (10 * total, [total] * 10)
        assert reported == [5.0, 5.0, *[5.0 if rank == 1 else 1.0] * 2]
    # Ten floats come down in pieces of four, and what a broadcast writes over not at all; to its root nothing goes up.
    assert (late.downs, late.ups) == (3 * RANKS + 1, 2 * RANKS - 1)


class Copies(TorchDispatchMode):
    """Counts copies."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.count += "copy_" in str(function)
        return function(*arguments, **(named or {}))


def test_what_results_are_written_over_is_not_copied() -> None:
    apart = torch.arange(10.0)[::2]
    with Copies() as copies:
        Reduction(name="SUM", operator="sum").stage_result(apart)
        Reduction(name="SUM", operator="sum", dtype=torch.int32, divisor=2).stage_result(
            torch.ones(4, dtype=torch.int8)
        )
        tensors.buffer_for(apart)
    assert copies.count == 0
    plain = torch.ones(3)
    assert tensors.buffer_for(plain).values is plain


def test_futures_know_the_devices_of_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(work, "Future", lambda **named: made.append(named))
    first, second = (SimpleNamespace(device=torch.device("cuda", number)) for number in (0, 1))
    cpu: Any = torch.ones(1)
    for given in ([cpu], [cpu, second, first, second]):
        work.future_for(given)
    assert made == [{}, {"devices": [first.device, second.device]}]


def test_bytes_of_a_call() -> None:
    rows = torch.sparse_coo_tensor(torch.tensor([[1, 5]]), torch.ones(2, 3), (10, 3), check_invariants=True)
    assert bytes_of([torch.ones(2), [torch.ones(1, dtype=torch.int8)], rows, "x"]) == 8 + 1 + 24


@pytest.mark.usefixtures("away")
@pytest.mark.filterwarnings("ignore:.*over gloo")
def test_gloos_sums_of_sparse_tensors_come_back(groups: list[Any]) -> None:
    def call(group: Any) -> list[float]:
        indices = torch.tensor([[group.rank(), 4], [0, 1]])
        own = torch.sparse_coo_tensor(indices, torch.ones(2), (5, 2), check_invariants=True)
        group.allreduce([own], dist.AllreduceOptions()).wait()
        found: list[float] = own.to_dense().sum(1).tolist()
        return found

    assert on_all(groups, call) == [[1.0, 1.0, 1.0, 0.0, RANKS]] * RANKS


def test_hooks_results_go_up_behind_no_kernel_that_came_later(groups: list[Any], late: LateDevice) -> None:
    def call(group: Any) -> list[float]:
        buffer = torch.full((10,), group.rank() + 1.0)
        bucket: Any = SimpleNamespace(buffer=lambda: buffer, parameters=lambda: [torch.zeros(10)], index=lambda: 0)
        averaged: Any = CompressedHook(NarrowLanes("int32"), group)(None, bucket)
        return list(averaged.wait().unique().tolist())

    assert on_all(groups, call) == [[(RANKS + 1) / 2]] * RANKS
    assert late.ups == RANKS


def test_the_caller_is_given_the_memory_of_sparse_sums(groups: list[Any], late: LateDevice) -> None:
    # Copies up have taken it, whose stream would have it again while the caller's still reads it.
    tensors = [torch.sparse_coo_tensor([[1, 3]], torch.ones(2, 2), (5, 2), check_invariants=True) for _ in groups]
    on_all(groups, lambda group: group.allreduce([tensors[group.rank()]], options()).wait())
    assert all(own.to_dense().sum(1).tolist() == [0.0, 2.0 * RANKS, 0.0, 2.0 * RANKS, 0.0] for own in tensors)
    taken = {part.data_ptr() for own in tensors for part in (own._indices(), own._values())}
    assert {one.data_ptr() for one in late.given} == taken


def test_what_is_only_marked_as_negative_comes_down_as_it_is(late: LateDevice) -> None:
    # torch negates the copy's memory at once, and not when the copy has come.
    values = torch.tensor([1.0 + 2.0j, 3.0 - 4.0j])
    for marked in (values.conj(), values.conj().imag):
        assert marked.is_conj() or marked.is_neg()
        part = tensors.stage(marked)
        assert part.source is not None
        assert not any((part.source.is_conj(), part.source.is_neg()))
        part.arrive()
        assert torch.equal(part.values, marked)


def test_calls_of_torch_cuda_order_copies_behind_the_callers_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    numbers = itertools.count()

    class Event:
        def __init__(self, blocking: bool) -> None:
            assert blocking
            self.name = f"event {next(numbers)}"

        def synchronize(self) -> None:
            said.append(f"the host waits for {self.name}")

    class Stream:
        def __init__(self, name: Any) -> None:
            self.name = f"stream {next(numbers)}" if name == "cuda:0" else name

        def record_event(self, event: Event) -> Event:
            said.append(f"{self.name} records {event.name}")
            return event

        def wait_event(self, event: Event) -> None:
            said.append(f"{self.name} waits for {event.name}")

    @contextmanager
    def on(stream: Stream) -> Iterator[None]:
        said.append(f"on {stream.name}")
        yield
        said.append("back")

    mine = Stream("mine")
    fake = SimpleNamespace(Event=Event, Stream=Stream, stream=on, current_stream=lambda device: mine)
    monkeypatch.setattr(torch, "cuda", fake)
    device: Any = staging.Cuda("cuda:0")
    after = device.now()
    for copy in (device.down, device.up):
        copy(lambda: said.append("copies"), after).synchronize()
    device.give(SimpleNamespace(record_stream=lambda stream: said.append(f"kept for {stream.name}")), after)
    assert said == [
        *("mine records event 2",),
        *("on stream 0", "stream 0 waits for event 2", "copies", "stream 0 records event 3", "back"),
        *("the host waits for event 3",),
        *("on stream 1", "stream 1 waits for event 2", "copies", "stream 1 records event 4", "back"),
        *("the host waits for event 4", "kept for mine"),
    ]


@pytest.mark.parametrize("kind", ["allreduce", "future", "allgather", "broadcast"])
def test_pinned_memory_is_free_as_soon_as_its_call_has_ended(
    groups: list[Any], late: LateDevice, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Not when the collector of reference cycles comes: else the next call pins anew, which takes longer than a sum."""
    pinned: list[Any] = []

    def remembered(shape: tuple[int, ...], dtype: Any) -> Any:
        made = torch.empty(shape, dtype=dtype)
        pinned.append(weakref.ref(made))
        return made

    monkeypatch.setattr(late, "pinned", remembered)

    def call(group: Any) -> None:
        tensor = one(group, 20)
        if kind == "allgather":
            group.allgather([[torch.zeros(20) for _ in range(RANKS)]], [tensor], options()).wait()
        elif kind == "broadcast":
            group.broadcast([tensor], options()).wait()
        elif kind == "future":
            group.allreduce([tensor], options()).get_future().wait()
        else:
            group.allreduce([tensor], options()).wait()

    gc.collect()
    gc.disable()
    try:
        on_all(groups, call)
        assert len(pinned) >= RANKS
        assert eventually(lambda: all(gone() is None for gone in pinned), 5)  # the thread of steps is a moment late
    finally:
        gc.enable()
