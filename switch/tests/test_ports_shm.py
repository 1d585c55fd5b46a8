"""Shared-memory ports with workers in processes of their own."""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.timing import patience
from switchsum_host.links import shm as shm_link
from switchsum_host.links.shm import ShmTransport
from switchsum_protocol.errors import TransportError
from switchsum_switch.messages.codec import encode
from switchsum_switch.ports import shm as shm_ports
from switchsum_switch.ports.base import PortTable
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.ports.shm import ShmPorts, worker_address
from switchsum_switch.wires import ring
from switchsum_switch.wires.shared_memory import Answer, Hello, socket_path

from . import shm_worker
from .shm_worker import FRAME, ROWS

GOOD = Hello(rows=4, answer_rows=4, frame_bytes=FRAME)


class Switch:
    """A switch whose program sends every frame back where it came from."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.workers: list[subprocess.Popen[str]] = []
        self.start()

    def start(self) -> None:
        """Start, or be another one under the same name after `ports.close()`."""
        self.table = PortTable()
        self.ports = PortSet(self.table, [ShmPorts(self.name, self.table)], batch_frames=64)

    def worker(self, scene: str, total: int = 0) -> subprocess.Popen[str]:
        command = [sys.executable, shm_worker.__file__, self.name, scene, str(total)]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.workers.append(worker)
        return worker

    def run(self, until: Callable[[], Any], limit_s: float = 50.0) -> None:
        """Echo until something is true."""
        end = time.monotonic() + patience(limit_s)
        while not until():
            assert time.monotonic() < end, self.ports.statistics()
            batch = self.ports.poll()
            if batch.count:
                count = batch.count
                self.ports.transmit(batch.ports[:count], batch.addresses[:count], batch.lengths[:count])
                self.ports.done()
            else:
                self.ports.wait(0.02)

    def joined(self, count: int) -> list[int]:
        """Run until so many ports are up; return their numbers."""
        self.run(lambda: len(self.ports.ports()) == count)
        return [port.number for port in self.ports.ports()]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.communicate()
        self.ports.close()


@pytest.fixture
def switch() -> Iterator[Switch]:
    switch = Switch(f"test-{os.getpid()}")
    yield switch
    switch.close()


def ended(*workers: subprocess.Popen[str]) -> Callable[[], bool]:
    return lambda: all(worker.poll() is not None for worker in workers)


def ended_thread(thread: threading.Thread) -> Callable[[], bool]:
    return lambda: not thread.is_alive()


def lines(worker: subprocess.Popen[str]) -> list[str]:
    assert worker.returncode == 0
    assert worker.stdout is not None
    return worker.stdout.read().splitlines()[1:]


def tell(worker: subprocess.Popen[str]) -> None:
    """Have a worker go on that waits to be told."""
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def traces() -> tuple[list[str], int, int]:
    """Return what links may leave behind in this process: descriptors, mapped memory; and sockets of this machine."""
    descriptors = sorted(os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry))
    maps = Path("/proc/self/maps").read_text().count("switchsum")
    sockets = Path("/proc/net/unix").read_text().count(f"test-{os.getpid()}")
    return [link for link in descriptors if "/proc/" not in link], maps, sockets


def test_every_frame_comes_back_as_it_was(switch: Switch) -> None:
    total = 100_000
    worker = switch.worker("echo", total)
    switch.run(ended(worker))
    lines(worker)
    counts = switch.ports.statistics()[1]
    sent = int(shm_worker.lengths_of(np.arange(total, dtype=np.int64)).sum())
    assert counts == {
        "rx_frames": total,
        "rx_bytes": sent,
        "rx_drops": 0,
        "tx_frames": total,
        "tx_bytes": sent,
        "tx_drops": 0,
    }


def test_workers_that_come_and_go_get_their_own_ports(switch: Switch) -> None:
    workers = [switch.worker("echo_later", 3000) for _ in range(3)]
    staying = switch.worker("stay")
    switch.joined(4)  # a port that is free again goes to the next worker
    for worker in workers:
        tell(worker)
    switch.run(ended(*workers))
    for worker in workers:
        lines(worker)
    (left,) = switch.joined(1)
    counts = switch.ports.statistics()
    assert sorted(counts) == [1, 2, 3, 4]
    assert [count["rx_frames"] for number, count in counts.items() if number != left] == [3000] * 3
    late = switch.worker("echo", 10)
    switch.run(ended(late))
    lines(late)
    assert staying.poll() is None


def test_a_full_ring_drops_and_counts(switch: Switch) -> None:
    total = 1000
    worker = switch.worker("flood", total)
    switch.run(lambda: switch.ports.statistics().get(1, {}).get("rx_frames") == total)
    tell(worker)
    switch.run(ended(worker))
    assert lines(worker) == ["sent", "64"]
    counts = switch.ports.statistics()[1]
    assert (counts["tx_frames"], counts["tx_drops"], counts["rx_drops"]) == (64, total - 64, 0)


def test_descriptors_that_point_nowhere_are_counted_and_do_no_harm(switch: Switch) -> None:
    honest, liar = switch.worker("echo", 5_000), switch.worker("lie")
    switch.run(ended(honest, liar))
    lines(honest)
    assert lines(liar) == ["[77]"]
    drops = {number: counts["rx_drops"] for number, counts in switch.ports.statistics().items()}
    assert (sum(drops.values()), max(drops.values())) == (7, 7)  # the honest one may have gone already, or be at 0


def test_a_worker_whose_indices_make_no_sense_is_dropped_alone(
    switch: Switch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    honest = switch.worker("echo", 5_000)
    switch.joined(1)
    switch.worker("cheat")
    switch.run(lambda: "make no sense" in caplog.text)
    switch.run(ended(honest))
    lines(honest)


def test_a_killed_worker_leaves_nothing_behind(switch: Switch) -> None:
    switch.ports.wait(0)
    before = traces()
    worker = switch.worker("echo", 10_000_000)
    switch.run(lambda: switch.ports.statistics().get(1, {}).get("rx_frames", 0) > 5000)
    assert traces()[1] > before[1]
    worker.send_signal(signal.SIGKILL)
    switch.run(lambda: not switch.ports.ports())
    worker.communicate()
    switch.workers.remove(worker)
    assert traces() == before
    again = switch.worker("stay")
    assert switch.joined(1) == [1]
    assert again.poll() is None


def test_a_worker_is_gone_when_its_process_is_even_if_a_child_lives(switch: Switch) -> None:
    worker = switch.worker("leave_a_child")
    assert switch.joined(1) == [1]
    switch.run(lambda: not switch.ports.ports())
    assert worker.wait(patience(20)) == 0
    assert worker.stdout is not None
    worker.stdout.readline()
    os.kill(int(worker.stdout.readline()), signal.SIGKILL)


def test_a_closed_switch_leaves_nothing_behind() -> None:
    Switch(f"test-{os.getpid()}").close()  # whatever is opened once for all
    before = traces()
    switch = Switch(f"test-{os.getpid()}")
    worker = switch.worker("stay")
    switch.joined(1)
    assert traces() != before
    switch.close()
    assert worker.returncode is not None
    assert traces() == before


def test_two_switches_cannot_have_one_name(switch: Switch) -> None:
    with pytest.raises(TransportError, match=f"another process listens at .*{switch.name}"):
        ShmPorts(switch.name, PortTable())


def test_without_a_switch_the_name_is_told() -> None:
    with pytest.raises(TransportError, match=r"no switch here .* 'nobody'"):
        ShmTransport("nobody", rows=4, frame_bytes=FRAME)


def ask(switch: Switch, hello: bytes) -> str:
    """Return why the switch refuses a hello."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(socket_path(switch.name))
        connection.send(hello)
        connection.setblocking(False)
        answers: list[bytes] = []

        def answered() -> bool:
            try:
                answers.append(connection.recv(4096))
            except BlockingIOError:
                return False
            return True

        switch.run(answered)
    return Answer.decode(answers[0]).error


