"""Every collective of the process group, called as c10d calls it; ranks are threads."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from switchsum.protocol.errors import OperationMismatch, SumOverflow, UnsupportedDtype, UsageError, WorkerLost

from ..timing import eventually, patience
from .conftest import RANKS, make_groups, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch.completer import RELIEF_S, Completer  # noqa: E402  (it needs torch)
from switchsum.torch.hooks import CompressedHook  # noqa: E402  (it needs torch)

dist = torch.distributed
OP = dist.ReduceOp
TOTAL = sum(range(1, RANKS + 1))
PRODUCTS = dist.ReduceScatterOptions()
PRODUCTS.reduceOp = OP.PRODUCT


def options(**values: Any) -> Any:
    """Return what c10d hands over besides tensors."""
    return SimpleNamespace(**{"reduceOp": OP.SUM, "rootRank": 0, **values})


def gloo_counts(groups: list[Any]) -> dict[str, int]:
    counts: dict[str, int] = groups[0].statistics().over_gloo
    return counts


FLOATS = [torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_sum_in_place(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        tensor = torch.full((20, 30), group.rank() + 1).to(dtype)
        work = group.allreduce([tensor], dist.AllreduceOptions())
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert torch.equal(tensor, torch.full((20, 30), TOTAL).to(dtype))
        assert work.get_future().wait()[0] is tensor

    on_all(groups, call)
    assert not gloo_counts(groups)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_average(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        tensor = torch.full((700,), group.rank() * 3.0).to(dtype)
        group.allreduce(tensor, options(reduceOp=OP.AVG)).wait()
        assert torch.equal(tensor, torch.full((700,), 3.0).to(dtype))

    on_all(groups, call)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_averages_of_integers_are_cut_towards_zero(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        tensor = torch.full((300,), 20 * (group.rank() + 1) + 1).to(dtype)
        whole = torch.cat([tensor, tensor, tensor])
        group.allreduce(tensor, options(reduceOp=OP.AVG)).wait()
        assert torch.equal(tensor, torch.full((300,), 41).to(dtype))
        part = torch.zeros(300, dtype=dtype)
        group.reduce_scatter_single(part, whole - 20 * group.rank(), options(reduceOp=OP.AVG)).wait()
        assert torch.equal(part, torch.full((300,), 21).to(dtype))

    on_all(groups, call)
    assert not gloo_counts(groups)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64, *INTEGERS], ids=str)
def test_greatest_and_smallest(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        own = torch.arange(600).roll(7 * group.rank()).to(dtype)
        everybody = torch.stack([torch.arange(600).roll(7 * rank).to(dtype) for rank in range(RANKS)])
        for op, expected in ((OP.MAX, everybody.amax(0)), (OP.MIN, everybody.amin(0))):
            tensor = own.clone()
            group.allreduce([tensor], options(reduceOp=op)).wait()
            assert torch.equal(tensor, expected)

    on_all(groups, call)
    assert not gloo_counts(groups)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_bits(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        for op, expected in ((OP.BOR, 0b1111), (OP.BAND, 0b1000)):
            tensor = torch.full((300,), 0b1000 | 1 << group.rank()).to(dtype)
            group.allreduce([tensor], options(reduceOp=op)).wait()
            assert torch.equal(tensor, torch.full((300,), expected).to(dtype))
            part, whole = torch.zeros(100, dtype=dtype), torch.full((300,), 0b1000 | 1 << group.rank()).to(dtype)
            group.reduce_scatter_single(part, whole, options(reduceOp=op)).wait()
            assert torch.equal(part, torch.full((100,), expected).to(dtype))

    on_all(groups, call)
    assert not gloo_counts(groups)


def test_sums_of_narrow_integers_wrap_as_torchs_do(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        tensor = torch.full((4,), 100, dtype=torch.uint8)
        group.allreduce([tensor], options()).wait()
        assert tensor.tolist() == [300 - 256] * 4

    on_all(groups, call)


@pytest.mark.parametrize(
    ("op", "expected"),
    [(OP.SUM, "110"), (OP.MAX, "110"), (OP.BOR, "110"), (OP.MIN, "100"), (OP.PRODUCT, "100"), (OP.BAND, "100")],
    ids=str,
)
def test_booleans(groups: list[Any], op: Any, expected: str) -> None:
    def call(group: Any) -> None:
        tensor = torch.tensor([True, group.rank() == 1, False])
        group.allreduce([tensor], options(reduceOp=op)).wait()
        assert tensor.tolist() == [bit == "1" for bit in expected]

    on_all(groups, call)


def test_layouts_and_leaves(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        base = torch.arange(24.0).reshape(4, 6)
        tensors = [base.clone().t(), base.clone()[:, ::2], torch.tensor(5.0), torch.empty(0), base.clone()]
        tensors[4].requires_grad_()
        expected = [tensor.detach() * RANKS for tensor in tensors]
        group.allreduce(tensors, options()).wait()
        for tensor, one in zip(tensors, expected, strict=True):
            assert torch.equal(tensor.detach(), one)

    on_all(groups, call)


def test_tensors_can_be_resized_afterwards(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            tensor = torch.ones(10, dtype=dtype)
            group.allreduce([tensor], options()).wait()
            group.broadcast([tensor], options()).wait()
            tensor.resize_(2000)
            tensor.untyped_storage().resize_(0)

    on_all(groups, call)


def test_futures_complete_while_nobody_waits(groups: list[Any]) -> None:
    ended: list[float] = []
    done = threading.Event()

    def follow(future: Any) -> None:
        ended.append(future.value()[0].sum().item())
        if len(ended) == 10 * RANKS:
            done.set()

    def call(group: Any) -> list[Any]:
        tensors = [torch.ones(1000) for _ in range(10)]
        works = [group.allreduce([tensor], options()) for tensor in tensors]
        for work in works:
            work.get_future().add_done_callback(follow)
        return works

    kept = on_all(groups, call)
    assert done.wait(patience(20))
    assert ended == [3000.0] * 10 * RANKS
    assert all(work.is_success() for works in kept for work in works)


def test_a_callback_may_wait_for_another_collective(groups: list[Any]) -> None:
    # What torch's powerSGD_hook and quantization hooks do: one bucket's answer begins, and waits for, the next phase.
    def call(group: Any) -> list[float]:
        def again(future: Any) -> Any:
            return group.allreduce([future.value()[0]], options()).get_future().wait()[0]

        begun = [group.allreduce([torch.full((3000,), float(bucket + 1))], options()) for bucket in range(4)]
        chained = [work.get_future().then(again) for work in begun]
        return [future.wait()[0].item() for future in chained]

    assert on_all(groups, call) == [[9.0, 18.0, 27.0, 36.0]] * RANKS


def test_collectives_of_callbacks_begin_in_the_order_of_the_works(groups: list[Any]) -> None:
    # The first callback of one rank is late, as it is on a busy machine; the others' callbacks are not held up.
    chained_to = threading.Event()

    def call(group: Any) -> list[float]:
        def again(future: Any, bucket: int) -> Any:
            if group.rank() == 1 and bucket == 0:
                time.sleep(6 * RELIEF_S)
            return group.allreduce([future.value()[0]], options()).get_future().wait()[0]

        if group.rank() == 0:
            chained_to.wait(patience(20))
        begun = [group.allreduce([torch.full((3000,), float(bucket + 1))], options()) for bucket in range(4)]
        chained = [work.get_future().then(partial(again, bucket=bucket)) for bucket, work in enumerate(begun)]
        if group.rank() == 1:
            chained_to.set()
        return [future.wait()[0].item() for future in chained]

    assert on_all(groups, call) == [[9.0, 18.0, 27.0, 36.0]] * RANKS


def test_collectives_of_callbacks_begin_when_the_backward_pass_is_over(groups: list[Any]) -> None:
    # One rank's second gradient is late: its first one is summed by then, and on the other ranks it is not.  One rank's
    # future is asked for when its sum is there.
    def call(group: Any) -> list[float]:
        chained: list[Any] = []

        def again(future: Any) -> Any:
            return group.allreduce([future.value()[0]], options()).get_future().wait()[0]

        def begin(gradient: Any) -> None:
            if group.rank() == 1 and chained:
                time.sleep(6 * RELIEF_S)
            work = group.allreduce([gradient.clone()], options())
            while group.rank() == 1 and not chained and not work.is_completed():
                time.sleep(0)
            chained.append(work.get_future().then(again))

        values = torch.ones(3000, requires_grad=True)
        inner = values * 1.0
        outer = inner * 2.0
        inner.register_hook(begin)
        outer.register_hook(begin)
        (outer * 3.0).sum().backward()
        return [future.wait()[0].item() for future in chained]

    assert on_all(groups, call) == [[27.0, 54.0]] * RANKS


def test_a_callback_may_wait_for_a_collective_that_was_begun_after_its_own(groups: list[Any]) -> None:
    def call(group: Any) -> float:
        first, second = (group.allreduce([torch.ones(3000)], options()).get_future() for _ in range(2))
        return first.then(lambda _: second.wait()[0].sum().item()).wait()

    assert on_all(groups, call) == [9000.0] * RANKS


def test_a_forked_child_stops_nothing_that_only_its_parent_has() -> None:
    completer = Completer("forked")
    held, gate = threading.Event(), threading.Event()

    def hold() -> None:
        with completer._turn:
            held.set()
            gate.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        completer.stop()
        os._exit(0)
    gate.set()
    holder.join()
    completer.stop()
    try:
        assert eventually(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 5)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise


def test_what_is_completed_has_its_results(groups: list[Any]) -> None:
    def call(group: Any) -> bool:
        right = True
        for turn in range(50):
            own = torch.full((500,), float(turn + group.rank()))
            gathered = [torch.zeros(500) for _ in range(RANKS)]
            work = group.allgather([gathered], [own])
            while not work.is_completed():
                time.sleep(0)
            right &= [one[-1].item() for one in gathered] == [float(turn + rank) for rank in range(RANKS)]
        return right

    assert on_all(groups, call) == [True] * RANKS


@pytest.mark.parametrize("root", range(RANKS))
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bool, torch.uint8, torch.complex64], ids=str)
def test_broadcast_of_any_dtype(groups: list[Any], root: int, dtype: Any) -> None:
    def call(group: Any) -> None:
        tensor = torch.full((3, 5), group.rank() + 1).to(dtype)
        group.broadcast([tensor], options(rootRank=root)).wait()
        assert torch.equal(tensor, torch.full((3, 5), root + 1).to(dtype))

    on_all(groups, call)
    assert not gloo_counts(groups)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16, torch.uint8], ids=str)
def test_allgather_in_all_its_forms(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        own = torch.full((2, 3), group.rank()).to(dtype)
        expected = torch.stack([torch.full((2, 3), rank).to(dtype) for rank in range(RANKS)])
        listed = [torch.empty((2, 3), dtype=dtype) for _ in range(RANKS)]
        group.allgather([listed], [own]).wait()
        assert torch.equal(torch.stack(listed), expected)
        for name in ("all_gather_single", "_allgather_base"):
            whole = torch.empty((2 * RANKS, 3), dtype=dtype)
            getattr(group, name)(whole, own).wait()
            assert torch.equal(whole.reshape(RANKS, 2, 3), expected)
        for name in ("all_gather_single_coalesced", "allgather_into_tensor_coalesced"):
            wholes = [torch.empty((RANKS, 2, 3), dtype=dtype) for _ in range(2)]
            getattr(group, name)(wholes, [own, own]).wait()
            assert all(torch.equal(one, expected) for one in wholes)
        lists = [[torch.empty((2, 3), dtype=dtype) for _ in range(2)] for _ in range(RANKS)]
        group.allgather_coalesced(lists, [own, own + own]).wait()
        assert torch.equal(torch.stack([pair[0] for pair in lists]), expected)
        assert torch.equal(torch.stack([pair[1] for pair in lists]), expected + expected)

    on_all(groups, call)
    assert not gloo_counts(groups)


def test_allgather_into_the_tensor_that_holds_the_input(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        whole = torch.zeros(RANKS * 4)
        own = whole[4 * group.rank() : 4 * group.rank() + 4]
        own += group.rank() + 1
        group.all_gather_single(whole, own).wait()
        assert whole.tolist() == [rank + 1.0 for rank in range(RANKS) for _ in range(4)]

    on_all(groups, call)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_reduce_scatter_in_all_its_forms(groups: list[Any], dtype: Any) -> None:
    def call(group: Any) -> None:
        whole = torch.arange(4 * RANKS).to(dtype)
        expected = (whole.float() * RANKS).reshape(RANKS, 4)[group.rank()].to(dtype)
        for name in ("reduce_scatter_single", "_reduce_scatter_base"):
            part = torch.empty(4, dtype=dtype)
            getattr(group, name)(part, whole).wait()
            assert torch.equal(part, expected)
        for name in ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"):
            parts = [torch.empty(4, dtype=dtype) for _ in range(2)]
            getattr(group, name)(parts, [whole, whole]).wait()
            assert all(torch.equal(one, expected) for one in parts)
        part = torch.empty(4, dtype=dtype)
        group.reduce_scatter([part], [list(whole.reshape(RANKS, 4))]).wait()
        assert torch.equal(part, expected)
        assert torch.equal(whole, torch.arange(4 * RANKS).to(dtype))

    on_all(groups, call)
    assert not gloo_counts(groups)


def test_reduce_leaves_the_others_as_they_are(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        for dtype in (torch.float32, torch.int16):
            tensor = torch.full((5,), group.rank() + 1).to(dtype)
            group.reduce([tensor], options(rootRank=1)).wait()
            assert tensor.tolist() == [TOTAL if group.rank() == 1 else group.rank() + 1] * 5

    on_all(groups, call)


def test_coalesced_allreduce_and_barrier(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        tensors = [torch.ones(size) for size in (1, 300, 5)]
        group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).wait()
        assert all(torch.equal(tensor, torch.full_like(tensor, RANKS)) for tensor in tensors)
        group._start_coalescing(torch.device("cpu"))
        assert group._end_coalescing(torch.device("cpu")).wait()
        assert group.barrier(dist.BarrierOptions()).wait()

    on_all(groups, call)


def test_small_tensors_of_one_call_travel_as_one(groups: list[Any]) -> None:
    sizes = [3, 1, 70, 0, 20, 9000]

    def call(group: Any) -> int:
        before = group.connect().statistics().rounds
        for dtype in (torch.float32, torch.int64):
            tensors = [torch.full((size,), index * (group.rank() + 1)).to(dtype) for index, size in enumerate(sizes)]
            tensors.append(torch.ones(4, 6).to(dtype).t())
            group.allreduce_coalesced(tensors, options()).wait()
            for index, tensor in enumerate(tensors[:-1]):
                assert torch.equal(tensor, torch.full_like(tensor, index * TOTAL))
            assert torch.equal(tensors[-1], torch.full((6, 4), RANKS).to(dtype))
        rounds: int = group.connect().statistics().rounds - before
        return rounds

    # Floats: 36 blocks of 9,000 values and a first round of each of 16 columns; integers have twice the bytes.
    assert on_all(groups, call) == [36 + 16 + 2 + 71 + 1] * RANKS


def test_sparse_sums_send_the_rows_that_somebody_has(groups: list[Any]) -> None:
    def call(group: Any) -> int:
        rows = torch.tensor([[group.rank(), 5000, 5000]])  # not coalesced
        tensor = torch.sparse_coo_tensor(rows, torch.ones(3, 64), (100_000, 64), check_invariants=True)
        before = group.connect().statistics().bytes_sent
        result = group.allreduce([tensor], options()).get_future().wait()[0]
        assert result is tensor
        total = tensor.coalesce()
        assert total.indices()[0].tolist() == [*range(RANKS), 5000]
        assert total.values()[:, 0].tolist() == [1.0] * RANKS + [2.0 * RANKS]
        sent: int = group.connect().statistics().bytes_sent - before
        return sent

    assert max(on_all(groups, call)) < 100_000  # the whole table has 25.6 MB
    assert not gloo_counts(groups)


def test_values_that_nobody_can_add_are_nan_everywhere(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        tensor = torch.ones(600)
        if group.rank() == 1:
            tensor[300] = float("inf")
        group.allreduce([tensor], options()).wait()
        assert not tensor[300].isfinite()
        assert torch.equal(tensor[:256], torch.full((256,), float(RANKS)))

    on_all(groups, call)


@pytest.fixture
def silent() -> Iterator[None]:
    """Let warnings be, in all threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.usefixtures("silent")
