"""Commands say what they wait for."""

from __future__ import annotations

import signal
import socket

import pytest

from support.timing import eventually
from switchsum.cli.waiting_client import WaitingClient
from switchsum_protocol.errors import SwitchsumError
from switchsum_switch import notices
from switchsum_switch.process.children import Children


def test_a_long_wait_is_said_and_a_short_one_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ""

    def is_said() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return bool(said)

    monkeypatch.setattr(notices, "QUIET_S", 1000.0)
    with notices.waiting_for("nothing"):
        pass
    monkeypatch.setattr(notices, "QUIET_S", 0.01)
    with notices.waiting_for("the other ranks"):
        assert eventually(is_said)
    assert said == "switchsum: waiting for the other ranks\n"


def test_children_that_do_not_end_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "QUIET_S", 0.01)
    monkeypatch.setattr("switchsum_switch.process.children.STOP_S", 0.5)
    with Children() as children:
        deaf = children.start("rank 3", ["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], prefix=True)
        assert eventually(lambda: "[rank 3]" in capsys.readouterr().out)
    assert deaf.process.returncode == -signal.SIGKILL
    assert "waiting for rank 3 to end" in capsys.readouterr().err


def test_a_controller_that_does_not_answer_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "QUIET_S", 0.01)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with WaitingClient(address, timeout_s=0.5) as client, pytest.raises(SwitchsumError):
            client.list_jobs()
    assert f"waiting for the controller at {address} to answer ListJobs" in capsys.readouterr().err
