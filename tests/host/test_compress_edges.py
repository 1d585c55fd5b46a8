"""Compressors at the edges of float32, of nothing, and of what is not finite: right, or NaN, and never a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import (
    BlockTopK,
    Compressor,
    DeepGradientCompression,
    ErrorFeedback,
    Exchanged,
    Part,
    PowerSgd,
    Qsgd,
    TernGrad,
    TopK,
)

from .checks import RANKS, on_all
from .test_compress_agreement import CLASSES, arguments_of

Array = npt.NDArray[np.float32]


class Making(NamedTuple):
    """How a compressor is made."""

    make: Callable[[], Compressor]
    kind: type[Compressor]
    is_rough: bool = False
    """It chooses among nearly equal ones by what the bits of the gradient make it draw."""


def making(kind: type[Compressor]) -> Making:
    """Return how a compressor is made with its defaults."""
    return Making(lambda: kind(**arguments_of(kind)), kind, kind is BlockTopK)


MADE = [
    *(pytest.param(making(kind), id=kind.__name__) for kind in CLASSES),
    pytest.param(Making(lambda: Qsgd(norm="max"), Qsgd), id="Qsgd max"),
    pytest.param(Making(lambda: TernGrad(clip=2.5), TernGrad), id="TernGrad clip"),
    pytest.param(Making(lambda: ErrorFeedback(Qsgd()), ErrorFeedback), id="ErrorFeedback Qsgd"),
    pytest.param(Making(lambda: TopK(0.1, kept=0.05), TopK, is_rough=True), id="TopK kept"),
]


def exchange(ranks: list[Communicator], making: Making, given: Array) -> list[Exchanged]:
    """Exchange each rank's row on compressors of its own."""

    def call(comm: Communicator) -> Exchanged:
        return making.make().exchange(comm, "weight", given[comm.rank])

    return on_all(ranks, call)


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    """Make warnings errors in all threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("making", MADE)
@pytest.mark.parametrize("shape", [(0,), (5, 0)])
def test_empty(ranks: list[Communicator], making: Making, shape: tuple[int, ...]) -> None:
    for result in exchange(ranks, making, np.zeros((RANKS, *shape), np.float32)):
        assert result.own.shape == result.mean.shape == shape
    empty = Part(key="empty", shape=shape)

    def call(comm: Communicator) -> list[int]:
        made = making.make()
        sizes = []
        for parts in ((), (empty,), (empty, Part(key="a", shape=(40,))), (Part(key="a", shape=(40,)), empty)):
            values = np.ones(sum(part.size for part in parts), np.float32)
            sizes += [
                made.exchange_parts(comm, parts, values).mean.size,
                made.begin_parts(comm, parts, values).mean.size,
            ]
        return sizes

    for sizes in on_all(ranks, call):
        assert sizes == [0, 0, 0, 0, 40, 40, 40, 40]


@pytest.mark.parametrize("making", MADE)
@pytest.mark.parametrize("power", [60, 100, 120, -83, -90])
def test_a_gradient_times_a_power_of_two_has_an_average_times_that(
    ranks: list[Communicator], making: Making, power: int
) -> None:
    given = np.random.default_rng(3).standard_normal((RANKS, 20, 60)).astype(np.float32)
    given[:, :4] *= 8
    if making.is_rough:
        given[:, 4:] /= 2**20  # so that there is nothing to choose
        given[:, :2] = 100
    base = exchange(ranks, making, given)
    scaled = exchange(ranks, making, np.ldexp(given, power))
    for one, other in zip(base, scaled, strict=True):
        for name in ("own", "mean"):
            expected = np.ldexp(getattr(one, name), power)
            np.testing.assert_allclose(getattr(other, name), expected, rtol=2e-3, atol=np.abs(expected).max() * 2e-3)


@pytest.mark.parametrize("power", [60, 100, -83])
def test_a_clipped_gradient_times_a_power_of_two(ranks: list[Communicator], power: int) -> None:
    given = np.random.default_rng(3).standard_normal((RANKS, 20, 60)).astype(np.float32)
    base, scaled = (
        exchange(ranks, Making(partial(DeepGradientCompression, 0.1, clip=clip), DeepGradientCompression), values)
        for clip, values in ((3.0, given), (3.0 * 2.0**power, np.ldexp(given, power)))
    )
    np.testing.assert_allclose(scaled[0].mean, np.ldexp(base[0].mean, power), rtol=1e-6)


@pytest.mark.parametrize("making", MADE)
@pytest.mark.parametrize("largest", [3.4028235e38, 1e-37, 1e-44])
def test_the_largest_and_the_smallest_values(ranks: list[Communicator], making: Making, largest: float) -> None:
    given = np.random.default_rng(4).uniform(-largest, largest, (RANKS, 600)).astype(np.float32)
    given[:, :2] = largest, -largest
    for result in exchange(ranks, making, given):
        if making.kind is not PowerSgd or largest < 1:  # whose factors are sums of many, and then no numbers
            assert np.isfinite(result.mean).all()
            assert float(np.abs(result.mean).max()) <= largest * 1.5


@pytest.mark.parametrize("making", MADE)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_makes_no_warning(ranks: list[Communicator], making: Making, bad: float) -> None:
    given = np.random.default_rng(5).standard_normal((RANKS, 20, 30)).astype(np.float32)
    given[1, 3, 4] = bad
    results = exchange(ranks, making, given)
    for result in results:
        assert result.mean.tobytes() == results[0].mean.tobytes()
        if not making.is_rough:
            assert not np.isfinite(result.mean).all()
