"""Averages of any tensors by any compressor, outside DistributedDataParallel."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.timing import patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_protocol.errors import OperationMismatch, UsageError

from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import Average, average  # noqa: E402  (it needs torch)
from switchsum.torch.compression import METHODS  # noqa: E402

SHAPES = ((40, 30), (7,), (), (3, 5, 2))


@pytest.fixture
def lossy() -> Iterator[list[Any]]:
    """Communicators of which one frame in fifty is lost."""
    config = ClusterConfig(workers=RANKS, lanes_per_frame=256, window_slots=16, timeout_s=patience(50))
    made = communicators(RANKS, config=config, loss=0.02)
    yield made
    for one in made:
        one.close()


def tensors_of(rank: int, call: int = 0, dtype: Any = None) -> list[Any]:
    """Return a rank's tensors, of values around 1."""
    generator = torch.Generator().manual_seed(100 * call + rank)
    return [torch.randn(shape, generator=generator).add(1).to(dtype or torch.float32) for shape in SHAPES]


def means(call: int = 0) -> list[Any]:
    return [torch.stack(many).mean(0) for many in zip(*(tensors_of(rank, call) for rank in range(RANKS)), strict=True)]


def on_ranks(groups: list[Any], function: Any) -> list[Any]:
    """Call a function for each rank and its group, in threads of their own."""
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(function, range(RANKS), groups))


def as_row(tensors: list[Any]) -> Any:
    return torch.cat([one.float().reshape(-1) for one in tensors])


@pytest.mark.parametrize("how", [None, *(method.example for method in METHODS.values())])
def test_every_method_gives_every_rank_the_same_bits(groups: list[Any], how: str | None) -> None:
    def averaged(rank: int, group: Any) -> list[Any]:
        tensors = tensors_of(rank)
        work = average(tensors, how, group=group, async_op=True)
        assert work is not None
        work.wait()
        return tensors

    found = on_ranks(groups, averaged)
    assert all(torch.equal(as_row(one), as_row(found[0])) for one in found)
    assert [one.shape for one in found[0]] == [torch.Size(shape) for shape in SHAPES]
    if how in (None, "int16", "int10"):
        torch.testing.assert_close(as_row(found[0]), as_row(means()), rtol=0.0, atol=1e-6 if how is None else 0.02)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(groups: list[Any], dtype: Any) -> None:
    def averaged(rank: int, group: Any) -> list[Any]:
        tensors = tensors_of(rank, dtype=dtype)
        average(tensors, group=group)
        return tensors

    found = on_ranks(groups, averaged)
    assert all(one.dtype == dtype for one in found[0])
    torch.testing.assert_close(as_row(found[0]), as_row(means()), rtol=0.0, atol=0.05)


def test_what_is_not_sent_is_added_to_the_next_call_also_after_a_checkpoint_and_under_loss(lossy: list[Any]) -> None:
    """Of k calls with the same values, all that was averaged and what is kept come to k averages."""
    calls, share = 6, 0.2

    def averaged(rank: int, group: Any) -> tuple[Any, Any]:
        averages, total = Average(f"topk:{share}", group), torch.zeros(len(as_row(means())))
        for _ in range(calls):
            tensors = tensors_of(rank)
            averages(tensors)
            total += as_row(tensors)
            saved = io.BytesIO()
            torch.save(averages.state_dict(), saved)
            saved.seek(0)
            averages = Average(f"topk:{share}", group)
            averages.load_state_dict(torch.load(saved))
        return total, as_row(list(averages.state_dict()["lost"].values()))

    found = on_ranks(lossy, averaged)
    totals, kept = zip(*found, strict=True)
    assert all(torch.equal(one, totals[0]) for one in totals)
    expected = calls * as_row(means())
    torch.testing.assert_close(totals[0] + torch.stack(kept).mean(0), expected, rtol=0.0, atol=1e-4)
    assert float((totals[0] - expected).norm() / expected.norm()) > 0.01  # something is kept indeed


def test_the_function_remembers_by_name_and_group(groups: list[Any]) -> None:
    def averaged(rank: int, group: Any) -> Any:
        total = torch.zeros(len(as_row(means())))
        for _ in range(24):
            tensors = tensors_of(rank)
            average(tensors, "globaltopk:0.25", group=group)
            total += as_row(tensors)
        return total

    expected = 24 * as_row(means())
    # Without a memory three quarters of the values would never arrive.
    error = (on_ranks(groups, averaged)[0] - expected).norm() / expected.norm()
    assert float(error) < 0.3


def test_many_in_flight_among_other_collectives(groups: list[Any]) -> None:
    def averaged(rank: int, group: Any) -> list[Any]:
        lists = [tensors_of(rank, call) for call in range(4)]
        averages = [Average(how, group) for how in ("powersgd:2", "int10", "topk:0.1", None)]
        works = [one(tensors, async_op=True) for one, tensors in zip(averages, lists, strict=True)]
        ones = torch.ones(3)
        group.allreduce([ones]).wait()
        for work in reversed(works):
            assert work is not None
            work.wait()
        return [ones, *lists[1], *lists[3]]

    found = on_ranks(groups, averaged)
    assert all(torch.equal(as_row(one), as_row(found[0])) for one in found)
    torch.testing.assert_close(
        as_row(found[0]), as_row([torch.full((3,), RANKS), *means(1), *means(3)]), rtol=0.0, atol=0.02
    )


def test_values_are_read_before_it_returns(groups: list[Any]) -> None:
    """The tensors that were given may be inputs of a computation that goes on: only the result is written later."""
    late = groups[-1]

    def averaged(rank: int, group: Any) -> Any:
        tensor = torch.full((1000,), float(rank))
        work = average([tensor], None, group=group, async_op=True)
        assert work is not None
        if group is not late:
            tensor.fill_(77.0)  # not allowed before `wait`, and without consequence for the others
        work.wait()
        return tensor

    for one in on_ranks(groups, averaged):
        assert torch.equal(one, torch.full((1000,), (RANKS - 1) / 2))


def test_ranks_that_differ_all_raise(own_groups: list[Any]) -> None:
    def averaged(rank: int, group: Any) -> str:
        tensors = [torch.ones(5 + (rank == 1))]
        with pytest.raises(OperationMismatch):
            average(tensors, group=group)
        return "raised"

    assert on_ranks(own_groups, averaged) == ["raised"] * RANKS


def test_what_cannot_be_averaged_is_refused_before_anything_is_sent(groups: list[Any]) -> None:
    begun = groups[0].begun_so_far()
    refused: list[tuple[Any, str]] = [
        ([torch.ones(3, dtype=torch.float64)], "not torch.strided torch.float64"),
        ([torch.ones(3, dtype=torch.int32)], "dense float32, float16 and bfloat16"),
        ([torch.ones(3).to_sparse()], "not torch.sparse_coo"),
        (torch.ones(3), r"a list of tensors: \[tensor\]"),
    ]
    for tensors, text in refused:
        with pytest.raises(UsageError, match=text):
            average(tensors, group=groups[0])
    with pytest.raises(UsageError, match="use one of int16"):
        average([torch.ones(3)], "gzip", group=groups[0])
    with pytest.raises(UsageError, match="init_process_group"):
        average([torch.ones(3)])
    assert groups[0].begun_so_far() == begun


def test_an_empty_list_is_nothing_to_do(groups: list[Any]) -> None:
    assert on_all(groups, lambda group: average([], group=group)) == [None] * RANKS
