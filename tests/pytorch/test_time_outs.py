"""Time-outs of one call, of one wait, and those that a group is given later: they count, and say who is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from support.timing import eventually, patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_host.api.operation_queue import own_timeout_s
from switchsum_protocol.errors import CollectiveTimeout

from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from torch.distributed import distributed_c10d as c10d  # noqa: E402  (it needs torch)

dist = torch.distributed
pytestmark = pytest.mark.filterwarnings("ignore:the switch cannot do")
SHORT_S = patience(0.2)
"""A time-out of one call, far below the group's."""


def given(kind: Any, **values: Any) -> Any:
    """Return torch's options of a kind with a short time-out."""
    made = kind()
    for name, value in {"timeout": timedelta(seconds=SHORT_S), **values}.items():
        setattr(made, name, value)
    return made


def lists() -> tuple[list[list[Any]], list[Any]]:
    return [[torch.empty(4) for _ in range(RANKS)]], [torch.ones(4)]


CALLS: dict[str, Callable[[Any], Any]] = {
    "allreduce": lambda group: group.allreduce([torch.ones(4)], given(c10d.AllreduceOptions)),
    "allreduce, short": lambda group: group.allreduce(torch.ones(4), timeout=timedelta(seconds=SHORT_S)),
    "allreduce over gloo": lambda group: group.allreduce(
        [torch.ones(4, dtype=torch.float64)], given(c10d.AllreduceOptions)
    ),
    "allreduce of sparse tensors": lambda group: group.allreduce(
        [torch.ones(4, 2).to_sparse(1)], given(c10d.AllreduceOptions)
    ),
    "allreduce_coalesced": lambda group: group.allreduce_coalesced(
        [torch.ones(4), torch.ones(5)], given(c10d.AllreduceCoalescedOptions)
    ),
    "reduce": lambda group: group.reduce([torch.ones(4)], given(c10d.ReduceOptions)),
    "broadcast": lambda group: group.broadcast([torch.ones(4)], given(c10d.BroadcastOptions)),
    "allgather": lambda group: group.allgather(*lists(), given(c10d.AllgatherOptions)),
    "reduce_scatter": lambda group: group.reduce_scatter(
        [torch.ones(4)], [[torch.ones(4)] * RANKS], given(c10d.ReduceScatterOptions)
    ),
    "gather": lambda group: group.gather(
        lists()[0] if group.rank() == 0 else [], lists()[1], given(c10d.GatherOptions)
    ),
    "scatter": lambda group: group.scatter(
        lists()[1], lists()[0] if group.rank() == 0 else [], given(c10d.ScatterOptions)
    ),
    "alltoall_base": lambda group: group.alltoall_base(
        torch.ones(RANKS), torch.ones(RANKS), [], [], given(c10d.AllToAllOptions)
    ),
    "barrier": lambda group: group.barrier(given(c10d.BarrierOptions)),
}


def raised(call: Callable[[], object]) -> CollectiveTimeout:
    began = time.monotonic()
    with pytest.raises(CollectiveTimeout) as caught:
        call()
    assert SHORT_S <= time.monotonic() - began < patience(10)  # and not the group's 20 s, or the switch's 50
    return caught.value


@pytest.mark.parametrize("name", CALLS)
def test_a_calls_own_time_out_counts_and_says_who_is_missing(own_groups: list[Any], name: str) -> None:
    # Rank 1 never calls it.
    errors = on_all(own_groups[::2], lambda group: raised(lambda: CALLS[name](group).wait()))
    for error in errors:
        assert "the switch waits for rank 1" in str(error)
        assert f"no progress for {SHORT_S:g} s" in str(error)
        assert "the time-out of this call" in str(error)
        assert error.missing == (1,)


def monitored(group: Any) -> None:
    group.monitored_barrier(timedelta(seconds=SHORT_S), wait_all_ranks=True)


def later(group: Any) -> None:
    group.set_timeout(timedelta(seconds=SHORT_S))
    group.allreduce([torch.ones(4)]).wait()


