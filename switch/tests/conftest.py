"""The test programs on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from switchsum_switch.execution.pipeline import EngineName, Pipeline

from . import p4runtime_rig
from .p4runtime_rig import Client, Rig, config

PROGRAMS = Path(__file__).parent / "programs"
Load = Callable[[str], Pipeline]


@pytest.fixture(params=["interpreter", "native"])
def load(request: pytest.FixtureRequest) -> Load:
    """Return a function that loads a test program by name."""
    engine: EngineName = request.param

    def load_program(name: str) -> Pipeline:
        return Pipeline.load((PROGRAMS / f"{name}.json").read_bytes(), engine=engine)

    return load_program


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    """Yield one P4Runtime server for all tests of a module."""
    yield from p4runtime_rig.rig()


@pytest.fixture(scope="module")
def connection(rig: Rig) -> Client:
    """Return its primary."""
    return rig.primary()


@pytest.fixture
def client(connection: Client) -> Client:
    """Return the primary of a switch whose program is new."""
    connection.set_config(config=config())
    return connection
