"""How ranks meet: what goes wrong on one of them ends in one right sentence on all, and soon."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from support.timing import patience
from switchsum.launch.daemons import Daemon
from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.local import communicators
from switchsum_protocol.errors import CollectiveTimeout, LocalError, SwitchsumError, UsageError, WorkerLost

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch import groups, rendezvous, services  # noqa: E402  (it needs torch)
from switchsum.torch.store import MACHINE, STARTS, Meeting, fetch, gather, tell_error  # noqa: E402  (it needs torch)

dist = torch.distributed
LONG_S = patience(60)


def errors_of(*calls: Any) -> list[SwitchsumError]:
    """Call functions at once; return what each raises, well before the ranks' time-out."""
    began = time.monotonic()

    def raised(call: Any) -> SwitchsumError:
        with pytest.raises(SwitchsumError) as caught:
            call()
        return caught.value

    with ThreadPoolExecutor(len(calls)) as pool:
        found = list(pool.map(raised, calls))
    assert time.monotonic() - began < LONG_S / 2
    return found


def test_ranks_of_other_numbers_of_ranks_say_so() -> None:
    store = dist.HashStore()

    def come(rank: int, size: int) -> None:
        meeting = Meeting(store, rank, size, LONG_S)
        try:
            rendezvous.meet(meeting, pytest.fail)
        except Exception as error:  # as `groups.create` does
            meeting.tell_all(error)
            raise

    first = threading.Event()

    def second() -> None:
        assert first.wait(LONG_S)
        come(1, 3)

    def begin() -> None:
        threading.Timer(0.1, first.set).start()
        come(0, 2)

    waits, other = errors_of(begin, second)
    assert isinstance(other, UsageError)
    assert "rank 1 is one of 3 ranks, and another rank one of 2: give every rank the same WORLD_SIZE" in str(other)
    assert str(waits) == f"rank 1: {other}"


def test_what_the_system_refuses_rank_0_is_told_to_all() -> None:
    store = dist.HashStore()

    def no_room() -> Any:
        raise OSError(28, "No space left on device")

    def first() -> None:
        with pytest.raises(OSError, match="No space"):
            rendezvous.meet(Meeting(store, 0, 2, LONG_S), no_room)
        raise LocalError("as expected")

    _, reported = errors_of(first, lambda: rendezvous.meet(Meeting(store, 1, 2, LONG_S), pytest.fail))
    assert isinstance(reported, LocalError)
    assert "rank 0: OSError: [Errno 28] No space left on device" in str(reported)


@pytest.mark.parametrize("way", ["gather", "fetch"])
def test_whoever_waits_hears_of_a_rank_that_fails(way: str) -> None:
    store = dist.HashStore()
    waiting = {"gather": lambda: gather(Meeting(store, 0, 2, LONG_S), "x")}.get(
        way, lambda: fetch(Meeting(store, 0, 2, LONG_S), "y", "makes it", 1)
    )
    threading.Timer(
        0.1, lambda: Meeting(store, 1, 2, LONG_S).tell_all(UsageError("SWITCHSUM_LANES is 'int12'"))
    ).start()
    (error,) = errors_of(waiting)
    assert isinstance(error, UsageError)
    assert str(error) == "rank 1: SWITCHSUM_LANES is 'int12'"


def test_lanes_that_are_none_are_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setenv("SWITCHSUM_LANES", "int12")
    monkeypatch.setattr(groups, "meet", pytest.fail)
    store = dist.HashStore()
    options = SimpleNamespace(
        global_ranks_in_group=[],
        group_rank=0,
        group_size=2,
        group_id="lanes",
        timeout=timedelta(seconds=LONG_S),
        store=store,
    )
    with pytest.raises(UsageError, match="SWITCHSUM_LANES is 'int12'"):
        groups.create(options, None)


class DeadStore:
    """A store whose server has gone, as torch's client says it."""

    def check(self, *_: object) -> bool:
        raise dist.DistNetworkError("Broken pipe\nException raised from sendBytes at Utils.hpp\nframe #0: c10::Error")

    get = compare_set = check


class DyingStore(DeadStore):
    """A store whose server goes after it has said that a key is set: rank 0 has told why it fails, and has ended."""

    def check(self, *keys: object) -> bool:
        return "switchsum/failed" not in str(keys)


@pytest.mark.parametrize("store", [DeadStore, DyingStore])
def test_a_store_that_has_ended_is_one_sentence(store: type[DeadStore]) -> None:
    meeting = Meeting(store(), 1, 2, LONG_S)
    calls = (lambda: gather(meeting, "x"), lambda: fetch(meeting, "y", "makes it", 0), meeting.agree_on_size)
    for error in errors_of(*calls):
        assert isinstance(error, WorkerLost)
        assert "the store at which the ranks meet has ended" in str(error)
        assert "\n" not in str(error)


def test_services_may_take_longer_than_the_groups_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    store, short_s = dist.HashStore(), 0.2
    store.set(f"{STARTS}/0", "")
    threading.Timer(5 * short_s, lambda: store.set("place", '{"is": "there"}')).start()
    assert fetch(Meeting(store, 1, 2, short_s), "place", "starts them", 0) == {"is": "there"}
    monkeypatch.setenv("SWITCHSUM_START_TIMEOUT", "0.3")
    with pytest.raises(CollectiveTimeout, match=r"rank 0, which starts them.*SWITCHSUM_START_TIMEOUT"):
        fetch(Meeting(store, 1, 2, short_s), "other", "starts them", 0)
    with pytest.raises(CollectiveTimeout, match=r"has not answered for 0\.2.*init_process_group"):
        fetch(Meeting(store, 1, 2, short_s), "other", "starts nothing", 2)


