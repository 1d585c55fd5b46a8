"""Kernels are compiled before the first test, whose deadline is not meant for a compiler; communicators for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from switchsum.testing.engine import BY_HAND
from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.links.warm import warm_up
from switchsum_switch.kernels.outlined import prepare

from .checks import RANKS
from .veth_wire import Wire


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compile what is not compiled yet."""
    if session.items and not session.config.option.collectonly:
        warm_up()
        prepare(BY_HAND)


def _made() -> Iterator[list[Communicator]]:
    made = communicators(RANKS)
    yield made
    for communicator in made:
        communicator.close()


@pytest.fixture(scope="module")
def ranks() -> Iterator[list[Communicator]]:
    """One communicator per rank, for tests that leave them whole."""
    yield from _made()


@pytest.fixture
def fresh_ranks() -> Iterator[list[Communicator]]:
    """The same for one test, which may break them."""
    yield from _made()


@pytest.fixture
def wire(network_namespace: None) -> Iterator[Wire]:
    """A veth pair in a namespace of its own."""
    wire = Wire()
    yield wire
    for link in wire.links:
        link.close()
    wire.ports.close()
