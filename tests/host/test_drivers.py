"""All drivers do what a communicator asks of them (`switchsum_host.api.driver`)."""

from __future__ import annotations

import ast
import inspect
import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

import switchsum
import switchsum_host
import switchsum_lab
from support.timing import patience
from switchsum.testing.local import LocalMembership, LocalTransport, communicators
from switchsum.topologies import Cable, Network
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.driver import CommunicatorDriver
from switchsum_host.connect import connect
from switchsum_host.engine.loop import Driver
from switchsum_host.engine.state import OPERATIONS, Count
from switchsum_host.links.virtual import VirtualDriver
from switchsum_host.links.watching import WatchingDriver
from switchsum_lab.simulation import jobs, ranks
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_protocol.errors import CollectiveTimeout

from .checks import engine_of

DRIVERS: Final = {one.__name__: one for one in (Driver, WatchingDriver, VirtualDriver)}
ASKED: Final = [name for name in vars(CommunicatorDriver) if not name.startswith("_")]
COMPUTED_S: Final = 0.25


def on_threads(made: list[Communicator], play: Callable[[Communicator], None]) -> None:
    with ThreadPoolExecutor(len(made)) as pool:
        list(pool.map(play, made))
    for one in made:
        one.close()


def on_loops(folder: Path, play: Callable[[Communicator], None]) -> None:
    on_threads(communicators(2), play)


def on_watched_links(folder: Path, play: Callable[[Communicator], None]) -> None:
    """Have the watching driver take each rank's link for several, of which there is one."""
    made, reported = [], SimpleNamespace(links_down=())
    for one in communicators(2):
        driver = one.queue.driver
        assert isinstance(driver, Driver)
        links: Any = driver.transport
        assert isinstance(links, LocalTransport)
        ways = np.zeros(len(driver.engine.state.slots), np.int64)
        vars(links).update(links=[links], names=["local:"], down=frozenset(), ways=ways, has_rails=False)
        watching = WatchingDriver(driver.engine, links, reported)  # type: ignore[arg-type]
        made.append(Communicator(watching, LocalMembership(), rank=one.rank, world_size=2))
    on_threads(made, play)


def in_virtual_time(folder: Path, play: Callable[[Communicator], None]) -> None:
    names = "h0", "h1"
    planned = Network(switches=("s1",), hosts=names, cables=tuple(Cable(ends=(one, "s1"), mbit=1e4) for one in names))
    link = CableConditions(delay_s=1e-6)
    job = jobs.Job(jobs.build(planned, link, lanes=256), planned, names, link, lanes=256)
    served = ranks.Ranks(job, str(folder))

    def join(rank: int) -> None:
        virtual = f"virtual:{served.path}"
        with connect(controller="unix:nobody", job="j", rank=rank, world_size=2, link=virtual) as comm:
            play(comm)

    with ThreadPoolExecutor(2) as pool:
        played = [pool.submit(join, rank) for rank in range(2)]
        served.serve(lambda: False, lambda rank: played[rank].done())
    for one in played:
        one.result()


PLAYED: Final[dict[str, Callable[[Path, Callable[[Communicator], None]], None]]] = {
    "Driver": on_loops,
    "WatchingDriver": on_watched_links,
    "VirtualDriver": in_virtual_time,
}


def test_every_driver_there_is_is_walked_here() -> None:
    found = set()
    for package in (switchsum, switchsum_host, switchsum_lab):
        texts = (path.read_text() for path in Path(package.__file__ or "").parent.rglob("*.py"))
        for text in texts:
            for one in ast.walk(ast.parse(text)) if "def submit(" in text else ():
                if isinstance(one, ast.ClassDef) and one.name != CommunicatorDriver.__name__:
                    methods = {part.name for part in one.body if isinstance(part, ast.FunctionDef)}
                    if {"submit", "step"} <= methods:
                        found.add(one.name)
    assert found == set(DRIVERS) == set(PLAYED)


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_takes_what_the_protocol_says(name: str) -> None:
    for asked in ASKED:
        ours, theirs = getattr(CommunicatorDriver, asked), getattr(DRIVERS[name], asked, None)
        if callable(ours) and theirs is not None:
            assert list(inspect.signature(theirs).parameters) == list(inspect.signature(ours).parameters), asked


@pytest.mark.parametrize("name", DRIVERS)
def test_a_driver_does_what_a_communicator_asks_of_it(name: str, tmp_path: Path) -> None:
    seen: list[str] = []
    turn = threading.Lock()

    def play(comm: Communicator) -> None:
        driver = comm.queue.driver
        assert type(driver).__name__ == name
        assert [asked for asked in ASKED if not hasattr(driver, asked)] == []
        assert (driver.lanes_per_frame, driver.timeout_s > 0, driver.trace) == (256, True, None)
        assert (driver.submitted, driver.is_full, driver.counts.shape) == (0, False, (len(Count),))
        assert not driver.awaits_switch
        assert not driver.owes_switch
        assert driver.held_slots() == driver.held_slots(earlier=False) == []
        assert driver.moves_alone is (name == "VirtualDriver")
        began = driver.clock()
        driver.compute(COMPUTED_S)
        if driver.moves_alone:
            assert math.isclose(driver.clock() - began, COMPUTED_S)
        handles = [comm.allreduce_async(np.full(1000, number, np.int32)) for number in range(3)]
        assert driver.submitted == 3
        driver.note_wait()
        assert [int(handle.wait()[-1]) for handle in handles] == [0, 2, 4]
        driver.note_departure()
        driver.note_restart()
        assert comm.allreduce(np.full(1000, comm.rank + 1.0, np.float32))[-1] == 3.0
        assert driver.counts[Count.ROUNDS] > 0
        overdue = driver.overdue(1.5)
        assert isinstance(overdue, CollectiveTimeout)
        assert "1.5 s" in str(overdue)
        with turn:
            seen.append(name)

    PLAYED[name](tmp_path, play)
    assert seen == [name, name]


@pytest.mark.parametrize("name", ["Driver", "VirtualDriver"])
def test_a_driver_that_is_full_says_so_until_an_operation_has_ended(name: str, tmp_path: Path) -> None:
    full = threading.Event()

    def play(comm: Communicator) -> None:
        if comm.rank == 1:
            full.wait(patience(20))
        handles = [comm.allreduce_async(np.ones(1, np.int32)) for _ in range(OPERATIONS)]
        if comm.rank == 0:
            assert comm.queue.driver.is_full
            full.set()
        for handle in handles:
            handle.wait()
        assert not comm.queue.driver.is_full

    PLAYED[name](tmp_path, play)


def test_a_wait_that_is_not_seen_is_kept_for_reports() -> None:
    [comm] = communicators(1)
    calls = engine_of(comm).state.core[0]["calls"]
    calls["waits"] = 0
    comm.note_wait()
    assert calls["waits"] == 1
