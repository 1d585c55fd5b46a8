"""Switches that the controller is tried on; the same tests run on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.timing import patience
from switchsum_controller.service import reconciler
from switchsum_controller.switches import client

from .rig import AnySwitch, Bmv2Switch, EmbeddedSwitch, RunningController


@pytest.fixture(autouse=True)
def _patience_with_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have calls wait longer where the machine is slow: for a switch to be connected, and for its answers."""
    monkeypatch.setattr(reconciler, "SWITCH_WAIT_S", patience(reconciler.SWITCH_WAIT_S))
    monkeypatch.setattr(client, "ANSWER_S", patience(client.ANSWER_S))


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedSwitch]:
    """Yield the embedded switch, without a program."""
    made = EmbeddedSwitch(tmp_path)
    yield made
    made.close()


@pytest.fixture
def bmv2(tmp_path: Path) -> Iterator[Bmv2Switch]:
    """Yield BMv2, without a program."""
    made = Bmv2Switch(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def switch(request: pytest.FixtureRequest) -> AnySwitch:
    """Return a switch without a program."""
    made: AnySwitch = request.getfixturevalue(request.param)
    return made


Start = Callable[..., RunningController]


@pytest.fixture
def start(switch: AnySwitch, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a controller for the switch; all are stopped in the end."""
    with ExitStack() as stack:

        def start_controller(**config: object) -> RunningController:
            listen = f"unix:{tmp_path}/controller"
            running = RunningController(switch.address, listen, **config)
            stack.callback(running.stop)
            return running

        yield start_controller
