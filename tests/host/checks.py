"""What an allreduce must give, computed another way, and calls of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from switchsum_host.api.communicator import Communicator
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.loop import Driver
from switchsum_protocol import lane_scales
from switchsum_protocol import lanes as definition

RANKS = 3
Array = npt.NDArray[Any]
Result = TypeVar("Result")


def on_all(ranks: Sequence[Communicator], function: Callable[[Communicator], Result]) -> list[Result]:
    """Call a function for each rank, in threads of their own."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(function, ranks))


def failures(ranks: Sequence[Communicator], function: Callable[[Communicator], object]) -> list[BaseException]:
    """Return what the function raises on each rank."""

    def call(communicator: Communicator) -> BaseException:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            function(communicator)
        return caught.value

    return on_all(ranks, call)


def engine_of(communicator: Communicator) -> Engine:
    """Return the engine that a communicator's driver runs in this process."""
    driver = communicator.queue.driver
    assert isinstance(driver, Driver)
    return driver.engine


def bits(array: Array) -> Array:
    """View an array as unsigned integers, so that NaN and the sign of zero count."""
    return array.view(f"u{array.dtype.itemsize}")


def check_sums(
    inputs: Sequence[Array], outputs: Sequence[Array], lanes: int, operator: str = "sum", *, value_bits: int = 32
) -> None:
    """Check equal bits on all ranks, integers exactly, floats within the bound that `protocol.lanes` states."""
    for output in outputs[1:]:
        np.testing.assert_array_equal(bits(output), bits(outputs[0]))
    workers = len(inputs)
    if outputs[0].dtype.kind in "iu":
        np.testing.assert_array_equal(outputs[0], sum(array.astype(object) for array in inputs))
        return
    for start in range(0, inputs[0].size, lanes):
        blocks = [array[start : start + lanes].astype(np.float32) for array in inputs]
        check_block(blocks, outputs[0][start : start + lanes], workers if operator == "average" else 1, value_bits)


def check_block(blocks: Sequence[Array], result: Array, divisor: int, value_bits: int = 32) -> None:
    """Check one block of floats."""
    workers = len(blocks)
    exponent = max(definition.block_exponent(block) for block in blocks)
    if exponent == lane_scales.NOT_FINITE:
        assert np.isnan(result.astype(np.float32)).all()
        return
    exact = np.sum([block.astype(np.float64) for block in blocks], axis=0) / divisor
    steps = workers / 2 if value_bits == 32 else workers
    bound = steps * lane_scales.step(exponent, workers, value_bits) / divisor
    with np.errstate(over="ignore"):
        low, high = (
            (exact + sign * (bound + np.abs(exact) * 2.0**-50)).astype(np.float32).astype(result.dtype)
            for sign in (-1, 1)
        )
    # Rounding is monotonic, so the result lies between the rounded ends of the interval.
    wide = result.astype(np.float64)
    assert (wide >= low.astype(np.float64)).all()
    assert (wide <= high.astype(np.float64)).all()