def test_hellos_are_refused_with_a_reason(switch: Switch) -> None:
    before = traces()
    assert "not a hello" in ask(switch, b"GET / HTTP/1.1")
    assert "not a hello" in ask(switch, b"[" * 4000)
    assert "ring layout is 'other'" in ask(switch, encode(GOOD).replace(GOOD.layout.encode(), b"other"))
    assert "90 to 10240 bytes, not 10241" in ask(switch, encode(Hello(rows=1, answer_rows=1, frame_bytes=10_241)))
    assert "90 to 10240 bytes, not 89" in ask(switch, encode(Hello(rows=1, answer_rows=1, frame_bytes=89)))
    assert switch.ports.ports() == []
    assert traces() == before


def test_a_refusal_reaches_the_worker(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm_ports, "MAX_WORKERS", 0)
    worker = switch.worker("stay")
    switch.run(ended(worker))
    assert worker.returncode == 1


def test_connections_that_say_nothing_stop_nobody(switch: Switch) -> None:
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    for connection in silent:
        connection.connect(socket_path(switch.name))
    worker = switch.worker("echo", 100)
    switch.run(ended(worker))
    lines(worker)
    for connection in silent:
        connection.close()
    switch.run(lambda: not switch.ports.ports())


def test_who_says_nothing_makes_room_for_who_does(switch: Switch) -> None:
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(shm_ports.MAX_PENDING + 8)]
    for connection in silent:
        connection.connect(socket_path(switch.name))
    worker = switch.worker("echo", 100)
    switch.run(ended(worker))
    lines(worker)
    assert "it has said nothing for too long" in Answer.decode(silent[0].recv(4096)).error
    for connection in silent:
        connection.close()


