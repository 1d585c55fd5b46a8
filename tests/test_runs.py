"""Commands in another terminal find the controller of `switchsum run`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from switchsum.launch import runs
from switchsum_protocol.errors import UsageError


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of this user's sockets."""
    directory = tmp_path / "sockets"
    monkeypatch.setenv("SWITCHSUM_RUNTIME_DIR", str(directory))
    return directory


@contextmanager
def listening(path: Path) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield f"unix:{path}"


def test_the_only_run_is_asked_while_it_runs(directory: Path, tmp_path: Path) -> None:
    own = f"unix:{directory}/controller"
    assert runs.controller_to_ask() == own
    with listening(tmp_path / "one") as controller:
        with runs.findable(controller):
            assert runs.controller_to_ask() == controller
        assert runs.controller_to_ask() == own
    assert not list(directory.iterdir())


def test_of_several_jobs_the_user_chooses(directory: Path, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]  # of processes with one number, as two containers have them
    for folder in folders:
        folder.mkdir(mode=0o700)
    with (
        listening(folders[0] / "controller") as one,
        listening(folders[1] / "controller") as other,
        runs.findable(one),
    ):
        with (
            runs.findable(other),
            pytest.raises(UsageError, match=f"2 jobs .* --controller {one}, --controller {other}"),
        ):
            runs.controller_to_ask()
        assert runs.controller_to_ask() == one


def test_a_controller_of_ones_own_comes_first(directory: Path, tmp_path: Path) -> None:
    with (
        listening(tmp_path / "one") as controller,
        runs.findable(controller),
        listening(directory / "controller") as own,
    ):
        assert runs.controller_to_ask() == own


def test_what_a_killed_run_left_is_no_run(directory: Path, tmp_path: Path) -> None:
    link = directory / "run-1"
    runs.controller_to_ask()  # which makes the directory
    link.symlink_to(tmp_path / "gone")
    assert runs.controller_to_ask() == f"unix:{directory}/controller"
    assert not link.is_symlink()


def test_a_link_that_leads_round_in_a_circle_is_no_run(directory: Path, tmp_path: Path) -> None:
    runs.controller_to_ask()  # which makes the directory
    circle = tmp_path / "circle"
    circle.symlink_to(circle)  # another user's, where a killed run had its folder
    link = directory / "run-1"
    link.symlink_to(circle / "controller")
    assert runs.controller_to_ask() == f"unix:{directory}/controller"
    assert not link.is_symlink()


def test_a_socket_where_others_may_come_is_no_run(directory: Path, tmp_path: Path) -> None:
    runs.controller_to_ask()  # which makes the directory
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o700)
    link = directory / "run-1"
    with listening(shared / "one"):
        link.symlink_to(shared / "one")
        assert runs.controller_to_ask() == f"unix:{shared}/one"
        shared.chmod(0o755)  # as a folder of another user's, in the place of a killed job's
        assert runs.controller_to_ask() == f"unix:{directory}/controller"
    assert not link.is_symlink()


def test_a_run_goes_on_where_nobody_can_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_RUNTIME_DIR", str(tmp_path / "file" / "sockets"))
    (tmp_path / "file").touch()
    with runs.findable("unix:/nowhere"):
        pass
