"""Signal handlers that raise, call or close at any instant of a collective: it has ended, or the job has."""

from __future__ import annotations

import dis
import gc
import os
import random
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import switchsum_host.api.communicator
from support.timing import eventually, patience
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import LocalMembership, communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.interrupts import Interrupts, defer_interrupts
from switchsum_protocol.errors import Interrupted, OperationMismatch, SwitchsumError, UsageError, WorkerLost

EXAMPLES = int(os.environ.get("SWITCHSUM_EXAMPLES", "60"))
HOST = str(Path(switchsum_host.api.communicator.__file__).parents[1])
LOOKED_AT = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD", "PRECALL"}
"""After these, and hardly anywhere else, the interpreter runs signal handlers."""
PUBLIC = {"call", "allreduce", "main"}
"""An interrupt at their very beginning is one before the call, or (of `call` for the loop) one that Python prints."""


class Alarm(Exception):
    """What a handler raises that does not end the program."""


@cache
def opcodes(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


@contextmanager
def interrupted(at: int, handler: Callable[[], None]) -> Iterator[list[int]]:
    """Have a handler run once in this thread, at the instant `at` of those at which the host's Python could run one.

    Yields how many instants there were.
    """
    count, last = [0], dict[FrameType, int]()

    def local(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            name, now = (opcodes(frame.f_code).get(offset, "RESUME") for offset in (last.get(frame, -1), frame.f_lasti))
            last[frame] = frame.f_lasti
            # PRECALL alone runs no handlers, but if it has done the whole call: CALL does not follow then.
            is_within_call = name == "PRECALL" and now == "CALL"
            if name in LOOKED_AT and not is_within_call and not (name == "RESUME" and frame.f_code.co_name in PUBLIC):
                count[0] += 1
                if count[0] == at:
                    handler()
        elif event == "return":
            last.pop(frame, None)
        return local

    def begin(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOST):
            return None
        frame.f_trace_opcodes = True
        return local

    before = sys.gettrace()
    gc.disable()  # what ends another test's communicators runs in here otherwise, and is interrupted in their place
    sys.settrace(begin)
    try:
        yield count
    finally:
        sys.settrace(before)
        gc.enable()


STEPS = 14


def step(communicator: Communicator, turn: int) -> tuple[npt.NDArray[Any], float, Callable[[], object]]:
    """Return an array, what it must hold after a call on all ranks, and the call."""
    value = 10.0 ** (turn % 7) * (1 + turn // 7)
    few, ones = np.full(4, value, np.float32), np.full(700, value, np.float32)
    whole = np.full(700, int(value), np.int32)
    match turn % 7:
        case 0 | 1 | 2:
            return few, 2 * value, lambda: communicator.allreduce(few)
        case 3:
            return whole, 2 * value, lambda: communicator.allreduce(whole)
        case 4:
            ones *= communicator.rank == 1
            return ones, value, lambda: communicator.broadcast(ones, root=1)
        case 5:
            out = np.zeros(350, np.float32)
            return out, 2 * value, lambda: communicator.reduce_scatter(ones, out=out)
    return ones, 2 * value, lambda: wait_well(communicator.allreduce_async(ones))


def wait_well(handle: Any) -> None:
    """Wait again where a handler has raised: the handle is ours."""
    try:
        handle.wait()
    except (Alarm, KeyboardInterrupt):
        handle.wait()
        raise


def everything(ranks: list[Communicator], at: int, handler: Callable[[Communicator], None]) -> tuple[int, list[str]]:
    """Run a program on two ranks, of which the first is interrupted; return how many instants it had, and outcomes."""

    def call(communicator: Communicator) -> tuple[int, str]:
        outcome, is_first = "right", communicator.rank == 0
        with interrupted(at, lambda: handler(communicator)) if is_first else nullcontext([0]) as count:
            for turn in range(STEPS):
                array, expected, begin = step(communicator, turn)
                try:
                    begin()
                except (Alarm, KeyboardInterrupt):
                    if communicator.queue.is_dirty or communicator.queue.error is not None:
                        outcome = "broken"
                        break
                    outcome = "interrupted"  # it had ended
                except SwitchsumError as error:
                    outcome = type(error).__name__
                    break
                assert np.allclose(array, expected, rtol=1e-5), (at, turn, outcome, array[:3], expected)
        if is_first and outcome not in ("right", "interrupted"):
            ranks[1].queue.membership.error = WorkerLost("rank 0 is gone", 0)  # as heartbeats would say
        return count[0], outcome

    with ThreadPoolExecutor(2) as pool:
        (instants, first), (_, second) = pool.map(call, ranks)
    return instants, [first, second]


def pair() -> list[Communicator]:
    return communicators(2, config=ClusterConfig(workers=2, lanes_per_frame=256, window_slots=16, timeout_s=60))


@cache
def instants() -> int:
    """Return how many there are in the program when nothing interrupts it."""
    ranks = pair()
    count, outcomes = everything(ranks, -1, lambda _: None)
    assert outcomes == ["right", "right"]
    return count


@pytest.mark.parametrize("what", [Alarm, KeyboardInterrupt, "close"])
def test_a_result_is_right_or_an_error_whenever_a_handler_runs(what: Any) -> None:
    def handler(communicator: Communicator) -> None:
        if what == "close":
            communicator.close()
        else:
            raise what

    drawn, seen = random.Random(str(what)), dict[str, int]()
    for _ in range(EXAMPLES // 3):
        ranks = pair()
        _, (first, second) = everything(ranks, drawn.randrange(1, instants()), handler)
        seen[first] = seen.get(first, 0) + 1
        if first in ("right", "interrupted"):
            assert second == "right"
            for communicator in ranks:
                communicator.close()
        elif what == "close":
            assert first == "UsageError"
        else:
            with pytest.raises(Interrupted):
                ranks[0].barrier()
    if what == "close":
        assert seen["UsageError"] > EXAMPLES // 6
    else:
        assert seen["broken"] > EXAMPLES // 6


def test_what_others_are_told_of_an_interrupted_call_is_not_why_later_ones_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that ends while its arguments are looked at is refused, and the switch may say so to this rank first."""
    ranks, refuse = pair(), Communicator.refuse

    def looked_at(*_: object) -> None:
        raise Alarm

    def refuse_and_wait(communicator: Communicator) -> None:
        refuse(communicator)
        assert eventually(lambda: isinstance(communicator.queue.error, OperationMismatch), 30)

    monkeypatch.setattr(Communicator, "refuse", refuse_and_wait)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(ranks[1].barrier)
        with monkeypatch.context() as patch:
            patch.setattr("switchsum_host.api.collectives.check_array", looked_at)
            with pytest.raises(Alarm):
                ranks[0].allreduce(np.ones(4, np.float32))
        with pytest.raises(OperationMismatch):
            other.result(patience(30))
    with pytest.raises(Interrupted, match="Alarm was raised"):
        ranks[0].barrier()


def test_a_handler_that_calls_a_collective_in_the_midst_of_one_is_refused() -> None:
    ranks, said = pair(), list[str]()

    def handler(_: int, __: object) -> None:
        try:
            ranks[0].barrier()
        except UsageError as error:
            said.append(str(error))

    before = signal.signal(signal.SIGUSR1, handler)
    array = np.ones(4, np.float32)
    try:
        with ThreadPoolExecutor(1) as pool:

            def other() -> npt.NDArray[Any]:
                while not ranks[0].queue.under_way:
                    time.sleep(0.001)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                while not said:
                    time.sleep(0.001)
                return ranks[1].allreduce(np.ones(4, np.float32))

            waits = pool.submit(other)
            assert ranks[0].allreduce(array).tolist() == waits.result().tolist() == [2] * 4
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "signal handler or a callback" in said[0]


@pytest.fixture
def deferring() -> Iterator[list[Communicator]]:
    """Two ranks, of which the first is what `connect` in the main thread would have made."""
    ranks = pair()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    defer_interrupts(ranks[0].queue)
    yield ranks
    for communicator in ranks:
        communicator.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def press(communicator: Communicator, times: int = 1) -> None:
    """Press Ctrl-C while the main thread waits for a collective: in the moment before it waits, nothing is driven."""
    main = threading.main_thread().ident or 0
    while not (communicator.queue.under_way and communicator.queue.is_driven_by(main)):
        time.sleep(0.001)
    for _ in range(times):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(0.2)


@pytest.mark.parametrize("form", ["blocking", "handle", "top-k"])
def test_ctrl_c_waits_for_the_end_of_a_collective(deferring: list[Communicator], form: str) -> None:
    first, second = deferring
    array = np.arange(1, 5, dtype=np.float32)
    is_begun = threading.Event()

    def other() -> None:
        is_begun.wait()
        press(first)
        call(second, array.copy())
        second.barrier()

    def call(communicator: Communicator, array: npt.NDArray[Any]) -> None:
        if form == "top-k":
            is_begun.set()
            communicator.allreduce_topk(array, 4)
        elif form == "handle":
            handle = communicator.allreduce_async(array, background=False)
            is_begun.set()  # a Ctrl-C before belongs to the caller: who would have the handle?
            handle.wait()
        else:
            is_begun.set()
            communicator.allreduce(array)

    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(other)
        with pytest.raises(KeyboardInterrupt):
            call(first, array)
        if form == "top-k":  # its first step had ended
            with pytest.raises(Interrupted):
                first.barrier()
            second.queue.membership.error = WorkerLost("rank 0 is gone", 0)  # as heartbeats would say
            with pytest.raises(WorkerLost):
                waits.result()
        else:
            assert array.tolist() == [2, 4, 6, 8]
            first.barrier()
            waits.result()


def test_a_second_ctrl_c_that_native_code_loses_is_raised_all_the_same() -> None:
    interrupts = Interrupts()
    interrupts.ask()
    interrupts.check()  # the collective may still end
    with pytest.raises(KeyboardInterrupt):  # at the first line of a callback from native code, where it is lost
        interrupts.ask()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
    assert not interrupts.is_asked_for


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the test above
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_a_collective_that_nobody_else_is_in(deferring: list[Communicator], times: int) -> None:
    first, _ = deferring
    presser = threading.Thread(target=press, args=(first, times))
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        first.allreduce(np.ones(700, np.float32))
    presser.join()
    with pytest.raises(Interrupted, match="KeyboardInterrupt was raised in the midst of a collective"):
        first.barrier()


def test_ctrl_c_is_raised_at_once_where_nothing_is_driven(deferring: list[Communicator]) -> None:
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)
    assert deferring[0].queue.error is None


def test_another_handler_of_ctrl_c_is_left_alone() -> None:
    first, second = pair()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        defer_interrupts(first.queue)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        first.close()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    second.close()


def test_a_communicator_that_nobody_has_any_more_leaves_its_job() -> None:
    ranks = pair()
    handles = [communicator.allreduce_async(np.ones(700, np.float32)) for communicator in ranks]
    for handle in handles:
        handle.wait()
    del handle, handles
    threads, memberships = [one.queue.thread for one in ranks], [one.queue.membership for one in ranks]
    kept = [weakref.ref(communicator) for communicator in ranks]
    ranks.clear()
    gc.collect()
    for thread, membership, reference in zip(threads, memberships, kept, strict=True):
        assert thread is not None
        thread.join(patience(50))  # it may have had the last reference
        assert not thread.is_alive()
        assert reference() is None
        assert isinstance(membership, LocalMembership)
        assert membership.has_left


@pytest.mark.parametrize("call", ["allreduce", "allreduce_sparse_async", "wait"])
def test_a_child_is_refused_everything_while_a_sparse_sum_is_pending(call: str) -> None:
    ranks = pair()
    arguments = np.array([1]), np.ones(1, np.float32), 10
    handle = ranks[0].allreduce_sparse_async(*arguments)
    while not ranks[0].queue.under_way:
        time.sleep(0.001)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons: there are threads
        pid = os.fork()
    if pid == 0:
        status = 3
        try:
            if call == "wait":
                handle.wait()
            elif call == "allreduce":
                ranks[0].allreduce(np.ones(3, np.float32))
            else:
                ranks[0].allreduce_sparse_async(*arguments)
        except UsageError:
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    ranks[1].allreduce_sparse(*arguments)
    assert handle.wait().to_dense()[1] == 2
    for communicator in ranks:
        communicator.close()
