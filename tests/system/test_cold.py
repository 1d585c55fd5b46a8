"""A start without compiled code: what switch and workers run is compiled at the same time."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from switchsum.launch.link_options import Links
from switchsum.launch.local_job import compile_for_workers
from switchsum_host.engine.loop import run
from switchsum_switch.kernels.cache import CACHE_VARIABLE, keep, open_directory, open_store
from switchsum_switch.kernels.loading import name_of
from switchsum_switch.kernels.sources import source_digest
from switchsum_switch.kernels.turns import compiling


class Started:
    """Notes what would be started."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []

    def start(self, _name: str, command: Sequence[str], **options: object) -> None:
        assert options["may_end"]
        self.commands.append(command)


def test_what_workers_run_is_compiled_beside_the_switch_where_it_was_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    started: Any = Started()
    compile_for_workers(started, Links.UDP)
    [command] = started.commands
    assert command[-4:] == ["warm", "--workers", "--links", "udp"]
    store = open_store("kernels", source_digest())
    assert store is not None
    assert keep(store, f"{name_of(run)}.0.object", b"code")  # what a worker needs first, whatever it is called
    compile_for_workers(started, Links.UDP)
    assert started.commands == [command]


@pytest.mark.parametrize(
    ("held", "name"), [("lock", "host.engine.receiving.receive"), ("workers.lock", "switch.daemon.loop._run")]
)
def test_who_compiles_for_switches_does_not_wait_for_who_compiles_for_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], held: str, name: str
) -> None:
    store = open_directory(tmp_path / "cache")
    with (store.path / held).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with compiling(store, name):
            assert "has stopped" not in capsys.readouterr().err
