"""A launcher waits for as long as what it has started makes progress."""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum.launch.options import RunOptions
from switchsum_protocol.errors import LocalError
from switchsum_switch.process.children import Children
from switchsum_switch.process.ready import READY_FD, await_ready

ROOT = Path(__file__).parents[2]

COMPILES = """
import sys, time
from switchsum_switch.process import ready
from switchsum_switch.kernels.turns import _turn
ready.report_progress()
for second in range(int(sys.argv[1])):
    time.sleep(0.25)
    _turn.tell(f"compiling: {second} done")
if len(sys.argv) > 2:
    time.sleep(60)
ready.announce(address="here")
"""


def start(*arguments: str, patience_s: float) -> dict[str, object]:
    reading, writing = os.pipe()
    with Children() as children:
        child = children.start(
            "switch",
            [sys.executable, "-c", COMPILES, *arguments],
            environment={**os.environ, READY_FD: str(writing)},
            prefix=True,
            pass_fds=[writing],
        )
        os.close(writing)
        try:
            return await_ready(child, reading, patience_s)
        finally:
            os.close(reading)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_patience_begins_anew_with_each_word_of_who_compiles() -> None:
    began = time.monotonic()
    assert start("60", patience_s=12.0) == {"address": "here"}  # 15 s and more
    assert time.monotonic() - began > 12.0


def test_one_that_falls_silent_is_given_up_with_its_last_word() -> None:
    with pytest.raises(LocalError, match=r"the switch was not ready after 8 s, last: compiling: 0 done"):
        start("1", "and sleeps", patience_s=8.0)


def test_mininet_hears_progress_and_does_not_take_it_for_readiness(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "mininet"))
    try:
        daemons = importlib.import_module("daemons")
    finally:
        sys.path.remove(str(ROOT / "mininet"))
    daemon = daemons.Daemon("switch", [sys.executable, "-c", COMPILES, "2"], tmp_path / "log")
    heard = [daemon.heard_s]
    try:
        while not daemon.is_ready(wait_s=0.05):
            assert not daemon.has_ended(), daemon.explain()
            heard.append(daemon.heard_s)
    finally:
        daemon.stop()
    assert len(set(heard)) >= 2


def test_warm_says_why_it_would_be_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchsum_switch.kernels.loading.kernel_store", lambda: None)
    monkeypatch.setenv("SWITCHSUM_CACHE_DIR", "/proc/none")
    done = CliRunner().invoke(application(), ["warm"])
    assert isinstance(done.exception, LocalError)
    assert "/proc/none" in str(done.exception)


def test_warm_goes_into_a_namespace_before_it_compiles_for_any_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """In there the command starts again, and the loopback is up: the session of a later link would find it down."""
    done: list[str] = []

    def run(options: RunOptions) -> int:
        done.append(options.links)
        return 0

    monkeypatch.setattr("switchsum.launch.wires.enter_namespace", lambda: done.append("namespace"))
    monkeypatch.setattr("switchsum.launch.local_job.run", run)
    monkeypatch.setattr("switchsum_switch.execution.pipeline.Pipeline.load", lambda _: None)
    links = ("shm", "udp", "veth")
    result = CliRunner().invoke(application(), ["warm", *(word for link in links for word in ("--links", link))])
    assert (result.exit_code, done) == (0, ["namespace", *links])
