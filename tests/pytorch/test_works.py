"""Works and futures of the process group: when they end, how they fail, who waits for whom."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from support.timing import eventually, patience
from switchsum_protocol.errors import OperationMismatch, UsageError, WorkerLost

from .calls import options
from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import work as torch_work  # noqa: E402  (it needs torch)
from switchsum.torch.completer import RELIEF_S, Completer  # noqa: E402  (it needs torch)
from switchsum.torch.hooks import CompressedHook  # noqa: E402  (it needs torch)

dist = torch.distributed


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


def test_a_future_comes_true_whose_works_turn_comes_while_it_is_made(
    groups: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The work is locked then, as it is where a signal handler has interrupted a wait for it, which must hold up nobody.
    asking: dict[int, Completer] = {}
    make = torch_work.future_for

    def late(tensors: Any) -> Any:
        completer = asking.pop(threading.get_ident(), None)
        assert completer is None or eventually(lambda: not (completer._works or completer._running))
        return make(tensors)

    monkeypatch.setattr(torch_work, "future_for", late)

    def call(group: Any) -> float:
        work = group.allreduce([torch.ones(500)], options())
        asking[threading.get_ident()] = work.completer
        future = work.get_future()
        assert eventually(future.done)
        return float(future.value()[0].sum())

    assert on_all(groups, call) == [500.0 * RANKS] * RANKS


def test_what_a_handler_raises_while_a_future_is_made_waits_and_a_second_time_it_is_raised(
    groups: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    raising: dict[int, int] = {}
    make = torch_work.future_for

    def interrupted(tensors: Any) -> Any:
        times = raising.get(threading.get_ident(), 0)
        if times:
            raising[threading.get_ident()] = times - 1
            raise KeyError("a signal handler's")
        return make(tensors)

    monkeypatch.setattr(torch_work, "future_for", interrupted)

    def call(group: Any) -> None:
        work = group.allreduce([torch.ones(5)], options())
        raising[threading.get_ident()] = 2
        with pytest.raises(KeyError, match="a signal handler's"):
            work.get_future()
        raising[threading.get_ident()] = 1
        future = work.get_future()
        with pytest.raises(KeyError, match="a signal handler's"):
            work.wait()
        work.wait()
        assert eventually(future.done)
        assert future.value()[0].tolist() == [RANKS] * 5

    on_all(groups, call)


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


def test_a_lost_worker_ends_what_is_under_way(own_groups: list[Any]) -> None:
    future = own_groups[0].allreduce([torch.ones(5)], options()).get_future()
    own_groups[0].connect().queue.membership.error = WorkerLost("rank 2 of job 'x' is gone", 2)
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

    monkeypatch.setattr("switchsum.torch.group_membership.Completer", Late)

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
    """A compressor that sends all; a signal handler raises where it finishes its second parameter."""

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


def test_what_interrupts_a_hook_reaches_who_waits(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        compressor = Interrupted()
        buffer = torch.full((5,), group.rank() + 1.0)
        parameters = [torch.zeros(2), torch.zeros(3)]
        bucket: Any = SimpleNamespace(buffer=lambda: buffer, parameters=lambda: parameters, index=lambda: 0)
        with pytest.raises(RuntimeError, match="a signal handler's"):  # C++ hands on the text
            CompressedHook(compressor, group)(None, bucket).wait()
        assert compressor.finished == ["0/2", "1/3"]

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
