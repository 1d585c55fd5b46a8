"""Ranks that have missed exchanges: the same bits on all ranks, and averages as good as with equal states.

The compressors come from the package itself, so that a new one is tested, too.  Each way to miss exchanges is played
with each compressor, alone and within `ErrorFeedback`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from switchsum.testing.local import communicators
from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import Compressor, DeepGradientCompression, ErrorFeedback, Exchanged, Thc
from switchsum_protocol.errors import OperationMismatch

from .checks import on_all
from .test_compress_agreement import CLASSES, arguments_of

SHAPE = (32, 40)
BEFORE, AFTER = 3, 4
"""Exchanges before and after some are missed."""
GROUPS: dict[int, list[Communicator]] = {}
"""Communicators by number of ranks, which the tests of this file leave whole."""
SHARE = np.outer(np.sin(np.arange(SHAPE[0])), np.cos(np.arange(SHAPE[1])))
"""What all gradients have in common."""

Ranks = dict[int, Compressor]


@pytest.fixture(scope="module", autouse=True)
def groups() -> Any:
    """Make communicators for 2, 3 and 4 ranks."""
    for size in (2, 3, 4):
        GROUPS[size] = communicators(size)
    yield
    for group in GROUPS.values():
        for one in group:
            one.close()
    GROUPS.clear()


def gradient(rank: int, step: int) -> Any:
    noise = np.random.default_rng([rank, step]).standard_normal(SHAPE)
    return (SHARE + 0.2 * noise).astype(np.float32)


def exchange(ranks: Ranks, step: int, bad: int | None = None) -> list[Exchanged]:
    """Have some ranks of the job exchange their gradients; one of them may have a bad value."""
    names = sorted(ranks)

    def call(comm: Communicator) -> Exchanged:
        rank = names[comm.rank]
        own = gradient(rank, step)
        if rank == bad:
            own[3, 3] = np.inf
        return ranks[rank].exchange(comm, "weight", own)

    return on_all(GROUPS[len(names)], call)


def late(ranks: Ranks, make: Callable[[], Compressor]) -> Ranks:
    for step in (20, 21):
        exchange({rank: ranks[rank] for rank in (0, 2)}, step)
    return ranks


def replaced(ranks: Ranks, make: Callable[[], Compressor]) -> Ranks:
    return ranks | {1: make()}


def newcomer(ranks: Ranks, make: Callable[[], Compressor]) -> Ranks:
    return ranks | {3: make()}


def other_checkpoint(ranks: Ranks, make: Callable[[], Compressor]) -> Ranks:
    kept = copy.deepcopy(ranks[0].state_dict())
    for step in (20, 21):
        exchange(ranks, step)
    ranks[0].load_state_dict(kept)
    return ranks


def skipped(ranks: Ranks, make: Callable[[], Compressor]) -> Ranks:
    exchange(ranks, 20, bad=1)
    return ranks


WAYS = [late, replaced, newcomer, other_checkpoint, skipped]
KINDS: dict[str, Callable[[], Compressor]] = {}
for kind in CLASSES:
    KINDS[kind.__name__] = lambda kind=kind: kind(**arguments_of(kind))  # type: ignore[misc]
    if kind not in (ErrorFeedback, DeepGradientCompression):  # the latter keeps what is lost by itself
        KINDS[f"ErrorFeedback({kind.__name__})"] = lambda kind=kind: ErrorFeedback(  # type: ignore[misc]
            kind(**arguments_of(kind))
        )
KINDS["Thc(bits=4)"] = lambda: Thc(bits=4)


def trained(make: Callable[[], Compressor]) -> Ranks:
    ranks = {rank: make() for rank in range(3)}
    for step in range(BEFORE):
        exchange(ranks, step)
    return ranks


def error_of(ranks: Ranks) -> float:
    """Return the relative error of the sum of some averages, each of which has the same bits on all ranks."""
    total = np.zeros(SHAPE)
    for step in range(30, 30 + AFTER):
        found = exchange(ranks, step)
        assert len({one.mean.tobytes() for one in found}) == 1
        total += found[0].mean
    exact = np.mean([gradient(rank, step) for rank in ranks for step in range(30, 30 + AFTER)], axis=0) * AFTER
    return float(np.linalg.norm(total - exact) / np.linalg.norm(exact))


@cache
def with_equal_states(name: str, ranks: int) -> float:
    """Return the larger error of two: all ranks have taken all exchanges, or all are new."""
    made = trained(KINDS[name])
    return max(error_of({rank: copy.deepcopy(one) for rank in range(ranks)}) for one in (made[0], KINDS[name]()))


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_averages_are_as_good_as_with_equal_states(name: str, way: Callable[..., Ranks]) -> None:
    make = KINDS[name]
    found = error_of(way(trained(make), make))
    if "DeepGradientCompression" not in name:  # which sums up a velocity: that is no average of gradients
        assert found <= 1.25 * with_equal_states(name, 4 if way is newcomer else 3) + 0.02


class Drift(Compressor):
    """Adds what it has counted: ranks whose counts differ must not go on."""

    def __init__(self) -> None:
        self.count = 0

    def _exchange_parts(self, comm: Any, parts: Any, values: Any) -> Exchanged:
        self.count += 1
        mean = comm.allreduce(values + np.float32(self.count), "average")
        return Exchanged(own=mean, mean=mean)

    def _state(self) -> dict[str, Any]:
        return {"count": self.count}

    def _restore(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


@pytest.mark.parametrize("wrap", [lambda: Drift(), lambda: ErrorFeedback(Drift())], ids=["alone", "within another"])  # noqa: PLW0108
def test_state_that_nobody_says_may_differ_is_compared(wrap: Callable[[], Compressor]) -> None:
    ranks = communicators(2)

    def call(comm: Communicator) -> str:
        mine = wrap()
        mine.exchange(comm, "weight", gradient(0, 0))
        mine.exchange(comm, "weight", gradient(0, 1))
        if comm.rank == 1:
            mine.load_state_dict(wrap().state_dict())
        with pytest.raises(OperationMismatch) as caught:
            mine.exchange(comm, "weight", gradient(0, 2))
        return str(caught.value)

    assert all("count as kept" in error for error in on_all(ranks, call))
    for one in ranks:
        one.close()


@pytest.mark.parametrize("name", KINDS)
def test_all_that_a_compressor_keeps_is_in_its_state_and_compared_or_says_why_not(name: str) -> None:
    made = KINDS[name]()
    exchange({0: made, 1: KINDS[name]()}, 0)
    state, arguments = made.state_dict(), dict(made._arguments)
    assert all(made.ranks_may_differ.values())
    assert made.ranks_may_differ.keys() <= state.keys()
    for field, value in vars(made).items():
        if field == "_arguments":
            continue
        kept, fresh = field.removeprefix("_"), vars(KINDS[name]())[field]
        # Else it follows from the arguments, which are compared, and is what it was when the compressor was made.
        assert kept in state or repr(value) == repr(fresh), f"{name} keeps {field}, which no checkpoint has"
    parameters = list(inspect.signature(type(made).__init__).parameters)[1:]
    assert list(arguments) == parameters
    assert all(f"{one}=" in repr(made) for one in parameters)