@pytest.mark.root
def test_strangers_who_say_nothing_wait_in_nobodys_way(switch: Switch) -> None:
    path = Path(f"/tmp/switchsum-test-{os.getpid()}.socket")
    ports = ShmPorts(str(path), PortTable())
    path.chmod(0o777)  # as if its directory and its own mode did not keep them out
    script = (
        "import sys; from socket import *; held = [socket(AF_UNIX, SOCK_SEQPACKET) for _ in range(300)]\n"
        f"for one in held: one.connect({str(path)!r})\n"
        "print(held[-1].recv(4096).decode(), flush=True); sys.stdin.read()"
    )
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-I", "-c", script]
    stranger = subprocess.Popen(nobody, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert stranger.stdout is not None
    readable: list[Any] = []
    while not readable:
        ports.service()
        readable, _, _ = select.select([stranger.stdout], [], [], 0.01)
    assert "belongs to user 65534" in stranger.stdout.readline()
    assert not ports._pending
    stranger.communicate("")
    ports.close()
    assert not path.exists()


def test_a_switch_without_descriptors_says_so_and_goes_to_sleep() -> None:
    ports = ShmPorts(f"test-{os.getpid()}", PortTable())
    path = socket_path(f"test-{os.getpid()}")
    clients = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        for client in clients[:2]:
            client.connect(path)
            ports.service()
            assert "too many files are open in the switch" in Answer.decode(client.recv(4096)).error
        os.close(ports._spare)  # as if another thread had taken the one that is kept for this
        ports._spare = -1
        thief = os.dup(0)
        clients[2].connect(path)
        ports.service()
        assert ports._epoll.poll(0) == []  # nothing to wake up for
        os.close(thief)
        ports.service()
        assert "too many files are open in the switch" in Answer.decode(clients[2].recv(4096)).error
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for client in clients:
            client.close()
        ports.close()


def test_addresses_follow_from_the_port() -> None:
    addresses = {worker_address(port) for port in range(511)}
    assert len(addresses) == 511
    assert len({address.mac for address in addresses}) == len({address.ip for address in addresses}) == 511
    assert str(worker_address(3)) == "10.73.0.3:21334 (02:73:77:00:00:03)"


def test_memory_that_cannot_be_mapped_is_named_and_leaves_no_file_open(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[BaseException] = []

    def full(descriptor: int, size: int, **_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def open_link() -> None:
        with pytest.raises(
            TransportError, match=r"cannot map \d+\.\d MB of memory for a link: Cannot allocate memory"
        ) as error:
            ShmTransport(switch.name, rows=ROWS, frame_bytes=FRAME)
        errors.append(error.value)

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(shm_link, "SharedMemory", full)
    opener = threading.Thread(target=open_link, daemon=True)
    opener.start()
    switch.run(ended_thread(opener))
    assert errors
    switch.run(lambda: not switch.ports.ports())
    assert len(os.listdir("/proc/self/fd")) == before


def open_link(switch: Switch) -> ShmTransport:
    """Connect to a switch: the worker is this process too, and shakes hands in a thread while the switch runs here."""
    opened: list[ShmTransport] = []
    opener = threading.Thread(
        target=lambda: opened.append(ShmTransport(switch.name, rows=ROWS, frame_bytes=FRAME)), daemon=True
    )
    opener.start()
    switch.run(lambda: opened)
    opener.join()
    return opened[0]


def run_until_reopened(switch: Switch, link: ShmTransport) -> None:
    before = link.reopened
    while link.reopened == before:
        waiter = threading.Thread(target=link.wait, args=(10,), daemon=True)
        waiter.start()
        switch.run(ended_thread(waiter))


def test_a_link_whose_switch_ends_is_opened_again_when_it_is_back(switch: Switch) -> None:
    link = open_link(switch)
    assert not link.wait(0.01)
    assert link.address == worker_address(1)
    assert link.max_frame_bytes == FRAME
    link.tx_frames[3] = 7
    link.send(np.array([3], np.int32), np.array([60], np.int32))
    switch.ports.close()
    assert not link.wait(10)
    assert not link.wait(10)
    # Another one under its name: the same port, the same rows.
    switch.start()
    run_until_reopened(switch, link)
    assert (link.reopened, link.pushed, link.consumed) == (1, 0, 0)
    assert [port.number for port in switch.ports.ports()] == [1]
    assert (link.tx_frames[3] == 7).all()
    link.send(np.array([3], np.int32), np.array([60], np.int32))
    switch.run(lambda: switch.ports.statistics()[1]["tx_frames"] == 1)
    assert link.receive().lengths.tolist() == [60]
    link.close()
    link.close()


def test_who_comes_back_gets_its_port_although_a_newcomer_was_given_it(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = open_link(switch)
    link.functions()  # a job runs over it: the switch's entries name the port
    for returns_s, port_of_newcomer in ((patience(60.0), 2), (-1.0, 1)):
        monkeypatch.setattr(shm_ports, "RETURN_S", returns_s)
        switch.ports.close()
        assert not link.wait(10)
        switch.start()
        newcomer = open_link(switch)
        assert newcomer.address == worker_address(1)
        if returns_s > 0:
            run_until_reopened(switch, link)
            run_until_reopened(switch, newcomer)
            assert link.address == worker_address(1)
        assert newcomer.address == worker_address(port_of_newcomer)
        newcomer.close()
    link.close()


def test_who_only_asks_for_a_port_gives_way_to_a_worker_whose_job_needs_it(switch: Switch) -> None:
    """Two restarts in a row: an earlier switch had given the port to the newcomer, whom no entry names."""
    link = open_link(switch)
    link.functions()  # a job runs over it
    switch.ports.close()
    assert not link.wait(10)
    switch.start()
    newcomer = open_link(switch)
    switch.ports.close()
    assert not newcomer.wait(10)
    switch.start()
    run_until_reopened(switch, newcomer)
    assert newcomer.address == worker_address(1)
    run_until_reopened(switch, link)
    assert link.address == worker_address(1)
    run_until_reopened(switch, newcomer)
    assert newcomer.address == worker_address(2)
    newcomer.close()
    link.close()


def test_a_worker_who_comes_or_goes_has_the_switch_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[Any] = [ring.lend_rows, ring.abandon]
    for entry in entries:
        monkeypatch.setattr(entry, "signatures", {})
    table = PortTable()
    ports = PortSet(table, [ShmPorts(f"compiles-{os.getpid()}", table)], batch_frames=64)
    try:
        assert [len(entry.signatures) for entry in entries] == [1, 1]
    finally:
        ports.close()
