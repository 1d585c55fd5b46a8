"""Ranks whose compressors differ in any one argument, or in what they exchange, all get the same named error.

The compressors and their arguments come from the package itself, so that a new one is tested, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.local import communicators
from switchsum_host import compress
from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import Compressor, ErrorFeedback, Exchanged, Part, PowerSgd, TopK
from switchsum_protocol.errors import OperationMismatch

from .checks import RANKS, failures, on_all

CLASSES = [
    kind
    for kind in (getattr(compress, name) for name in compress.__all__)
    if isinstance(kind, type) and issubclass(kind, Compressor) and not inspect.isabstract(kind)
]
REQUIRED: dict[str, Any] = {"density": 0.1, "inner": TopK(0.1)}
OTHERS: dict[str, Any] = {
    "inner": TopK(0.2),
    "lanes": "int16",
    "norm": "max",
    "kept": 0.05,
    "clip": 3.0,
    "density": 0.101,
    "momentum": 0.8,
    "bits": 4,
}
"""Another value of an argument of that name; of other numbers one more."""


def arguments_of(kind: type[Compressor]) -> dict[str, Any]:
    """Return all arguments of a compressor as they are unless told otherwise."""
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    return {one.name: REQUIRED.get(one.name, one.default) for one in parameters}


def differing() -> Iterator[Any]:
    """Yield two ranks' compressors that differ in one argument."""
    for kind in CLASSES:
        arguments = arguments_of(kind)
        for name, value in arguments.items():
            other = OTHERS[name] if name in OTHERS else value + 1
            assert other != value
            made = kind(**arguments), kind(**arguments | {name: other})
            yield pytest.param(*made, id=f"{kind.__name__}({name}={other})")
    for one, other_kind in zip(CLASSES, CLASSES[1:] + CLASSES[:1], strict=True):
        yield pytest.param(
            one(**arguments_of(one)),
            other_kind(**arguments_of(other_kind)),
            id=f"{one.__name__}, {other_kind.__name__}",
        )


def check_mismatch(ranks: list[Communicator], call: Callable[[Communicator], object], words: str) -> None:
    """Expect the error on all ranks, whose words name each one's own exchange."""
    for error in failures(ranks, call):
        assert type(error) is OperationMismatch
        assert words in str(error)


@pytest.mark.parametrize(("one", "other"), list(differing()))
def test_other_arguments_on_one_rank(fresh_ranks: list[Communicator], one: Compressor, other: Compressor) -> None:
    gradient = np.random.default_rng(1).standard_normal((20, 30)).astype(np.float32)

    def call(comm: Communicator) -> Exchanged:
        return (other if comm.rank == RANKS - 1 else one).exchange(comm, "weight", gradient)

    for rank, error in enumerate(failures(fresh_ranks, call)):
        assert type(error) is OperationMismatch
        own = other if rank == RANKS - 1 else one
        assert "another rank issued another operation than" in str(error)
        assert f"'s {own!r} of 'weight' [20, 30]" in str(error)


@pytest.mark.parametrize("kind", CLASSES)
def test_other_gradients_on_one_rank(kind: type[Compressor]) -> None:
    parts = (Part(key="a", shape=(20, 30)), Part(key="b", shape=(40,)))
    others = {
        "shape": (Part(key="a", shape=(30, 20)), parts[1]),
        "cut": (Part(key="a", shape=(601,)), Part(key="b", shape=(39,))),
        "key": (parts[0], Part(key="c", shape=(40,))),
        "order": parts[::-1],
        "number": (*parts, Part(key="c", shape=(1,))),
        "none": (),
    }
    for own in others.values():
        ranks = communicators(RANKS)
        try:

            def call(comm: Communicator, own: tuple[Part, ...] = own) -> object:
                mine = own if comm.rank == 1 else parts
                values = np.ones(sum(part.size for part in mine), np.float32)
                made = kind(**arguments_of(kind))
                begin = made.begin_parts if comm.rank == 0 else made.exchange_parts
                return begin(comm, mine, values)

            check_mismatch(ranks, call, kind.__name__)
        finally:
            for rank in ranks:
                rank.close()


def test_a_compressor_of_ones_own_is_compared_too(fresh_ranks: list[Communicator]) -> None:
    class Halves(compress.Compressor):
        def __init__(self, *, times: int = 2) -> None:
            self.times = times

        def _exchange_parts(self, comm: Any, parts: Any, values: Any) -> Exchanged:
            mean = comm.allreduce(values / np.float32(self.times), "average")
            return Exchanged(own=mean, mean=mean)

        def _state(self) -> dict[str, Any]:
            return {}

        def _restore(self, state: dict[str, Any]) -> None:
            pass

    gradient = np.ones(10, np.float32)
    found = on_all(fresh_ranks, lambda comm: ErrorFeedback(Halves()).exchange(comm, "x", gradient).mean)
    assert (found[0] == 0.5).all()
    check_mismatch(
        fresh_ranks,
        lambda comm: ErrorFeedback(Halves(times=comm.rank + 1)).exchange(comm, "x", gradient),
        "Halves(times=",
    )


def test_equal_numbers_of_other_types_are_the_same_argument(ranks: list[Communicator]) -> None:
    gradient = np.random.default_rng(1).standard_normal(100).astype(np.float32)
    twos: list[Any] = [2, np.int64(2), np.float32(2)]
    made = [PowerSgd(rank=twos[0]), PowerSgd(rank=twos[1]), PowerSgd(rank=2)]
    on_all(ranks, lambda comm: made[comm.rank].exchange(comm, "x", gradient))
    densities: list[Any] = [0.5, np.float64(0.5), 0.5]
    on_all(ranks, lambda comm: TopK(densities[comm.rank]).exchange(comm, "y", gradient))
    clips: list[Any] = [2, 2.0, np.float32(2)]
    on_all(ranks, lambda comm: compress.TernGrad(clip=clips[comm.rank]).exchange(comm, "z", gradient))


def test_what_may_differ_is_accepted(ranks: list[Communicator]) -> None:
    """Contents differ, and what each rank remembers of former exchanges."""
    for kind in CLASSES:
        made = [kind(**arguments_of(kind)) for _ in range(RANKS)]
        for step in range(3):
            given = np.random.default_rng(step).standard_normal((RANKS, 200)).astype(np.float32)
            on_all(ranks, partial(_exchange, made, given))


def _exchange(made: list[Compressor], given: npt.NDArray[np.float32], comm: Communicator) -> Exchanged:
    return made[comm.rank].exchange(comm, "x", given[comm.rank])
