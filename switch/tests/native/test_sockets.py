"""Sockets that only their user can reach, and where they are found."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from switchsum_protocol.errors import LocalError, TransportError, UsageError
from switchsum_switch.connections import serving
from switchsum_switch.connections.serving import allow_many_descriptors, listening_at
from switchsum_switch.process.runtime_directory import (
    MAX_PATH_BYTES,
    RUNTIME_VARIABLE,
    check_owner,
    controller_address,
    distrust,
    p4runtime_address,
    path_of,
    runtime_directory,
)
from switchsum_switch.wires.shared_memory import socket_path

NOBODY = 65534
NOBODYS = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]


def test_everybody_of_a_user_finds_the_same_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUNTIME_VARIABLE, raising=False)
    found = set()
    for session in ("/run/user/1", ""):  # with a session's variables and without
        monkeypatch.setenv("XDG_RUNTIME_DIR", session)
        found.add(runtime_directory())
    assert found == {Path(f"/tmp/switchsum-{os.geteuid()}")}
    status = os.lstat(*found)
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, os.geteuid())


def test_a_directory_that_is_given_holds_all_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNTIME_VARIABLE, f"{tmp_path}/sockets")
    assert controller_address() == f"unix:{tmp_path}/sockets/controller"
    assert p4runtime_address() == f"unix:{tmp_path}/sockets/p4runtime"
    assert socket_path("here") == f"{tmp_path}/sockets/shm-here"
    assert socket_path(f"{tmp_path}/there") == f"{tmp_path}/there"
    assert stat.S_IMODE((tmp_path / "sockets").stat().st_mode) == 0o700


def test_a_directory_that_others_could_use_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_to_all, linked, plain = tmp_path / "open", tmp_path / "link", tmp_path / "plain"
    (tmp_path / "own").mkdir(mode=0o700)
    open_to_all.mkdir()
    open_to_all.chmod(0o750)
    linked.symlink_to(tmp_path / "own")
    plain.touch()
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    (loose / "own").mkdir(mode=0o700)
    for directory, reason in (
        (open_to_all, "others may enter .*chmod 700"),
        (linked, "is no directory"),
        (plain, "exists"),
        (loose / "own", f"others may write to {loose}"),
        (tmp_path / "missing" / "one", "No such file"),
    ):
        monkeypatch.setenv(RUNTIME_VARIABLE, str(directory))
        with pytest.raises(LocalError, match=f"{reason}.*set {RUNTIME_VARIABLE} to another"):
            runtime_directory()
    loose.chmod(0o1777)  # as /tmp: nobody removes what is another's
    assert distrust(loose / "own") is None


@pytest.mark.root
def test_a_name_that_another_user_took_is_left_for_the_sessions_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, session = tmp_path / "taken", tmp_path / "session"
    for directory in (taken, session):
        directory.mkdir(mode=0o700)
    os.chown(taken, NOBODY, NOBODY)
    monkeypatch.setattr(
        "switchsum_switch.process.runtime_directory._candidates", lambda: [taken, session / "switchsum"]
    )
    assert runtime_directory() == session / "switchsum"
    monkeypatch.setattr("switchsum_switch.process.runtime_directory._candidates", lambda: [taken])
    with pytest.raises(LocalError, match=f"belongs to user {NOBODY}"):
        runtime_directory()
    (taken / "below").mkdir(mode=0o700)
    assert distrust(taken / "below") == f"{taken} belongs to user {NOBODY}"


def listen(path: Path) -> socket.socket:
    with listening_at(str(path)):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.bind(str(path))
        made.listen()
    return made


def test_a_socket_is_its_users_and_takes_the_place_of_one_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    mask = os.umask(0)
    try:
        first = listen(path)
        assert os.umask(0) == 0  # as it was
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(TransportError, match="another process listens"):
        listen(path)
    first.close()
    listen(path).close()


def test_what_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("dear diary")
    with pytest.raises(TransportError, match="the file there is not a socket"):
        listen(path)
    assert path.read_text() == "dear diary"
    with pytest.raises(TransportError, match="No such file"):
        listen(tmp_path / "nowhere" / "socket")
    with pytest.raises(TransportError, match=f"at most {MAX_PATH_BYTES} bytes"):
        listen(tmp_path / ("x" * MAX_PATH_BYTES))


def test_of_servers_that_start_together_one_gets_the_address(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    listen(path).close()  # a leftover that all of them find
    made: list[socket.socket] = []
    refused: list[TransportError] = []

    def start() -> None:
        try:
            made.append(listen(path))
        except TransportError as error:
            refused.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), len(refused)) == (1, 7)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(path))
    made[0].close()


@pytest.mark.root
def test_another_user_cannot_connect_nor_take_the_place(tmp_path: Path) -> None:
    place = Path(f"/tmp/switchsum-test-{os.getpid()}")
    place.mkdir(mode=0o1777)
    place.chmod(0o1777)
    try:
        own = listen(place / "own")  # even where everybody may look
        script = f"from socket import *; socket(AF_UNIX, SOCK_SEQPACKET).connect({str(place / 'own')!r})"
        done = subprocess.run(
            [*NOBODYS, sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
        )
        assert "PermissionError" in done.stderr
        own.close()
        with socket.socket(socket.AF_UNIX) as strangers:
            strangers.bind(str(place / "theirs"))
            os.chown(place / "theirs", NOBODY, NOBODY)
            with pytest.raises(TransportError, match=f"belongs to user {NOBODY}"):
                check_owner(str(place / "theirs"))
        check_owner(str(place / "own"))
        check_owner(str(place / "missing"))
    finally:
        for name in ("own", "theirs"):
            (place / name).unlink(missing_ok=True)
        place.rmdir()


def test_names_of_links_that_are_none_are_refused() -> None:
    for name in ("", "a\0b", "\ud800"):
        with pytest.raises(UsageError, match="needs a name or a path"):
            socket_path(name)
    with pytest.raises(TransportError, match="at most"):
        socket_path("x" * 200)


def test_addresses_of_grpc() -> None:
    assert path_of("unix:/a/b") == path_of("unix:///a/b") == "/a/b"
    assert path_of("unix:b") == "b"
    assert path_of("unix-abstract:b") is None
    assert path_of("localhost:1") is None


def test_a_daemon_may_open_as_many_files_as_it_is_allowed() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 64), before[1]))
        allow_many_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(before[1], serving.MAX_DESCRIPTORS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