def test_what_the_switch_cannot_reduce_goes_over_gloo_and_is_counted(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        for _ in range(2):
            tensor = torch.full((4,), group.rank() + 1.0, dtype=torch.float64)
            group.allreduce([tensor], dist.AllreduceOptions()).wait()
            assert tensor.tolist() == [TOTAL] * 4
        opts = dist.AllreduceOptions()
        opts.reduceOp = OP.PRODUCT
        tensor = torch.full((4,), 2.0)
        group.allreduce([tensor], opts).wait()
        assert tensor.tolist() == [2.0**RANKS] * 4
        pairs = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), check_invariants=True)
        group.allreduce([pairs], dist.AllreduceOptions()).wait()
        assert pairs.to_dense().tolist() == [[0.0, RANKS], [2.0 * RANKS, 0.0]]

    on_all(groups, call)
    assert gloo_counts(groups) == {
        "allreduce (SUM) of float64": 2,
        "allreduce (PRODUCT) of float32": 1,
        "allreduce of tensors that are sparse in several dimensions": 1,
    }


@pytest.mark.usefixtures("silent")
def test_gloo_reads_and_writes_only_what_a_tensor_has(groups: list[Any]) -> None:
    begun = threading.Barrier(2)

    def call(group: Any) -> None:
        rank = group.rank()
        table = torch.arange(24.0, dtype=torch.float64).reshape(6, 4)
        group.allreduce([table[:, 1]]).wait()
        expected = torch.arange(24.0, dtype=torch.float64).reshape(6, 4)
        expected[:, 1] *= RANKS
        assert torch.equal(table, expected)
        whole, part = torch.arange(12.0).reshape(2, 6).t(), torch.zeros(2, 4)[:, ::2]
        group.reduce_scatter_single(part, whole, PRODUCTS).wait()
        assert torch.equal(part, whole.reshape(RANKS, 2, 2)[rank] ** RANKS)
        came = torch.zeros(3, 2).t()
        if rank == 0:
            begun.wait(patience(10))
            group.send([torch.arange(6.0).reshape(3, 2).t()], 1).wait()
        elif rank == 1:
            receiving = group.recv([came], 0)
            assert not receiving.is_completed()
            begun.wait(patience(10))
            receiving.wait()
            assert receiving.is_completed()
            assert torch.equal(came, torch.arange(6.0).reshape(3, 2).t())

    on_all(groups, call)


