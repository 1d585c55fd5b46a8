"""Collectives of the process group that go over gloo, and are counted."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from support.timing import patience
from switchsum_protocol.errors import UnsupportedDtype

from .calls import OP, TOTAL, gloo_counts, options
from .conftest import RANKS, make_groups, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

dist = torch.distributed
PRODUCTS = dist.ReduceScatterOptions()
PRODUCTS.reduceOp = OP.PRODUCT


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
        with pytest.raises(UnsupportedDtype, match=r"gloo cannot either.*to\(torch.float32\)") as refused:
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
