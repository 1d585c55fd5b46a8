"""What `connect` takes, from arguments and from the environment, before it asks anybody."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_host.connect import connect
from switchsum_protocol.errors import ControllerUnreachable, UsageError


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("world_size", value) for value in (0, -1, 2.0, True, "2")),
        *(("rank", value) for value in (-1, 0.0, None.__class__)),
        *(("timeout_s", value) for value in ("x", 0, float("nan"))),
        ("switch_timeout_s", "x"),
        *(("link", f"udp:127.0.0.1:{port}") for port in ("99999", "\N{SUPERSCRIPT TWO}", "0", ":1", "1" * 5000)),
        *(("link", value) for value in ("udp:a\0b", "packet:\udc80", "udp::1", "smoke:x", "shm:")),
    ],
)
def test_arguments_that_cannot_be_are_refused_before_anybody_is_asked(argument: str, value: Any) -> None:
    good: dict[str, Any] = {"controller": "127.0.0.1:9", "job": "x", "rank": 0, "world_size": 1, "link": "shm:x"}
    with pytest.raises(UsageError):
        connect(**good | {argument: value})


@pytest.mark.parametrize("missing", ["job", "rank", "world_size", "link"])
def test_what_connect_needs_comes_from_arguments_or_environment(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"job": "SWITCHSUM_JOB", "rank": "RANK", "world_size": "WORLD_SIZE", "link": "SWITCHSUM_LINK"}
    values = {"job": "j", "rank": "0", "world_size": "1", "link": "shm:x"}
    for name, variable in variables.items():
        monkeypatch.setenv(variable, values[name])
    monkeypatch.setenv("SWITCHSUM_CONTROLLER", "127.0.0.1:9")
    with pytest.raises(ControllerUnreachable):
        connect(timeout_s=0.1)
    monkeypatch.delenv(variables[missing])
    with pytest.raises(UsageError, match=rf"{missing}.*{variables[missing]}"):
        connect(timeout_s=0.1)


def test_all_that_is_missing_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("SWITCHSUM_JOB", "RANK", "WORLD_SIZE", "SWITCHSUM_LINK"):
        monkeypatch.delenv(variable, raising=False)
    said = (
        r"^this process has no job, world_size and link: .*, which sets SWITCHSUM_JOB, WORLD_SIZE, SWITCHSUM_LINK, or "
    )
    with pytest.raises(UsageError, match=said + r"pass connect\(job=\.\.\., world_size=\.\.\., link=\.\.\.\)$"):
        connect(rank=0)


def test_settings_that_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(UsageError, match="must be of type int, not 'first'"):
        connect(job="j", world_size=1, link="shm:x")
    with pytest.raises(UsageError, match="timeout_s"):
        connect(job="j", rank=0, world_size=1, link="shm:x", timeout_s=0)
    monkeypatch.setenv("SWITCHSUM_CHECKSUM", "yes")
    with pytest.raises(UsageError, match="SWITCHSUM_CHECKSUM must be 0 or 1, not 'yes'"):
        connect(job="j", rank=0, world_size=1, link="shm:x")
