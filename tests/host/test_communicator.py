"""Collectives as callers see them: ranks are threads, the switch is the reference one."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from support.timing import eventually, patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import LocalMembership, communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.steps import LastStep, StepQueue
from switchsum_protocol.errors import (
    CollectiveTimeout,
    Interrupted,
    NotAdmitted,
    OperationMismatch,
    SumOverflow,
    UnsupportedDtype,
    UsageError,
    WorkerLost,
)

from .checks import RANKS, failures, on_all


@pytest.fixture
def ranks(fresh_ranks: list[Communicator]) -> list[Communicator]:
    return fresh_ranks


def test_a_closed_communicator_goes_at_once_with_what_it_had_mapped(ranks: list[Communicator]) -> None:
    array = np.ones(1000, np.float32)
    on_all(ranks, lambda communicator: communicator.allreduce_topk_async(array.copy(), k=5).wait() is None)
    kept = [weakref.ref(communicator) for communicator in ranks]
    on_all(ranks, Communicator.close)
    gc.disable()  # which would find a circle some time later
    try:
        ranks.clear()
        assert [reference() for reference in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_sum_works_in_place_and_returns_the_array(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        array = np.full((20, 50), communicator.rank + 1.0, np.float32)
        assert communicator.allreduce(array) is array
        assert array.shape == (20, 50)
        np.testing.assert_allclose(array, 6.0, rtol=1e-6)

    on_all(ranks, call)


def test_few_floats_are_added_exactly_again_and_again(ranks: list[Communicator]) -> None:
    def added(communicator: Communicator) -> bool:
        for step in range(4):
            array = np.array([{0: 1e30, 1: -1e30}.get(communicator.rank, 1.0), step], np.float32)
            handle = communicator.allreduce_async(np.ones(9, np.float32), background=False) if step == 2 else None
            communicator.allreduce(array)
            assert array.tolist() == [RANKS - 2, RANKS * step]
            if handle is not None:
                handle.wait()
        return True

    assert all(on_all(ranks, added))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_average(ranks: list[Communicator], dtype: Any) -> None:
    def call(communicator: Communicator) -> Any:
        return communicator.allreduce(np.full(700, communicator.rank * 3.0, dtype), op="average")

    for array in on_all(ranks, call):
        np.testing.assert_array_equal(array.astype(np.float32), 3.0)


def _misaligned(base: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array = np.zeros(base.nbytes + 1, np.uint8)[1:].view(base.dtype).reshape(base.shape)
    array[...] = base
    return array


LAYOUTS: dict[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "contiguous": lambda base: base,
    "sliced": lambda base: np.repeat(base, 2, axis=1)[:, ::2],
    "reversed": lambda base: base[::-1].copy()[::-1],
    "fortran": np.asfortranarray,
    "transposed": lambda base: base.T.copy().T,
    "swapped bytes": lambda base: base.astype(base.dtype.newbyteorder()),
    "misaligned": _misaligned,
    "sub-class": lambda base: base.view(np.recarray),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout_adds_the_same_elements(ranks: list[Communicator], layout: str) -> None:
    base = np.random.default_rng(4).integers(-(10**6), 10**6, (30, 40)).astype(np.int32)

    def call(communicator: Communicator) -> npt.NDArray[Any]:
        array = LAYOUTS[layout](base.copy()) if communicator.rank == 1 else base.copy()
        assert communicator.allreduce(array) is array
        return array

    for array in on_all(ranks, call):
        np.testing.assert_array_equal(array, base.astype(np.int64) * RANKS)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 1, 1)])
def test_odd_shapes(ranks: list[Communicator], shape: tuple[int, ...]) -> None:
    for array in on_all(ranks, lambda communicator: communicator.allreduce(np.full(shape, 2, np.int32))):
        np.testing.assert_array_equal(array, np.full(shape, 6))


def test_handles_in_any_order(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        arrays = [np.full(size, size + communicator.rank, np.int32) for size in (5, 3000, 1, 700)]
        handles = [communicator.allreduce_async(array) for array in arrays]
        for array, handle in reversed(list(zip(arrays, handles, strict=True))):
            assert handle.wait() is array
            np.testing.assert_array_equal(array, 3 * len(array) + 3)
            assert handle.wait() is array  # once more does nothing
        np.testing.assert_array_equal(arrays[0], 18)

    on_all(ranks, call)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float16])
@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize(("first", "second"), [(slice(None), slice(None)), (slice(0, 2_000), slice(1_000, None))])
def test_arrays_in_flight_that_overlap_are_added_in_turn(
    ranks: list[Communicator], first: slice, second: slice, background: bool, dtype: Any
) -> None:
    expected = np.ones(2_800)  # in fewer blocks than there are slots, so that others are free for the second one
    expected[first] *= RANKS
    expected[second] *= RANKS

    def call(communicator: Communicator) -> None:
        array = np.ones(2_800, dtype)
        parts = array[first], array[30:30], array[second]
        handles = [communicator.allreduce_async(part, background=background) for part in parts]
        root = communicator.broadcast_async(array, root=1)  # which only reads it there
        for handle in handles:
            handle.wait()
        assert root.wait() is array
        np.testing.assert_allclose(array.astype(np.float64), expected, rtol=1e-3)

    on_all(ranks, call)


def test_a_background_thread_goes_on_with_what_was_begun(ranks: list[Communicator]) -> None:
    arrays = [np.full(3000, rank, np.float32) for rank in range(RANKS)]
    handles = [communicator.allreduce_async(array) for communicator, array in zip(ranks, arrays, strict=True)]
    end = time.monotonic() + patience(20)
    while any(communicator.queue.under_way for communicator in ranks) and time.monotonic() < end:
        time.sleep(0.01)  # nobody waits for a handle
    for array, handle in zip(arrays, handles, strict=True):
        np.testing.assert_array_equal(array, 3.0)
        handle.wait()


def test_a_communicator_whose_background_thread_is_refused_can_be_closed(
    ranks: list[Communicator], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "switchsum rank 0":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="start new thread"):
        ranks[0].allreduce_async(np.ones(3000, np.float32))
    with pytest.raises(Interrupted, match="was raised in the midst of a collective"):
        ranks[0].barrier()  # which others may have begun, too
    ranks[0].close()
    assert not ranks[0].queue.is_open


def test_callbacks_come_once_when_there_is_a_result(ranks: list[Communicator]) -> None:
    ended: queue.Queue[tuple[int, bool]] = queue.Queue()

    def call(communicator: Communicator) -> None:
        handle = communicator.allreduce_async(np.ones(700, np.float32))
        handle.add_done_callback(lambda done: ended.put((communicator.rank, done is handle and done.is_done)))

    on_all(ranks, call)
    assert sorted(ended.get(timeout=patience(20)) for _ in ranks) == [(rank, True) for rank in range(RANKS)]
    handle = ranks[0].barrier_async()
    ranks[0].queue.membership.error = WorkerLost("rank 2 of job 'x' is gone", 2)
    handle.add_done_callback(lambda _: ended.put((0, True)))
    assert ended.get(timeout=patience(20)) == (0, True)  # a background thread hears of it while nobody waits
    assert ended.empty()


def test_a_handle_may_be_waited_for_from_several_places(ranks: list[Communicator]) -> None:
    # From two threads at once, and by a callback from within the wait that finds out.
    def call(communicator: Communicator) -> None:
        if communicator.rank == 2:
            time.sleep(0.1)
        handle = communicator.allreduce_async(np.ones(700, np.float32), background=False)
        heard: list[float] = []
        handle.add_done_callback(lambda done: heard.append(done.wait()[0]))
        with ThreadPoolExecutor(3) as pool:
            assert [array[0] for array in pool.map(lambda _: handle.wait(), range(3))] == [3.0] * 3
        assert heard == [3.0]

    on_all(ranks, call)


def test_many_more_operations_than_fit(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> None:
        handles = [communicator.allreduce_async(np.ones(1, np.int32)) for _ in range(1500)]
        for handle in handles:
            np.testing.assert_array_equal(handle.wait(), 3)

    on_all(ranks, call)


def test_collectives_from_several_threads(ranks: list[Communicator]) -> None:
    # Threads of one rank may be served in any order, so that only equal operations can be used this way.
    def call(communicator: Communicator) -> None:
        with ThreadPoolExecutor(4) as pool:
            for array in pool.map(lambda _: communicator.allreduce(np.ones(400, np.int32)), range(40)):
                np.testing.assert_array_equal(array, 3)

    on_all(ranks, call)


def test_barrier(ranks: list[Communicator]) -> None:
    arrived = []

    def call(communicator: Communicator) -> int:
        time.sleep(0.05 * communicator.rank)
        arrived.append(communicator.rank)
        communicator.barrier()
        return len(arrived)

    assert on_all(ranks, call) == [RANKS] * RANKS


def test_loss_is_repaired_in_real_time() -> None:
    ranks = communicators(4, loss=0.02, seed=3)
    base = np.random.default_rng(1).integers(-1000, 1000, 100_000).astype(np.int32)
    for array in on_all(ranks, lambda communicator: communicator.allreduce(base.copy())):
        np.testing.assert_array_equal(array, base * 4)
    assert all(communicator.statistics().repeats > 0 for communicator in ranks)
    for communicator in ranks:
        communicator.close()


def test_statistics(ranks: list[Communicator]) -> None:
    on_all(ranks, lambda communicator: communicator.allreduce(np.ones(256 * 4, np.int32)))
    on_all(ranks, Communicator.barrier)
    statistics = ranks[0].statistics()
    assert statistics.collectives == 2
    assert statistics.rounds == 5
    assert statistics.frames_sent == 5 + statistics.repeats
    assert statistics.bytes_sent >= 4 * (90 + 1024) + 90
    assert statistics.frames_received >= 5
    assert 0 < statistics.collective_s < 30
    assert pickle.loads(pickle.dumps(statistics)) == statistics


@pytest.mark.parametrize(
    ("dtype", "way_out"),
    [
        (np.float64, "astype(np.float32)"),
        (np.complex64, "view(np.float32)"),
        (np.bool_, "op='or'"),
        ("U3", "cast"),
        ("M8[s]", "cast"),
    ],
)
def test_other_dtypes_are_refused_with_the_way_out(ranks: list[Communicator], dtype: Any, way_out: str) -> None:
    with pytest.raises(UnsupportedDtype, match="float32, float16, bfloat16 and integers") as caught:
        ranks[0].allreduce(np.zeros(3, dtype))
    assert way_out in str(caught.value)


def test_what_all_ranks_are_refused_leaves_the_communicator_whole(ranks: list[Communicator]) -> None:
    on_all(ranks, _make_mistakes)
    on_all(ranks, Communicator.barrier)


def _make_mistakes(communicator: Communicator) -> None:
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    with pytest.raises(UsageError, match="read-only"):
        communicator.allreduce(read_only)
    with pytest.raises(UsageError, match="sum, average, max, min, or"):
        communicator.allreduce(np.ones(3, np.float32), op="product")
    with pytest.raises(UsageError, match="int32, int16, int8"):
        communicator.allreduce(np.ones(3, np.float32), lanes="int5")
    with pytest.raises(UsageError, match=r"skipped only if op is 'sum', .*'or'.*, not 'max'"):
        communicator.allreduce(np.ones(3, np.float32), op="max", block=32)
    with pytest.raises(UsageError, match="int4 lanes are for sums of int8, not for sum of float32"):
        communicator.allreduce(np.ones(3, np.float32), lanes="int4")
    with pytest.raises(UsageError, match="int4 lanes are for sums of int8, not for max of int8"):
        communicator.allreduce(np.ones(3, np.int8), op="max", lanes="int4")
    for _ in range(2):
        with pytest.raises(UsageError, match="int4 lanes take values from -8 to 7, not 1 to 8"):
            communicator.allreduce(np.array([1, 8], np.int8), lanes="int4")
    with pytest.raises(UsageError, match="int8 lanes are for sums and averages of floats"):
        communicator.allreduce(np.ones(3, np.float32), op="max", lanes="int8")
    with pytest.raises(UnsupportedDtype, match="integers and bool"):
        communicator.allreduce(np.ones(3, np.float32), op="or")
    with pytest.raises(UnsupportedDtype, match="real floats"):
        communicator.allreduce(np.ones(3, np.complex64), op="max")
    with pytest.raises(UsageError, match="int16 lanes are for sums and averages of floats, not for sum of int32"):
        communicator.allreduce(np.ones(3, np.int32), lanes="int16")
    with pytest.raises(UsageError, match="numpy array"):
        communicator.allreduce([1.0, 2.0])  # type: ignore[call-overload]
    with pytest.raises(UnsupportedDtype, match="average"):
        communicator.allreduce(np.ones(3, np.int32), op="average")


def test_overflow_is_raised_on_every_rank_and_nothing_breaks(ranks: list[Communicator]) -> None:
    arrays = {}

    def overflow(communicator: Communicator) -> None:
        array = arrays[communicator.rank] = np.ones(1000, np.int32)
        array[600] = 2**30
        communicator.allreduce(array)

    for error in failures(ranks, overflow):
        assert isinstance(error, SumOverflow)
        assert isinstance(error, OverflowError)
        assert error.blocks == (2,)
    for array in arrays.values():
        assert array[600] == 2**31 - 1
        assert (np.delete(array, 600) == 3).all()
    saturated = on_all(ranks, lambda one: one.allreduce(np.full(3, 2**30, np.int32), saturate=True))
    for array in saturated:
        assert (array == 2**31 - 1).all()
    assert ranks[0].statistics().overflows == 2


def test_different_operations_are_raised_on_every_rank_from_then_on(ranks: list[Communicator]) -> None:
    def differ(communicator: Communicator) -> None:
        communicator.allreduce(np.ones(10 + communicator.rank, np.float32))

    for _ in range(2):
        assert [type(error) for error in failures(ranks, differ)] == [OperationMismatch] * RANKS
    assert [type(error) for error in failures(ranks, Communicator.barrier)] == [OperationMismatch] * RANKS


def test_a_missing_rank_is_named() -> None:
    ranks = communicators(RANKS, config=ClusterConfig(workers=RANKS, timeout_s=patience(0.5)))
    for error in failures(ranks[:2], Communicator.barrier):
        assert isinstance(error, CollectiveTimeout)
        assert isinstance(error, TimeoutError)
        assert error.missing == (2,)


def test_a_lost_worker_ends_waiting(ranks: list[Communicator]) -> None:
    def wait(communicator: Communicator) -> None:
        communicator.allreduce(np.ones(5, np.float32))

    def lose() -> None:
        for communicator in ranks[:2]:
            communicator.queue.membership.error = WorkerLost("rank 2 of job 'x' is gone", 2)

    timer = threading.Timer(0.3, lose)
    timer.start()
    began = time.monotonic()
    for error in failures(ranks[:2], wait):
        assert isinstance(error, WorkerLost)
        assert error.rank == 2
    assert time.monotonic() - began < patience(5)
    timer.join()


def test_a_lost_membership_ends_collectives(ranks: list[Communicator]) -> None:
    ranks[0].queue.membership.error = NotAdmitted("this membership is over")
    for _ in range(2):
        with pytest.raises(NotAdmitted, match="over"):
            ranks[0].barrier()


def test_closing(ranks: list[Communicator]) -> None:
    with ranks[0] as communicator:
        pass
    membership = communicator.queue.membership
    assert isinstance(membership, LocalMembership)
    assert membership.has_left
    communicator.close()
    for call in (communicator.barrier, lambda: communicator.allreduce(np.ones(1, np.float32))):
        with pytest.raises(UsageError, match="closed"):
            call()
    assert communicator.statistics().collectives == 0


def test_closing_ends_what_another_thread_waits_for(ranks: list[Communicator]) -> None:
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(ranks[0].barrier)
        assert eventually(lambda: ranks[0].begun == 1)
        began = time.monotonic()
        ranks[0].close()
        assert time.monotonic() - began < patience(5)
        with pytest.raises(UsageError, match="closed in the midst"):
            waits.result()


def begin_sparse(communicator: Communicator) -> Handle:
    return communicator.allreduce_sparse_async(np.array([1]), np.ones(1, np.float32), 100)


def test_closing_ends_steps_that_have_not_begun_with_errors_of_ours() -> None:
    [communicator] = communicators(1)
    steps, gate = StepQueue(communicator.queue), threading.Event()

    def refuse() -> LastStep:
        gate.wait()
        raise NotAdmitted("over")

    first, second = (steps.begin(refuse) for _ in range(2))
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(steps.wait_for_last_steps)
        closes = pool.submit(steps.close)
        with pytest.raises(UsageError, match="closed"):
            second.wait()
        waits.result()
        gate.set()
        closes.result()
    assert second.is_done
    with pytest.raises(NotAdmitted):
        first.wait()
    with pytest.raises(UsageError, match="closed"):
        steps.begin(refuse)


def test_no_steps_begin_when_it_is_closed() -> None:
    [communicator] = communicators(1)
    begin_sparse(communicator).wait()
    communicator.close()
    with pytest.raises(UsageError, match="closed"):
        begin_sparse(communicator)


def test_a_rank_that_fails_does_not_wait_for_its_own_steps() -> None:
    config = ClusterConfig(workers=2, lanes_per_frame=256, window_slots=16, timeout_s=patience(30))
    communicator = communicators(2, config=config)[0]
    begun = begin_sparse(communicator)
    assert eventually(lambda: communicator.begun == 1)
    with pytest.raises(ZeroDivisionError), communicator:
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="closed in the midst"):
        begun.wait()


def test_what_is_raised_in_a_step_in_the_background_breaks_the_communicator(
    ranks: list[Communicator], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("switchsum_host.api.sparse._checked", refuse)
    with pytest.raises(MemoryError):
        begin_sparse(ranks[0]).wait()
    with pytest.raises(Interrupted, match="MemoryError"):
        ranks[0].barrier()


def test_a_forked_child_cannot_use_it_and_does_not_disturb(ranks: list[Communicator]) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b""
        try:
            ranks[0].barrier()
        except UsageError as error:
            said = str(error).encode()
        finally:
            ranks[0].close()
            os.write(writing, said or b"no error")
            os._exit(0)
    os.waitpid(child, 0)
    assert b"belongs to process" in os.read(reading, 1000)
    os.close(reading)
    os.close(writing)
    membership = ranks[0].queue.membership
    assert isinstance(membership, LocalMembership)
    assert not membership.has_left
    on_all(ranks, Communicator.barrier)
