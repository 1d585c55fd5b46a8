"""The cache on disk: in whose directories it may lie, and that what is loaded is what was looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchsum_switch.kernels import cache
from switchsum_switch.kernels.cache import CACHE_VARIABLE, Store, keep, open_directory, open_store

STRANGER = 54321
"""A user that nobody is."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory that the cache is said to lie in; it does not exist, and there is no other place."""
    (tmp_path / "above").mkdir(mode=0o755)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "above" / "cache"))
    monkeypatch.setattr("switchsum_switch.kernels.cache.tempfile.gettempdir", nowhere)
    return tmp_path / "above" / "cache"


def nowhere() -> str:
    raise FileNotFoundError("no usable temporary directory")


def test_the_variable_comes_first(place: Path) -> None:
    store = open_store("a", "b")
    assert store is not None
    assert store.path == place / "a" / "b"


def test_every_level_is_made_for_this_user_alone_whatever_the_umask(place: Path) -> None:
    before = os.umask(0)
    try:
        open_store("kernels", "one")
    finally:
        os.umask(before)
    for folder in (place, place / "kernels", place / "kernels" / "one"):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("level", ["", "kernels", "kernels/one"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_level_that_others_may_write_to_is_refused(place: Path, level: str, mode: int) -> None:
    (place / "kernels" / "one").mkdir(parents=True)
    for folder in (place, place / "kernels", place / "kernels" / "one"):
        folder.chmod(0o755)
    assert open_store("kernels", "one") is not None
    (place / level).chmod(mode)
    assert open_store("kernels", "one") is None


def test_a_level_above_that_others_may_write_to_is_refused(place: Path) -> None:
    place.parent.chmod(0o777)
    assert open_store("kernels") is None
    place.parent.chmod(0o1777)  # as /tmp: others cannot touch what is ours there
    assert open_store("kernels") is not None


@pytest.mark.root
@pytest.mark.parametrize("level", ["above", "above/cache", "above/cache/kernels", "above/cache/kernels/one"])
def test_a_level_of_another_user_is_refused(place: Path, tmp_path: Path, level: str) -> None:
    (place / "kernels" / "one").mkdir(parents=True)
    assert open_store("kernels", "one") is not None
    os.chown(tmp_path / level, STRANGER, STRANGER)
    assert open_store("kernels", "one") is None


@pytest.mark.root
def test_another_user_takes_nothing_of_a_strangers_and_root_nothing_of_his(place: Path, tmp_path: Path) -> None:
    def takes(user: int) -> bool:
        code = (
            "from switchsum_switch.kernels.cache import open_store as o; s = o('kernels'); print(s and s.load('file'))"
        )
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        command = [*drop, sys.executable, "-c", code]
        for folder in (tmp_path, *tmp_path.parents):
            if folder != Path("/") and not folder.stat().st_mode & 0o001:
                opened.append((folder, folder.stat().st_mode))
                folder.chmod(folder.stat().st_mode | 0o011)
        # Without a temporary directory of its own it has no other place either.
        environment = {**os.environ, "TMPDIR": "/proc"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd="/")
        return "b'code'" in done.stdout

    opened: list[tuple[Path, int]] = []
    try:
        store = open_store("kernels")
        assert store is not None
        keep(store, "file", b"code")
        assert takes(0)
        os.chmod(place, 0o755)
        os.chmod(place / "kernels", 0o755)
        os.chmod(place / "kernels" / "file", 0o644)
        if shutil.which("setpriv") and os.access(sys.executable, os.X_OK) and _can_run(STRANGER):
            assert not takes(STRANGER)  # it is root's, and not the stranger's own
        for path in (place, place / "kernels", place / "kernels" / "file"):
            os.chown(path, STRANGER, STRANGER)
        assert not takes(0)
    finally:
        for folder, mode in opened:
            folder.chmod(mode)


def _can_run(user: int) -> bool:
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", sys.executable, "-c", ""]
    return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0


@pytest.mark.root
def test_a_file_of_another_user_is_not_loaded(place: Path) -> None:
    store = open_store("kernels")
    assert store is not None
    keep(store, "file", b"code")
    assert store.load("file") == b"code"
    os.chown(place / "kernels" / "file", STRANGER, STRANGER)
    assert store.load("file") is None


def test_a_link_is_followed_above_the_cache_alone(place: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    place.symlink_to(target)
    assert open_store("kernels") is None
    place.unlink()
    place.mkdir()
    (place / "kernels").symlink_to(target)
    assert open_store("kernels") is None
    (place / "kernels").unlink()
    place.rmdir()
    place.parent.rmdir()
    place.parent.symlink_to(target)
    store = open_store("kernels")
    assert store is not None
    assert store.path == target / "cache" / "kernels"
    (target / "cache" / "kernels" / "file").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"x" * 64)
    assert store.load("file") is None


def test_what_is_loaded_lies_where_was_looked(place: Path, tmp_path: Path) -> None:
    store = open_store("kernels")
    assert store is not None
    keep(store, "file", b"ours")
    place.rename(tmp_path / "away")
    other = open_store("kernels")  # what somebody has put in its place
    assert other is not None
    keep(other, "file", b"theirs")
    assert store.load("file") == b"ours"
    keep(store, "more", b"ours")
    assert (tmp_path / "away" / "kernels" / "more").exists()


def test_a_level_that_may_only_be_passed_through_is_no_obstacle(place: Path) -> None:
    place.parent.chmod(0o711)
    assert open_store("kernels") is not None


def test_a_file_that_others_may_write_is_not_loaded(place: Path) -> None:
    store = open_store("kernels")
    assert store is not None
    keep(store, "file", b"code")
    (place / "kernels" / "file").chmod(0o602)
    assert store.load("file") is None


@pytest.mark.parametrize("damage", [0, 1, 31, 32, 36])
def test_a_flipped_bit_is_noticed(place: Path, damage: int) -> None:
    store = open_store("kernels")
    assert store is not None
    keep(store, "file", b"machine code")
    path = place / "kernels" / "file"
    data = bytearray(path.read_bytes())
    data[damage] ^= 4
    path.write_bytes(data)
    assert store.load("file") is None
    path.write_bytes(data[:damage])
    assert store.load("file") is None


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system with 64 KiB (mark the test `root`)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.root
def test_a_full_disk_costs_one_warning(small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_directory(small_disk / "cache")
    assert keep(store, "small", b"code")
    assert not keep(store, "large", bytes(1 << 20))
    assert not keep(store, "larger", bytes(1 << 21))
    [line] = capsys.readouterr().err.splitlines()
    assert "No space left on device" in line
    assert sorted(os.listdir(store.path)) == ["small"]


@pytest.mark.root
def test_a_disk_that_is_all_but_full_is_passed_over(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(small_disk / "cache"))
    monkeypatch.setattr("switchsum_switch.kernels.cache.tempfile.gettempdir", nowhere)
    store = open_store("kernels")
    assert isinstance(store, Store)  # better than nothing
    assert store.path.is_relative_to(small_disk)
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setattr("switchsum_switch.kernels.cache.tempfile.gettempdir", lambda: str(spare))
    store = open_store("kernels")
    assert store is not None
    assert store.path == spare / f"switchsum-cache-{os.geteuid()}" / "kernels"


def test_without_any_place_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "/proc/nothing/here")
    monkeypatch.setattr("switchsum_switch.kernels.cache.tempfile.gettempdir", nowhere)
    assert open_store("kernels") is None
    assert "/proc/nothing/here" in cache.refusals()[0]


@pytest.mark.root
def test_in_a_namespace_of_one_user_what_belongs_to_root_outside_is_trusted(place: Path) -> None:
    assert open_store("kernels") is not None
    code = "from switchsum_switch.kernels.cache import open_store; s = open_store('kernels'); print(s and s.path)"
    for command in (["unshare", "--user", "--map-root-user"], []):
        done = subprocess.run(
            [*command, sys.executable, "-c", code],
            env={**os.environ, "TMPDIR": "/proc"},
            capture_output=True,
            text=True,
            check=False,
        )
        if command and "unshare" in done.stderr:
            pytest.skip(done.stderr)
        assert done.stdout.strip() == str(place / "kernels"), done.stderr