def test_a_rank_that_does_not_come_may_have_another_backend() -> None:
    meeting = Meeting(store := dist.HashStore(), 1, 2, 0.1)
    text = r"rank 0.*: it has not called init_process_group, or with another backend \(init_process_group\(timeout"
    with pytest.raises(CollectiveTimeout, match=text):
        fetch(meeting, "place", "decides", 0, has_machine=True)
    with pytest.raises(CollectiveTimeout, match=text):
        gather(meeting, MACHINE)
    store.set(f"{MACHINE}/0", "here")
    with pytest.raises(CollectiveTimeout) as caught:
        fetch(meeting, "place", "decides", 0, has_machine=True)
    assert "backend" not in str(caught.value)


def test_an_error_of_another_rank_keeps_its_kind() -> None:
    store = dist.HashStore()
    tell_error(Meeting(store, 0, 2, 1.0), "place", UsageError("no link"))
    with pytest.raises(UsageError, match="rank 0: no link"):
        fetch(Meeting(store, 1, 2, 1.0), "place", "decides", 0)


IMPORTS = """
import sys, torch
before = set(sys.modules)
import switchsum.torch.services
print(*set(sys.modules) - before)
import switchsum.torch.groups
print(*set(sys.modules) - before)
"""


def test_a_rank_imports_little_before_it_starts_a_switch_and_no_more_than_its_group_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True, timeout=patience(50)
    )
    first, both = (set(line.split()) for line in done.stdout.splitlines())
    heavy = {"grpc", "typer", "llvmlite", "numba", "switchsum_controller", "switchsum_protocol.rpc"}
    assert first.isdisjoint({*heavy, "switchsum_host"})
    assert "switchsum_host.connect" in both
    unused = {f"switchsum.torch.{name}" for name in ("hooks", "outer", "averaging", "elastic", "compression")}
    assert both.isdisjoint({*heavy - {"grpc", "llvmlite"}, *unused, "switchsum_host.compress"})


@pytest.mark.parametrize(
    ("environment", "rank", "size", "begins"),
    [
        ({"LOCAL_WORLD_SIZE": "4"}, 0, 4, True),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 0, 4, True),
        ({"LOCAL_WORLD_SIZE": "4"}, 1, 4, False),
        ({"LOCAL_WORLD_SIZE": "1"}, 0, 1, False),
        ({"LOCAL_WORLD_SIZE": "2"}, 0, 4, False),  # others are on another machine
        ({}, 0, 4, False),  # nobody says where the others are
        ({"LOCAL_WORLD_SIZE": "4", "SWITCHSUM_CONTROLLER": "unix:/there"}, 0, 4, False),
        ({"LOCAL_WORLD_SIZE": "4", "SWITCHSUM_LINK": "virtual:/there"}, 0, 4, False),
    ],
)
def test_rank_0_starts_early_where_all_ranks_are_on_its_machine_and_have_no_controller(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], rank: int, size: int, begins: bool
) -> None:
    for name in (*services._ON_THIS_MACHINE, *services._NAMES_A_SWITCH):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    happened: list[str] = []
    monkeypatch.setattr(services.LocalServices, "begin_alone", lambda self: happened.append("began"))
    services.begin_early(rank, size)
    assert happened == ["began"] * begins
    [*begun] = services._begun
    assert len(begun) == begins
    services.drop_begun()  # the group was not made
    assert not services._begun
    assert all(not one.scratch.exists() for one in begun)


def test_what_cannot_be_started_early_is_told_to_all_when_they_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in services._NAMES_A_SWITCH:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")

    def no_file(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Daemon, "_start", no_file)
    services.begin_early(0, 2)
    assert not services._begun
    store = dist.HashStore()
    first, second = errors_of(*(partial(rendezvous.meet, Meeting(store, rank, 2, LONG_S)) for rank in range(2)))
    assert isinstance(first, LocalError)
    assert isinstance(second, LocalError)
    assert str(first) == "cannot start switch: [Errno 24] Too many open files"
    assert str(second) == f"rank 0: {first}"


def test_what_was_started_early_is_what_the_group_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.delenv("SWITCHSUM_CONTROLLER", raising=False)
    monkeypatch.delenv("SWITCHSUM_LINK", raising=False)
    began = []

    def begin(self: Any) -> None:
        began.append(self)
        self.p4runtime = "unix:/there"

    monkeypatch.setattr(services.LocalServices, "begin_alone", begin)
    monkeypatch.setattr(services.LocalServices, "await_alone", lambda self: None)
    services.begin_early(0, 2)
    taken = services.start_alone()
    assert began == [taken]
    services.drop_begun()
    assert taken.scratch.exists()  # it is the group's
    other = services.start_alone()
    assert began == [taken, other]
    for one in (taken, other):
        one.stop()


def test_a_group_that_is_left_goes_at_once_and_with_it_threads_and_sockets_of_gloo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that makes groups again and again, as torchft does, would have hundreds of threads otherwise."""
    made = communicators(2, config=ClusterConfig(workers=2, lanes_per_frame=256, window_slots=16, timeout_s=LONG_S))
    place = rendezvous.JobAddress(controller="", link=None, job="left", is_ours=False)
    monkeypatch.setattr(groups, "meet", lambda _: (place, None))
    monkeypatch.setattr(groups, "open_job", lambda meeting, _: made[meeting.rank])
    store, limit = dist.HashStore(), timedelta(seconds=LONG_S)
    with ThreadPoolExecutor(2) as pool:  # gloo's ranks wait for one another
        both = list(pool.map(lambda rank: groups.form(store, rank, 2, limit, "left"), range(2)))
    references = [weakref.ref(group) for group in both]
    gc.collect()
    gc.disable()
    try:
        while both:
            both.pop().shutdown()
        assert [reference() for reference in references] == [None, None]
    finally:
        gc.enable()
