"""Tensors and calls at the edges: refused in words that say what to do, or done as gloo does them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from switchsum_controller.jobs.registry import Jobs
from switchsum_protocol.errors import NoCapacity, OperationMismatch, UnsupportedDtype, UsageError

from .calls import OP, options
from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import Average, rendezvous  # noqa: E402  (it needs torch)

dist = torch.distributed


def test_tensors_without_values_are_refused_in_words(groups: list[Any]) -> None:
    def refused(group: Any) -> None:
        empty = torch.empty(4, device="meta")
        calls: list[Callable[[], Any]] = [
            lambda: group.allreduce([empty], options()),
            lambda: group.broadcast([empty], options()),
            lambda: group.all_gather_single(torch.empty(4 * RANKS, device="meta"), empty, None),
            lambda: group.reduce_scatter_single(empty, torch.empty(4 * RANKS, device="meta"), options()),
        ]
        for call in calls:
            with pytest.raises(UsageError, match="device 'meta' has no values"):
                call()
        group.barrier().wait()

    on_all(groups, refused)


def test_a_sum_with_a_factor_is_refused_by_its_own_name(groups: list[Any]) -> None:
    def refused(group: Any) -> None:
        with pytest.raises(UnsupportedDtype, match="PREMUL_SUM is NCCL's alone: multiply"):
            group.allreduce([torch.ones(4)], options(reduceOp=OP.PREMUL_SUM))

    on_all(groups, refused)


@pytest.mark.filterwarnings("ignore:the switch cannot do")
def test_reduce_over_gloo_leaves_the_tensors_of_other_ranks_alone(groups: list[Any]) -> None:
    def reduced(group: Any) -> list[float]:
        tensor = torch.full((3,), group.rank() + 1.0, dtype=torch.float64)
        group.reduce(tensor, 1).wait()
        values: list[float] = tensor.tolist()
        return values

    assert on_all(groups, reduced) == [[1.0] * 3, [6.0] * 3, [3.0] * 3]


def test_an_average_of_no_tensors_on_one_rank_alone_is_a_mismatch(own_groups: list[Any]) -> None:
    def averaged(group: Any) -> str:
        tensors = [] if group.rank() == 1 else [torch.ones(4)]
        with pytest.raises(OperationMismatch) as caught:
            Average(None, group)(tensors)
        return str(caught.value)

    on_all(own_groups, averaged)


def test_an_average_of_no_tensors_on_all_ranks_is_there(groups: list[Any]) -> None:
    assert on_all(groups, lambda group: Average(None, group)([])) == [None] * RANKS


def test_no_room_for_another_group_says_what_who_uses_pytorch_can_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from switchsum.torch.store import Meeting

    def refuse(place: object, method: str, request: Any, reply: object) -> Any:
        if method == "ListJobs":
            return SimpleNamespace(jobs=[SimpleNamespace(job=f"j/{one}", slot_count=10) for one in range(99)])
        raise NoCapacity("no 1 slots in a row are free: ask for fewer (--slots)")

    monkeypatch.setattr(rendezvous, "_call", refuse)
    place = rendezvous.JobAddress(controller="here:1", link="shm:x", job="j/0,1", is_ours=True, is_of_some=True)
    with pytest.raises(NoCapacity, match=r"99 of them of groups.*destroy_process_group.*backend=\"gloo\""):
        rendezvous._make_job(place, Meeting(dist.HashStore(), 0, 2, 5.0))


def test_a_switch_has_room_for_seventy_groups_of_some_ranks() -> None:
    jobs = Jobs(1024, lambda: 1, lambda: 1)
    jobs.create("all", workers=4, slots=None, timeout_s=60)
    slots, part_of_free = rendezvous.GROUP_SLOTS, 1 / rendezvous.GROUP_SHARE
    groups = count()
    with pytest.raises(NoCapacity):  # noqa: PT012 - one of the calls
        for group in groups:  # a group may do with one slot
            jobs.create(f"all/{group}", workers=2, slots=slots, timeout_s=60, part_of_free=part_of_free)
    assert next(groups) > 70
    assert jobs.free_slots == 0
