"""Logs by SWITCHSUM_DEBUG: who writes, as text and as JSON, and what is refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchsum_protocol.errors import UsageError
from switchsum_switch.process.logs import VARIABLE, log_as

LOG = logging.getLogger("switchsum.test")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    ours = logging.getLogger("switchsum")
    handlers, propagates = ours.handlers[:], ours.propagate
    yield
    for handler in [one for one in ours.handlers if one not in handlers]:
        ours.removeHandler(handler)
        handler.close()
    ours.propagate = propagates


def test_lines_of_json_name_rank_job_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"info,json,{tmp_path}/log")
    log_as("worker", rank=3, job="digits")
    LOG.info("two\nlines of %s", "text")
    LOG.debug("not said")
    log_as("worker", rank=2, job="digits")
    LOG.info("again")
    first, second = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert {name: first[name] for name in ("level", "role", "job", "rank", "logger", "message")} == {
        "level": "info", "role": "worker", "job": "digits", "rank": 3, "logger": "switchsum.test",
        "message": "two\nlines of text",
    }  # fmt: skip
    assert second["rank"] == 2
    assert second["time"] >= first["time"] > 1e9


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_is_full_is_said_once_and_the_job_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "info,/dev/full")
    log_as("worker", rank=0, job="a")
    for number in range(3):
        logging.getLogger("switchsum.test").info("line %d", number)
    assert capfd.readouterr().err == (f"switchsum: {VARIABLE}: No space left on device: this process logs no more\n")


def test_text_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"debug,{tmp_path}/log")
    log_as("worker", rank=0, job="100%d")
    LOG.debug("said")
    assert (tmp_path / "log").read_text().endswith(" DEBUG 100%d/0 switchsum.test: said\n")


@pytest.mark.parametrize("value", ["loud", "info,xml,path", "info,/nonexistent/log", ",json"])
def test_what_is_refused_names_the_variable(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(UsageError, match=VARIABLE):
        log_as("controller")