@pytest.mark.usefixtures("silent")
def test_coalesced_calls_go_over_gloo_too(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        wholes, parts = [torch.full((size * RANKS,), 2.0) for size in (1, 3)], [torch.zeros(size) for size in (1, 3)]
        group.reduce_scatter_single_coalesced(parts, wholes, PRODUCTS).wait()
        assert [part.tolist() for part in parts] == [[2.0**RANKS] * size for size in (1, 3)]
        group.barrier().wait()

    on_all(groups, call)
    (alone,) = make_groups(1)
    outputs = [torch.zeros(2), torch.zeros(3)]
    alone.all_gather_single_coalesced(outputs, [torch.ones(2), torch.ones(3)]).wait()
    assert [one.tolist() for one in outputs] == [[1.0] * 2, [1.0] * 3]


def test_lists_for_every_rank_come_without_anybody_who_waits(groups: list[Any]) -> None:
    begun = threading.Barrier(RANKS)

    def call(group: Any) -> None:
        outputs = [torch.zeros(2) for _ in range(RANKS)]
        if group.rank() == 0:
            begun.wait(patience(10))  # the others' calls return though this rank has not come yet
        future = group.alltoall(outputs, [torch.full((2,), float(group.rank()))] * RANKS).get_future()
        if group.rank() != 0:
            begun.wait(patience(10))
        assert future.wait() is not None
        assert [one.tolist() for one in outputs] == [[float(one)] * 2 for one in range(RANKS)]

    on_all(groups, call)


@pytest.mark.usefixtures("silent")
def test_what_was_coalesced_has_ended_when_its_work_has(groups: list[Any]) -> None:
    device = torch.device("cpu")

    def call(group: Any) -> None:
        sums, products = torch.full((3000,), 2.0), torch.full((3000,), 2.0)
        group._start_coalescing(device)
        group.allreduce([sums], options())
        group.reduce_scatter_single(products[:1000], products, PRODUCTS)
        if group.rank() == 0:
            time.sleep(0.1)
        work = group._end_coalescing(device)
        work.wait()
        assert torch.equal(sums, torch.full((3000,), 2.0 * RANKS))
        assert torch.equal(products[:1000], torch.full((1000,), 2.0**RANKS))
        group._start_coalescing(device)
        assert group._end_coalescing(device).get_future().wait() == []

    on_all(groups, call)


def test_gloo_is_warned_of_once(groups: list[Any]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            on_all(groups, lambda group: group.allreduce([torch.ones(4, dtype=torch.float64)]).wait())
    assert len(caught) == RANKS
    assert "allreduce (SUM) of float64" in str(caught[0].message)
    assert "SWITCHSUM_STRICT" in str(caught[0].message)
    assert {one.filename for one in caught} == {__file__}  # whose call it is


def test_strict_raises_instead(groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_STRICT", "1")

    def call(group: Any) -> None:
        with pytest.raises(UnsupportedDtype, match="float64"):
            group.allreduce([torch.ones(4, dtype=torch.float64)])
        group.barrier().wait()

    on_all(groups, call)
    assert not gloo_counts(groups)


def test_what_has_one_receiver_is_gloos_and_counted(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        rank = group.rank()
        if rank == 0:
            group.send([torch.full((3,), 7.0)], 1, 5).wait()
        elif rank == 1:
            tensor = torch.empty(3)
            group.recv([tensor], 0, 5).wait()
            assert tensor.tolist() == [7.0] * 3
        gathered = [torch.empty(2) for _ in range(RANKS)]
        group.gather([gathered] if rank == 0 else [], [torch.full((2,), float(rank))], dist.GatherOptions()).wait()
        if rank == 0:
            assert [one[0].item() for one in gathered] == [0.0, 1.0, 2.0]
        part = torch.empty(2)
        shares = [[torch.full((2,), float(one)) for one in range(RANKS)]] if rank == 0 else []
        group.scatter([part], shares, dist.ScatterOptions()).wait()
        assert part.tolist() == [rank] * 2
        output = torch.empty(RANKS)
        group.all_to_all_single(output, torch.arange(RANKS) + 10.0 * rank).wait()
        assert output.tolist() == [rank + 10.0 * one for one in range(RANKS)]
        outputs = [torch.empty(one + 1) for one in range(RANKS)]
        group.alltoall(outputs, [torch.full((rank + 1,), float(rank)) for _ in range(RANKS)]).wait()
        assert [one.tolist() for one in outputs] == [[float(one)] * (one + 1) for one in range(RANKS)]

    on_all(groups, call)
    assert gloo_counts(groups) == {"send": 1, "gather": 1, "scatter": 1, "alltoall_base": 2}


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint16, torch.float8_e5m2, torch.complex64], ids=str)
def test_dtypes_that_gloo_does_not_know_are_moved_bit_by_bit(groups: list[Any], dtype: Any) -> None:
    def numbers(*values: int) -> Any:
        return torch.tensor(values, dtype=torch.float32).to(dtype)

    def call(group: Any) -> None:
        rank = group.rank()
        gathered = [numbers(0).reshape(()) for _ in range(RANKS)] if rank == 0 else []
        group.gather([gathered] if rank == 0 else [], [numbers(rank).reshape(())], dist.GatherOptions()).wait()
        assert [one.item() for one in gathered] == numbers(*range(RANKS)).tolist() * (rank == 0)
        column = torch.zeros(2, 3, dtype=torch.float32).to(dtype)[:, 1]
        shares = [[numbers(one, 7) for one in range(RANKS)]] if rank == 0 else []
        group.scatter([column], shares, dist.ScatterOptions()).wait()
        assert column.tolist() == numbers(rank, 7).tolist()
        outputs = [numbers(*[0] * (one + 1)) for one in range(RANKS)]
        group.alltoall(outputs, [numbers(*[rank] * (rank + 1)) for _ in range(RANKS)]).wait()
        assert [one.tolist() for one in outputs] == [numbers(*[one] * (one + 1)).tolist() for one in range(RANKS)]
        whole = numbers(*[0] * RANKS)
        group.all_to_all_single(whole, numbers(*range(RANKS))).wait()
        assert whole.tolist() == numbers(*[rank] * RANKS).tolist()

    on_all(groups, call)


def test_what_neither_switch_nor_gloo_can_add_is_refused_by_name(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        with pytest.raises(UnsupportedDtype, match=r"gloo cannot, either.*to\(torch.float32\)") as refused:
            group.allreduce([torch.ones(4, dtype=torch.uint16)])
        assert "allreduce (SUM) of uint16" in str(refused.value)
        group.barrier().wait()

    on_all(groups, call)


@pytest.mark.usefixtures("silent")
def test_futures_of_reduce_scatters_over_gloo(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        whole, part = torch.full((RANKS * 2,), 2.0), torch.zeros(2)
        assert group.reduce_scatter_single(part, whole, PRODUCTS).get_future().wait()[0] is part
        assert part.tolist() == [2.0**RANKS] * 2
        opts = dist.ReduceScatterOptions()
        opts.reduceOp = OP.PRODUCT
        assert group.reduce_scatter([part], [list(whole.split(2))], opts).get_future().wait()[0] is part
        assert part.tolist() == [2.0**RANKS] * 2

    on_all(groups, call)


def test_a_root_whose_tensor_repeats_its_values_is_not_written(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        tensor = torch.ones(1).expand(5) if group.rank() == 0 else torch.zeros(5)
        group.broadcast([tensor], options()).wait()
        assert tensor.tolist() == [1.0] * 5

    on_all(groups, call)


def test_a_group_of_one_needs_no_switch() -> None:
    (group,) = make_groups(1)
    tensor = torch.ones(3, dtype=torch.float64)
    group.allreduce([tensor], dist.AllreduceOptions()).wait()
    group.broadcast([tensor], dist.BroadcastOptions()).wait()
    group.barrier().wait()
    output = torch.empty(3, dtype=torch.float64)
    group.all_gather_single(output, tensor).wait()
    assert output.tolist() == [1.0] * 3
    assert group.statistics().switch is None
    assert group.statistics().over_gloo == {}


def test_errors_come_through_wait_and_through_futures(own_groups: list[Any]) -> None:
    def call(group: Any) -> None:
        work = group.allreduce([torch.ones(10 + group.rank())], options())
        with pytest.raises(OperationMismatch):
            work.wait()
        with pytest.raises(RuntimeError, match="another operation"):
            work.get_future().wait()
        assert isinstance(work.exception(), OperationMismatch)
        assert not work.is_success()

    on_all(own_groups, call)


def test_integer_sums_that_do_not_fit_raise(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        with pytest.raises(SumOverflow):
            group.allreduce([torch.full((4,), 2**31 - 1, dtype=torch.int32)], options()).wait()
        group.barrier().wait()

    on_all(groups, call)


def test_a_lost_worker_ends_what_is_under_way(own_groups: list[Any]) -> None:
    future = own_groups[0].allreduce([torch.ones(5)], options()).get_future()
    own_groups[0].connect()._membership.error = WorkerLost("rank 2 of job 'x' is gone", 2)
    with pytest.raises(RuntimeError, match="rank 2 of job 'x' is gone"):
        future.wait()
    with pytest.raises(WorkerLost):
        own_groups[0].allreduce([torch.ones(5)], options()).wait()


def test_shutting_down_ends_what_is_under_way(own_groups: list[Any]) -> None:
    work = own_groups[0].allreduce([torch.ones(5)], options())
    future = work.get_future()
    own_groups[0].shutdown()
    with pytest.raises(RuntimeError, match="closed"):
        future.wait()
    own_groups[0]._connect = lambda: pytest.fail("it joins its job again")
    for _ in range(2):
        with pytest.raises(UsageError, match="closed"):
            own_groups[0].allreduce([torch.ones(5)], options())


def test_a_group_used_from_two_threads(groups: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # Ranks' threads may take turns in any order, so that only equal operations can be used this way.  Both come while
    # the group connects, which takes its time on a busy machine.
    class Late(Completer):
        def __init__(self, name: str) -> None:
            time.sleep(0.05)
            super().__init__(name)

    monkeypatch.setattr("switchsum.torch.group.Completer", Late)

    def call(group: Any) -> None:
        def many(_: int) -> None:
            for _ in range(20):
                tensor = torch.ones(500)
                group.allreduce([tensor], options()).wait()
                np.testing.assert_array_equal(tensor.numpy(), RANKS)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(many, range(2)))

    on_all(groups, call)


def test_operations_overlap(groups: list[Any]) -> None:
    # One rank begins late: its peers' calls return at once all the same.
    begun = threading.Barrier(RANKS)

    def call(group: Any) -> None:
        if group.rank() == 2:
            begun.wait(patience(20))
        tensors = [torch.ones(2000) for _ in range(5)]
        works = [group.allreduce([tensor], options()) for tensor in tensors]
        if group.rank() != 2:
            assert not works[-1].is_completed()
            begun.wait(patience(20))
        for work in reversed(works):
            work.wait()
        assert all(torch.equal(tensor, torch.full((2000,), float(RANKS))) for tensor in tensors)

    on_all(groups, call)


class Interrupted:
    """A compressor that sends all; a signal handler raises where it finishes its second parameter first."""

    def __init__(self) -> None:
        self.finished: list[str] = []

    def begin(self, communicator: Any, key: str, gradient: Any) -> Any:
        values = gradient.copy()
        handles = [communicator.allreduce_async(values, "average")]

        def finish() -> Any:
            self.finished.append(key)
            if self.finished == ["0/2", "1/3"]:
                raise KeyError("a signal handler's")
            return values

        return SimpleNamespace(handles=handles, finish=finish)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: object) -> None:
        pass


def test_a_hook_that_is_interrupted_finishes_each_parameter_once(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        compressor = Interrupted()
        buffer = torch.full((5,), group.rank() + 1.0)
        parameters = [torch.zeros(2), torch.zeros(3)]
        bucket: Any = SimpleNamespace(buffer=lambda: buffer, parameters=lambda: parameters, index=lambda: 0)
        CompressedHook(compressor, group)(None, bucket).wait()
        assert torch.equal(buffer, torch.full((5,), TOTAL / RANKS))
        assert compressor.finished == ["0/2", "1/3", "1/3"]

    on_all(groups, call)


def test_profilers_see_collectives_by_name_with_their_bytes(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        group.allreduce([torch.ones(100)], options()).wait()
        group.all_gather_single(torch.empty(10 * RANKS), torch.ones(10)).wait()
        group.reduce_scatter([torch.empty(5)], [list(torch.ones(RANKS, 5))], options()).wait()
        group.barrier().wait()

    def profiled(group: Any) -> set[str]:
        if group.rank() > 0:
            call(group)
            return set()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            call(group)
        return {event.key for event in profile.key_averages()}

    names = [
        "allreduce 400 bytes",
        f"all_gather_single {40 * RANKS} bytes",
        f"reduce_scatter {20 * RANKS} bytes",
        "barrier",
    ]
    found = on_all(groups, profiled)[0]
    assert {*(f"switchsum:{name}" for name in names), *(f"switchsum:wait for {name}" for name in names)} <= found
