"""What every collective of the process group gives, called as c10d calls it; ranks are threads."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_protocol.errors import SumOverflow, UsageError

from .calls import OP, TOTAL, gloo_counts, options
from .conftest import RANKS, make_groups, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

dist = torch.distributed


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


@pytest.mark.filterwarnings("ignore:.*over gloo")
def test_the_default_device_is_not_where_values_go(groups: list[Any]) -> None:
    # As after torch.set_default_device("cuda"), which a thread has for itself.
    def call(group: Any) -> None:
        apart, double = torch.ones(10)[::2], torch.ones(10, dtype=torch.float64)[::2]
        gathered = [torch.zeros(5) for _ in range(RANKS)]
        rows = torch.sparse_coo_tensor(torch.tensor([[1, 3]]), torch.ones(2, 2), (5, 2), check_invariants=True)
        with torch.device("meta"):
            group.allreduce([apart], options()).wait()
            group.allgather([gathered], [apart]).wait()
            group.allreduce([double], dist.AllreduceOptions()).wait()
            group.allreduce([rows], options()).wait()
        assert [one.unique().tolist() for one in (apart, double, *gathered)] == [[RANKS]] * (2 + RANKS)
        assert rows.to_dense().sum(1).tolist() == [0.0, 2.0 * RANKS, 0.0, 2.0 * RANKS, 0.0]

    on_all(groups, call)


@pytest.mark.filterwarnings("ignore:.*over gloo")
def test_results_are_not_written_to_values_that_share_memory(groups: list[Any]) -> None:
    def call(group: Any) -> list[float]:
        shared, whole = torch.ones(1, 3).expand(RANKS, 3), torch.ones(RANKS, 3)
        rank, before = group.rank(), group.begun_so_far()[0]
        refused: list[Any] = [
            lambda: group.allreduce([shared], options()),
            lambda: group.allreduce_coalesced([whole, shared], options()),
            lambda: group.allreduce([torch.ones(1, 3, dtype=torch.float64).expand(RANKS, 3)], dist.AllreduceOptions()),
            lambda: group.reduce([shared], options(rootRank=rank)),
            lambda: group.broadcast([shared], options(rootRank=(rank + 1) % RANKS)),
            lambda: group.reduce_scatter([shared], [[whole] * RANKS], options()),
            lambda: group.reduce_scatter_single(shared, torch.ones(RANKS * RANKS, 3), options()),
            lambda: group.allgather([[shared] * RANKS], [whole]),
            lambda: group.all_gather_single(shared, torch.ones(1, 3)),
        ]
        for begin in refused:
            with pytest.raises(UsageError, match=r"share memory, as those of expand.*\[3, 3\].*\.clone\(\)"):
                begin()
        assert group.begun_so_far()[0] == before + len(refused)  # of each the other ranks have heard
        group.broadcast([shared if rank == 1 else whole], options(rootRank=1)).wait()  # it is read
        return list(whole.unique().tolist())

    assert on_all(groups, call) == [[1.0]] * RANKS


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


def test_integer_sums_that_do_not_fit_raise(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        with pytest.raises(SumOverflow):
            group.allreduce([torch.full((4,), 2**31 - 1, dtype=torch.int32)], options()).wait()
        group.barrier().wait()

    on_all(groups, call)