def by_torch(group: Any) -> None:
    give = getattr(c10d, "set_timeout", None) or c10d._set_pg_timeout  # its name up to torch 2.13
    give(timedelta(seconds=SHORT_S), group)
    group.barrier().wait()


@pytest.mark.parametrize("call", [monitored, later, by_torch])
def test_a_time_out_that_the_group_is_given_later_counts(
    own_groups: list[Any], call: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c10d, "_rank_not_in_group", lambda _: False)  # torch does not know these groups
    error = raised(lambda: call(own_groups[0]))
    assert "the switch waits for rank 1, 2" in str(error)
    assert error.missing == (1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_whoever_waits_no_longer_may_wait_again_and_has_the_sum(own_groups: list[Any], dtype: Any) -> None:
    # float64 is added by gloo, once all ranks have called the same.
    is_late = threading.Event()
    have_waited = threading.Barrier(2)

    def call(group: Any) -> Any:
        tensor = torch.full((5000,), group.rank() + 1.0, dtype=dtype)
        if group.rank() == 1:
            assert is_late.wait(patience(20))
            group.allreduce([tensor]).wait()
            return tensor
        work = group.allreduce([tensor])

        def says_who_is_missing() -> bool:
            """Wait once; a rank that knows nothing of its path asks the switch only after a while."""
            text = str(raised(lambda: work.wait(timedelta(seconds=SHORT_S))))
            assert f"not done within {SHORT_S:g} s" in text
            return f"not done within {SHORT_S:g} s: the switch waits for rank 1" in text

        assert eventually(says_who_is_missing, 10)
        have_waited.wait(patience(20))
        is_late.set()
        assert work.wait(timedelta(seconds=patience(20)))
        return tensor

    for tensor in on_all(own_groups, call):
        assert torch.equal(tensor, torch.full((5000,), 6.0, dtype=dtype))


def test_a_wait_of_no_time_has_no_limit(own_groups: list[Any]) -> None:
    def call(group: Any) -> Any:
        if group.rank() == 1:
            time.sleep(SHORT_S)
        tensor = torch.ones(4)
        options = c10d.AllreduceOptions()
        options.timeout = timedelta(0)
        assert group.allreduce([tensor], options).wait(timedelta(0))
        return tensor.tolist()

    assert on_all(own_groups, call) == [[3.0] * 4] * RANKS


def test_a_longer_time_out_of_one_call_outlasts_the_members() -> None:
    ranks = communicators(
        2, config=ClusterConfig(workers=2, lanes_per_frame=256, window_slots=4, timeout_s=patience(0.2))
    )

    def call(communicator: Any) -> Any:
        if communicator.rank == 1:
            time.sleep(2 * patience(0.2))
        before = own_timeout_s.set(patience(30))
        try:
            return communicator.allreduce_async(np.ones(4, np.float32))
        finally:
            own_timeout_s.reset(before)

    handles = on_all(ranks, call)
    assert [handle.wait().tolist() for handle in handles] == [[2.0] * 4] * 2
    with pytest.raises(CollectiveTimeout, match=r"no progress for .*connect"):  # the member's own again
        ranks[0].allreduce(np.ones(4, np.float32))


def test_an_operation_is_not_charged_for_silence_before_it() -> None:
    ranks = communicators(
        2, config=ClusterConfig(workers=2, lanes_per_frame=256, window_slots=4, timeout_s=patience(30))
    )
    first = ranks[0].allreduce_async(np.ones(4, np.float32))
    time.sleep(2 * SHORT_S)
    before = own_timeout_s.set(SHORT_S)
    began = time.monotonic()
    second = ranks[0].barrier_async()
    own_timeout_s.reset(before)
    with pytest.raises(CollectiveTimeout):
        second.wait()
    assert time.monotonic() - began >= SHORT_S
    with pytest.raises(CollectiveTimeout):
        first.wait()
