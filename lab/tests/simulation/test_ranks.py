"""Ranks of a program in virtual time: here they are threads, each with a connection of its own."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum.launch.options import RunOptions
from switchsum.topologies import Cable, Network
from switchsum.view.late import find_late
from switchsum_host.api.communicator import Communicator
from switchsum_host.connect import connect
from switchsum_host.links.virtual import AskCounts, VirtualLink
from switchsum_lab.simulation import jobs, ranks
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_protocol.errors import (
    CollectiveTimeout,
    LocalError,
    OperationMismatch,
    RankTaken,
    SumOverflow,
    UsageError,
    WorkerLost,
    WorldSizeMismatch,
)

Program = Callable[[Communicator], Any]
LINK = CableConditions(delay_s=1e-6)
NAMES = ("h0", "h1", "h2")


def job_of(hosts: int, **options: Any) -> jobs.Job:
    """Return a job of so many hosts at one switch."""
    names = NAMES[:hosts]
    planned = Network(switches=("s1",), hosts=names, cables=tuple(Cable(ends=(one, "s1"), mbit=1e4) for one in names))
    return jobs.Job(jobs.build(planned, LINK, lanes=256), planned, names, LINK, lanes=256, **options)


def join(served: ranks.Ranks, rank: int, size: int) -> Communicator:
    """Connect, as a rank of the program does."""
    return connect(controller="unix:nobody", job="j", rank=rank, world_size=size, link=f"virtual:{served.path}")


def serve(served: ranks.Ranks, *plays: Callable[[], Any], ended: tuple[int, ...] = ()) -> list[Any]:
    """Let ranks play, each on a thread; return what each has returned or raised."""
    found: list[Any] = [None] * len(plays)

    def play(number: int) -> None:
        try:
            found[number] = plays[number]()
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=play, args=(number,)) for number in range(len(plays))]
    for thread in threads:
        thread.start()
    try:
        served.serve(lambda: False, ended.__contains__)
    finally:
        for thread in threads:
            thread.join()
    return found


def run(folder: Path, *programs: Program, options: dict[str, Any] | None = None, **more: Any) -> tuple[list[Any], str]:
    """Run a program on each rank; return what each has returned or raised, and the digest of all frames."""
    folder.mkdir(exist_ok=True)
    job = job_of(len(programs), **(options or {}))
    served = ranks.Ranks(job, str(folder), **more)

    def play(rank: int) -> Any:
        with join(served, rank, len(programs)) as comm:
            return programs[rank](comm)

    return serve(served, *(partial(play, rank) for rank in range(len(programs)))), job.network.digest


def step(comm: Communicator) -> tuple[float, list[Any]]:
    """Compute and add, as a training does; ranks take turns in being late by the wall clock."""
    time.sleep(random.random() * 0.02)
    comm.compute(1e-3 * comm.rank)
    first = np.full(5000, comm.rank + 1.0, np.float32)
    handle = comm.allreduce_async(first)
    comm.compute(2e-3)
    results = [float(handle.wait()[-1]), comm.reduce(np.array([comm.rank]), root=1).tolist()]
    time.sleep(random.random() * 0.02)
    results += [comm.broadcast(np.full(2, comm.rank), root=1).tolist(), comm.allgather(np.array([comm.rank])).tolist()]
    results.append(comm.reduce_scatter(np.arange(2 * comm.world_size)).tolist())
    results.append(comm.allreduce(np.array([comm.rank], np.uint8), "max").tolist())
    results.append(comm.allreduce_async(np.ones((3, 4), np.float32), lanes="each").wait().tolist())
    comm.barrier()
    return comm.now(), results


def test_collectives_work_and_two_runs_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    programs = [step] * 3
    found, digest = run(tmp_path / "a", *programs)
    again, same = run(tmp_path / "b", *programs)
    assert (again, same) == (found, digest)
    for rank, (now, results) in enumerate(found):
        assert now > 4e-3  # the last rank begins after 2 ms, and computes for 2
        assert results == [
            *(6.0, [3] if rank == 1 else [rank], [1, 1], [[0], [1], [2]]),
            *([6 * rank, 6 * rank + 3], [2], [[3.0] * 4] * 3),
        ]


def test_sparse_collectives_work_in_the_background_too(tmp_path: Path) -> None:
    def program(comm: Communicator) -> Any:
        rows = np.array([comm.rank, 4])
        here = comm.allreduce_sparse(rows, np.ones(2, np.float32), 6)
        later = comm.allreduce_sparse_async(rows, np.ones((2, 3), np.float32), 6).wait()
        return here.indices.tolist(), here.values.tolist(), later.values.sum()

    found, _ = run(tmp_path, program, program)
    assert found == [([0, 1, 4], [1.0, 1.0, 2.0], 12.0)] * 2


def test_what_goes_on_while_a_rank_computes_costs_nothing_more(tmp_path: Path) -> None:
    def program(comm: Communicator) -> tuple[float, float]:
        handle = comm.allreduce_async(np.ones(1000, np.float32))
        comm.compute(1e-3)
        handle.wait()
        began = comm.now()
        comm.allreduce(np.ones(1000, np.float32))
        return began, comm.now() - began

    [(began, alone), _], _ = run(tmp_path, program, program)
    assert began == 1e-3
    assert 5e-6 < alone < 100e-6


def test_computation_may_cost_what_the_clock_says(tmp_path: Path) -> None:
    def program(comm: Communicator) -> float:
        began = time.monotonic()
        time.sleep(0.01)
        slept = time.monotonic() - began
        comm.barrier()
        return comm.now() / slept

    found, _ = run(tmp_path, program, program, clock_factor=10.0)
    assert min(found) >= 10.0


@pytest.mark.parametrize("way", ["polls", "sleeps"])
def test_a_rank_that_does_not_come_back_is_named(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "NAMED_AFTER_S", 0.1)
    monkeypatch.setattr(ranks, "_LOOK_S", 0.05)
    over = threading.Event()

    def absent(comm: Communicator) -> str:
        handle = comm.allreduce_async(np.ones(10, np.float32))
        while not over.wait(0.01 if way == "polls" else 5.0) and not handle.is_done:
            pass
        return "polled until the end"

    def here(comm: Communicator) -> Any:
        try:
            return comm.allreduce(np.ones(10, np.float32))
        finally:
            over.set()

    with pytest.raises(LocalError, match=r"rank 1 has not come back for \d+ s; it went on after beginning allreduce"):
        run(tmp_path, here, absent, timeout_s=0.6)
    assert "virtual time stands still at 0 s: rank 1 has not come back" in capfd.readouterr().err


def test_a_rank_that_never_connects_is_named(tmp_path: Path) -> None:
    served = ranks.Ranks(job_of(2), str(tmp_path))
    [told] = serve(served, lambda: join(served, 0, 2), ended=(1,))
    assert isinstance(told, WorkerLost)
    assert "rank 1 has ended and never called connect" in str(told)


def test_a_rank_that_left_or_died_is_no_reason_to_wait(tmp_path: Path) -> None:
    def waits(comm: Communicator) -> None:
        comm.barrier()
        comm.allreduce(np.ones(10, np.float32))

    def fails(comm: Communicator) -> None:
        comm.barrier()
        raise ValueError("of its own")

    for number, (other, says) in enumerate(((lambda comm: comm.barrier(), "has left in order"), (fails, "is gone"))):
        found, _ = run(tmp_path / str(number), waits, other)
        assert isinstance(found[0], WorkerLost)
        assert found[0].rank == 1
        assert says in str(found[0])


def test_ranks_that_call_different_things_hear_of_it(tmp_path: Path) -> None:
    found, _ = run(
        tmp_path, lambda comm: comm.allreduce(np.ones(4, np.float32)), lambda comm: comm.allreduce(np.ones(4, np.int32))
    )
    assert all(isinstance(one, OperationMismatch) for one in found)


def test_overflows_and_time_outs_are_those_of_the_engine(tmp_path: Path) -> None:
    def overflows(comm: Communicator) -> Any:
        return comm.allreduce(np.array([100, 1], np.int8))

    def late(comm: Communicator) -> None:
        comm.compute(5.0)

    found, _ = run(tmp_path / "a", overflows, overflows)
    assert [type(one) for one in found] == [SumOverflow] * 2
    found, _ = run(tmp_path, lambda comm: comm.barrier(), late, options={"timeout_s": 1.0})
    assert isinstance(found[0], CollectiveTimeout)
    assert found[0].missing == (1,)


def test_a_rank_has_one_place_in_a_job_of_its_size(tmp_path: Path) -> None:
    served = ranks.Ranks(job_of(2), str(tmp_path))

    def first() -> None:
        with pytest.raises(WorldSizeMismatch, match="2 ranks, not 3"):
            join(served, 0, 3)
        with join(served, 0, 2) as comm:
            with pytest.raises(RankTaken):
                join(served, 1, 2)
            comm.barrier()

    def second() -> None:
        with join(served, 1, 2) as comm:
            with pytest.raises(UsageError, match="0 seconds or more"):
                comm.compute(-1.0)
            comm.barrier()
            with pytest.raises(UsageError, match="cannot be formed anew"):
                comm.reform()

    assert serve(served, first, second) == [None, None]


def test_a_forked_child_cannot_use_a_communicator_of_virtual_time_and_does_not_disturb(tmp_path: Path) -> None:
    def forks(comm: Communicator) -> tuple[str, float]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            calls: tuple[Callable[[], None], ...] = comm.barrier, lambda: comm.compute(1.0)
            for call in calls:
                try:
                    call()
                except UsageError as error:
                    os.write(writing, str(error).encode())
            comm.close()
            os._exit(0)
        os.waitpid(child, 0)
        said = os.read(reading, 1000).decode()
        os.close(reading)
        os.close(writing)
        comm.barrier()
        return said, comm.now()

    [(said, now), _], _ = run(tmp_path, forks, lambda comm: comm.barrier())
    assert len(re.findall(r"belongs to process \d+", said)) == 2
    assert 0 < now < 1.0


def test_a_signal_handler_may_leave_while_its_thread_waits_for_an_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "virtual"))
        silent.listen()
        link = VirtualLink(str(tmp_path / "virtual"))
        former = signal.signal(signal.SIGALRM, lambda number, frame: link.leave(failed=False))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            assert link.ask(AskCounts()) is None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, former)
        assert link.is_closed
        with pytest.raises(UsageError, match="this communicator is closed"):
            link.tell(AskCounts())


def test_a_lost_rank_is_still_named_in_another_process() -> None:
    copied = pickle.loads(pickle.dumps(WorkerLost("rank 3 is gone", 3)))
    assert (str(copied), copied.rank) == ("rank 3 is gone", 3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"links": "udp"}, "--links cannot be used with --virtual-time"),
        ({"pcap": "x"}, "--pcap cannot be used"),
        ({"virtual_time": False, "clock_factor": 1.0}, "--clock-factor needs --virtual-time"),
        ({"virtual_time": False, "rate": "1gbit"}, "--rate needs --links veth or"),
        ({"workers": 1}, "needs at least 2 ranks"),
        ({"clock_factor": -1.0}, "a clock's factor"),
    ],
)
def test_options_of_real_time_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        RunOptions(**{"command": ["true"], "virtual_time": True, **options})


@pytest.mark.parametrize("culprit", [2, None])
def test_a_rank_that_computes_for_longer_is_named(tmp_path: Path, culprit: int | None) -> None:
    """5 ms in each step of a program whose times are exact: its bucket too, which is one of two that overlap."""

    def program(comm: Communicator) -> None:
        for _ in range(20 if culprit is None else 100):
            comm.compute(20e-3)
            first = comm.allreduce_async(np.ones(1000, np.float32))
            comm.compute(2e-3 + 5e-3 * (comm.rank == culprit))
            last = comm.allreduce_async(np.ones(2000, np.float32))
            first.wait()
            last.wait()

    tmp_path.mkdir(exist_ok=True)
    job = job_of(3)
    served = ranks.Ranks(job, str(tmp_path))

    def play(rank: int) -> None:
        with join(served, rank, 3) as comm:
            program(comm)

    assert serve(served, *(partial(play, rank) for rank in range(3))) == [None] * 3
    told = served.calls.report(job.network.now)
    found = find_late(told)
    if culprit is None:
        assert found is None
        return
    assert found is not None
    assert (found.rank, found.times, found.steps, found.calls_per_step, found.place) == (culprit, 100, 100, 2, 1)
    assert "float32[2000]" in found.kind
    assert found.late_s == pytest.approx(5e-3, rel=0.01)
    assert found.gain == pytest.approx(5 / 22, rel=0.05)
