"""Compressors against plain float64 references of their papers' formulas, over communicators of this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.compress import (
    BlockScaled,
    BlockTopK,
    Compressor,
    DeepGradientCompression,
    ErrorFeedback,
    Exchanged,
    GlobalTopK,
    Packed,
    PowerSgd,
    Qsgd,
    TernGrad,
    Thc,
    ThresholdTopK,
    TopK,
)
from switchsum_protocol.errors import UsageError

from .checks import RANKS

RNG = np.random.default_rng(15)
Array = npt.NDArray[Any]

MAKERS: dict[str, Callable[[], Compressor]] = {
    "top-k": lambda: TopK(0.1),
    "global top-k": lambda: TopK(0.1, kept=0.05),
    "k of all ranks": lambda: GlobalTopK(0.1),
    "ok-topk": lambda: ThresholdTopK(0.1, period=4, kept=0.1),
    "threshold": lambda: ThresholdTopK(0.1, period=4),
    "blocks": lambda: BlockTopK(0.2, block=16),
    "qsgd": lambda: Qsgd(levels=31, bucket=64),
    "terngrad": lambda: TernGrad(bucket=100),
    "packed": Packed,
    "thc": Thc,
    "thc of 4 bits": lambda: Thc(bits=4),
    "int8": lambda: BlockScaled("int8", block=16),
    "powersgd": lambda: PowerSgd(2),
    "dgc": lambda: DeepGradientCompression(0.1, warm_up=2, clip=5.0),
    "feedback": lambda: ErrorFeedback(TopK(0.1)),
}


def gradients(shape: tuple[int, ...] = (20, 30)) -> list[Array]:
    return [(RNG.standard_normal(shape) * 10.0 ** RNG.integers(-2, 1, shape)).astype(np.float32) for _ in range(RANKS)]


def exchange(ranks: list[Communicator], made: Sequence[Compressor], arrays: Sequence[Array]) -> list[Exchanged]:
    """Exchange one gradient on all ranks; check what holds for every compressor."""
    kept = [array.copy() for array in arrays]

    def call(rank: int) -> Exchanged:
        return made[rank].exchange(ranks[rank], "weight", arrays[rank])

    with ThreadPoolExecutor(RANKS) as pool:
        results = list(pool.map(call, range(RANKS)))
    for array, before, result in zip(arrays, kept, results, strict=True):
        np.testing.assert_array_equal(array, before)
        assert result.own.shape == result.mean.shape == array.shape
        assert result.own.dtype == result.mean.dtype == np.float32
        assert result.mean.tobytes() == results[0].mean.tobytes()
    return results


def scale_of(arrays: Sequence[Array]) -> float:
    return max(float(np.abs(array).max()) for array in arrays)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("shape", [(20, 30), (601,), (7,), (1,)])
def test_the_mean_is_that_of_what_ranks_say(ranks: list[Communicator], name: str, shape: tuple[int, ...]) -> None:
    made = [MAKERS[name]() for _ in range(RANKS)]
    for _ in range(3):
        arrays = gradients(shape)
        results = exchange(ranks, made, arrays)
        exact = np.mean([result.own.astype(np.float64) for result in results], axis=0)
        np.testing.assert_allclose(results[0].mean, exact, rtol=1e-5, atol=1e-6 * scale_of(arrays))


@pytest.mark.parametrize("name", MAKERS)
def test_a_state_goes_on_elsewhere(ranks: list[Communicator], name: str) -> None:
    made = [MAKERS[name]() for _ in range(RANKS)]
    for _ in range(3):
        exchange(ranks, made, gradients())
    others = [MAKERS[name]() for _ in range(RANKS)]
    for old, new in zip(made, others, strict=True):
        new.load_state_dict(pickle.loads(pickle.dumps(old.state_dict())))
    arrays = gradients()
    for one, other in zip(exchange(ranks, made, arrays), exchange(ranks, others, arrays), strict=True):
        if name not in ("blocks", "global top-k", "ok-topk"):  # they choose among nearly equal ones at random
            np.testing.assert_array_equal(one.mean, other.mean)
    with pytest.raises(UsageError, match="in its state"):
        made[0].load_state_dict({"nothing": 1})


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("feedback", "dgc")])
def test_nothing_is_lost_with_error_feedback(ranks: list[Communicator], name: str) -> None:
    made = [ErrorFeedback(MAKERS[name]()) for _ in range(RANKS)]
    given = [np.zeros((20, 30)) for _ in range(RANKS)]
    said = [np.zeros((20, 30)) for _ in range(RANKS)]
    for _ in range(6):
        arrays = gradients()
        for rank, result in enumerate(exchange(ranks, made, arrays)):
            given[rank] += arrays[rank]
            said[rank] += result.own
    for rank in range(RANKS):
        np.testing.assert_allclose(said[rank] + made[rank].lost("weight"), given[rank], atol=1e-5 * scale_of(given))


def test_an_exchange_can_be_begun(ranks: list[Communicator]) -> None:
    def call(communicator: Communicator) -> Array:
        return TopK(0.5).begin(communicator, "x", np.array([1, 9, 2, 8], np.float32)).finish()

    with ThreadPoolExecutor(RANKS) as pool:
        for mean in pool.map(call, ranks):
            np.testing.assert_allclose(mean, [0, 9, 0, 8], rtol=1e-6)


def test_topk_is_the_papers(ranks: list[Communicator]) -> None:
    arrays = gradients()
    for array, result in zip(arrays, exchange(ranks, [TopK(0.1) for _ in range(RANKS)], arrays), strict=True):
        order = np.argsort(-np.abs(array.reshape(-1)), kind="stable")
        expected = np.zeros(array.size, np.float32)
        expected[order[:60]] = array.reshape(-1)[order[:60]]
        np.testing.assert_array_equal(result.own.reshape(-1), expected)


def test_the_threshold_is_exact_in_every_period_and_follows_in_between(ranks: list[Communicator]) -> None:
    made = [ThresholdTopK(0.05, period=8) for _ in range(RANKS)]
    for step in range(17):
        arrays = [array * np.float32(1.3**step) for array in gradients((2000,))]
        for array, result in zip(arrays, exchange(ranks, made, arrays), strict=True):
            kept = np.count_nonzero(result.own)
            if step % 8 == 0:
                assert kept == 100
            assert 25 <= kept <= 800
            np.testing.assert_array_equal(result.own[result.own != 0], array[result.own != 0])
            assert np.abs(array[result.own == 0]).max() <= np.abs(result.own[result.own != 0]).min()


def test_the_largest_blocks_of_all_ranks_travel(ranks: list[Communicator]) -> None:
    arrays = [np.zeros(160, np.float32) for _ in range(RANKS)]
    for rank, array in enumerate(arrays):
        array[:] = 0.01
        array[16 * 3 : 16 * 4] = 5
        array[16 * (5 + rank)] = 4  # large on one rank only
        array[16 * 9 :] = 2
    results = exchange(ranks, [BlockTopK(0.2, block=16) for _ in range(RANKS)], arrays)
    for array, result in zip(arrays, results, strict=True):
        expected = np.zeros(160, np.float32)
        for block in (3, 9):
            expected[16 * block : 16 * block + 16] = array[16 * block : 16 * block + 16]
        np.testing.assert_array_equal(result.own, expected)


@pytest.mark.parametrize(
    ("make", "levels", "norm"),
    [
        (lambda: Qsgd(levels=5, bucket=32), 5, "l2"),
        (lambda: Qsgd(levels=3, bucket=32, norm="max"), 3, "max"),
        (lambda: TernGrad(bucket=32), 1, "max"),
    ],
    ids=["qsgd", "qsgd max", "terngrad"],
)
def test_quantisers_are_the_papers_and_right_in_the_mean(
    ranks: list[Communicator], make: Callable[[], Compressor], levels: int, norm: str
) -> None:
    arrays = gradients((64,))
    made = [make() for _ in range(RANKS)]
    buckets = np.array(arrays, np.float64).reshape(RANKS, 2, 32)
    norms = np.abs(buckets).max(axis=2) if norm == "max" else np.sqrt((buckets**2).sum(axis=2))
    unit = np.repeat(norms.max(axis=0) / levels, 32)
    totals = np.zeros((RANKS, 64))
    turns = 100
    for _ in range(turns):
        for rank, result in enumerate(exchange(ranks, made, arrays)):
            level = result.own / unit
            np.testing.assert_allclose(level, np.rint(level), atol=1e-4)
            # The level is one of the two nearest.
            assert (np.abs(result.own - arrays[rank]) <= unit * (1 + 1e-4)).all()
            totals[rank] += result.own
    for rank in range(RANKS):
        # One draw's variance is at most a quarter of a level's square.
        tolerance = 6 * unit / 2 / np.sqrt(turns)
        np.testing.assert_array_less(np.abs(totals[rank] / turns - arrays[rank]), tolerance)


def test_terngrad_clips(ranks: list[Communicator]) -> None:
    arrays = [np.append(np.full(99, 0.1 * (rank + 1)), 50).astype(np.float32) for rank in range(RANKS)]
    results = exchange(ranks, [TernGrad(clip=2.5) for _ in range(RANKS)], arrays)
    deviation = max(float(array.std()) for array in arrays)
    np.testing.assert_allclose(np.unique(np.abs(results[0].own))[-1], 2.5 * deviation, rtol=1e-4)


def test_powersgd_is_the_papers(ranks: list[Communicator]) -> None:
    arrays = gradients((20, 30))
    made = [PowerSgd(2, seed=3) for _ in range(RANKS)]
    right = np.random.default_rng([3, *b"weight"]).standard_normal((30, 2)).astype(np.float32).astype(np.float64)
    mean = np.mean(arrays, axis=0, dtype=np.float64)
    for _ in range(3):
        left = np.linalg.qr(mean @ right)[0]
        right = mean.T @ left
        results = exchange(ranks, made, arrays)
        np.testing.assert_allclose(results[0].mean, left @ right.T, atol=1e-4 * scale_of(arrays))
    # A matrix of that rank comes through as it is.
    thin = [(np.outer(np.arange(20), np.ones(30)) * (rank + 1)).astype(np.float32) for rank in range(RANKS)]
    for _ in range(2):
        results = exchange(ranks, made, thin)
    np.testing.assert_allclose(results[0].mean, np.mean(thin, axis=0), atol=1e-3)


def test_dgc_is_the_papers(ranks: list[Communicator]) -> None:
    made = [DeepGradientCompression(0.05, momentum=0.5, clip=2.0, warm_up=2) for _ in range(RANKS)]
    velocity, accumulated = np.zeros((RANKS, 400)), np.zeros((RANKS, 400))
    assert [round(made[0].density_at(step), 4) for step in range(4)] == [0.3684, 0.1357, 0.05, 0.05]
    for step in range(5):
        arrays = gradients((400,))
        results = exchange(ranks, made, arrays)
        for rank in range(RANKS):
            gradient = arrays[rank].astype(np.float64)
            gradient *= min(1, 2.0 / RANKS**0.5 / np.linalg.norm(gradient))
            velocity[rank] = 0.5 * velocity[rank] + gradient
            accumulated[rank] += velocity[rank]
            k = round(400 * made[0].density_at(step))
            chosen = np.argsort(-np.abs(accumulated[rank]))[:k]
            expected = np.zeros(400)
            expected[chosen] = accumulated[rank][chosen]
            np.testing.assert_allclose(results[rank].own, expected, atol=1e-6)
            velocity[rank][chosen] = 0
            accumulated[rank][chosen] = 0


def test_a_threshold_of_zero_is_not_kept(ranks: list[Communicator]) -> None:
    made = [ThresholdTopK(0.1, period=64) for _ in range(RANKS)]
    few = [np.zeros(1000, np.float32) for _ in range(RANKS)]
    for array in few:
        array[:30] = 1.0  # of the 100 that are wanted
    for result in exchange(ranks, made, few):
        assert np.count_nonzero(result.own) == 30
    for _ in range(2):
        for result in exchange(ranks, made, [array + np.float32(0.1) for array in gradients((1000,))]):
            assert 50 <= np.count_nonzero(result.own) <= 200


def test_bad_settings_and_dtypes_are_refused(ranks: list[Communicator]) -> None:
    makers: list[Callable[[], object]] = [
        lambda: TopK(0),
        lambda: TopK(1.1),
        lambda: ThresholdTopK(0.1, period=0),
        lambda: BlockTopK(0.1, block=0),
        lambda: Qsgd(levels=0),
        lambda: Qsgd(norm="l1"),
        lambda: TernGrad(clip=0.0),
        lambda: BlockScaled("int32"),
        lambda: BlockScaled(block=0),
        lambda: Packed(1),
        lambda: Packed(3, block=0),
        lambda: PowerSgd(0),
        lambda: DeepGradientCompression(0.1, momentum=1.0),
        lambda: DeepGradientCompression(0.1, clip=-1.0),
        lambda: DeepGradientCompression(0.1, warm_up=-1),
    ]
    for make in makers:
        with pytest.raises(UsageError):
            make()
    for make_compressor in MAKERS.values():
        with pytest.raises(UsageError, match="float32"):
            make_compressor().exchange(ranks[0], "x", np.ones(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [np.inf, np.nan])
@pytest.mark.parametrize(
    "make",
    [
        lambda: ErrorFeedback(TopK(0.1)),
        lambda: ErrorFeedback(TopK(0.1, kept=0.02)),
        lambda: ErrorFeedback(ThresholdTopK(0.1, kept=0.1)),
        lambda: ErrorFeedback(BlockTopK(0.2, block=16)),
        lambda: ErrorFeedback(PowerSgd(2)),
        lambda: ErrorFeedback(Thc()),
        lambda: ErrorFeedback(Thc(bits=4)),
        lambda: DeepGradientCompression(0.1, clip=5.0),
    ],
    ids=["top-k", "global top-k", "ok-topk", "blocks", "powersgd", "thc", "thc of 4 bits", "dgc"],
)
def test_a_step_that_scalers_skip_is_seen_by_all_and_leaves_nothing_behind(
    ranks: list[Communicator], make: Callable[[], Compressor], bad: float
) -> None:
    made = [make() for _ in range(RANKS)]
    exchange(ranks, made, gradients())
    before = [one.state_dict() for one in made]
    arrays = gradients()
    arrays[1][18, 20] = bad
    for result in exchange(ranks, made, arrays):
        assert not np.isfinite(result.mean).all()
    for one, state in zip(made, before, strict=True):
        for name, kept in state.items():
            if isinstance(kept, dict) and name not in ("steps", "inner"):
                np.testing.assert_equal(one.state_dict()[name], kept)
    for result in exchange(ranks, made, gradients()):
        assert np.isfinite(result.mean).all()
