"""A network that adds arrays, and counts what this would take at a switch: the model of `bench.block_bytes`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, NoReturn, cast

import numpy as np
import numpy.typing as npt

from switchsum_host.api import sparse
from switchsum_host.api.collectives import Collective, Options, Ranks, Way
from switchsum_host.api.expected import Expected, Key
from switchsum_host.api.pairs import PAIRS
from switchsum_host.engine.dtypes import BFLOAT16, FLOAT16, FLOAT32
from switchsum_host.engine.operation import Operation
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.frame import FRAME_BYTES, LANE_BYTES, LaneFormat
from switchsum_protocol.slot_rules import COMBINATIONS

Array = npt.NDArray[Any]

WINDOW: Final = 16
WAIT_S: Final = 600.0


@dataclass
class Counting:
    """A network that adds, and counts the frames that this would take."""

    ranks: int
    lanes: int
    up: npt.NDArray[np.int64] = field(init=False)
    answers: npt.NDArray[np.int64] = field(init=False)
    supports: npt.NDArray[np.int64] = field(init=False)
    down: int = 0
    arrays: list[Array] = field(init=False)
    operation: Operation | None = None

    def __post_init__(self) -> None:
        self.up, self.answers, self.supports = np.zeros((3, self.ranks), np.int64)
        self.arrays = [np.zeros(0)] * self.ranks
        self.sum: Array = np.zeros(0)
        self.meeting = threading.Barrier(self.ranks, self._add, timeout=WAIT_S)

    def allreduce(self, rank: int, array: Array, operation: Operation) -> None:
        """Combine the arrays of all ranks, in place."""
        self.arrays[rank] = array
        self.operation = operation
        self.meeting.wait()
        array[...] = self.sum
        self.meeting.wait()

    def _add(self) -> None:
        operation = self.operation
        if self.arrays[0] is self.sum or operation is None:
            return
        flat = [array.reshape(-1) for array in self.arrays]
        lane_format = operation.format
        per_frame = self.lanes * LaneFormat.INT32.bits // lane_format.bits
        starts = np.arange(0, flat[0].size, per_frame)
        has = np.array([np.logical_or.reduceat(array != 0, starts) for array in flat], np.bool_) | operation.is_dense
        rounds: npt.NDArray[np.bool_] = np.any(has, axis=0)
        first = min(WINDOW, len(starts))
        is_float = operation.code in (FLOAT32, FLOAT16, BFLOAT16)
        # Floats agree on exponents first, in each column; integers' first blocks travel in any case.
        headers = int(rounds.sum()) + first if is_float else int(rounds.sum() + (~rounds[:first]).sum())
        payload = self.lanes * LANE_BYTES
        full = has.sum(axis=1) * (FRAME_BYTES + payload * lane_format.value_bits // lane_format.bits)
        empty = (headers - has.sum(axis=1)) * FRAME_BYTES
        self.up += full + empty
        self.answers += empty
        self.supports += np.int64(0) if is_float or operation.kind == PAIRS else full
        self.down += headers * FRAME_BYTES + (int(rounds.sum()) - self._not_down(operation, has, per_frame)) * payload
        self.sum = reduce(COMBINATIONS[operation.wire_operator], np.array(flat)).reshape(self.arrays[0].shape)
        if operation.operator == "average":
            self.sum = (self.sum / self.ranks).astype(self.sum.dtype)
        self.arrays = [self.sum] * self.ranks

    @staticmethod
    def _not_down(operation: Operation, has: npt.NDArray[np.bool_], per_frame: int) -> int:
        """Return how many frames' lanes the rank that gets most does not get, because they are its own part."""
        each = operation.part // per_frame if operation.gathers else 0
        return min((int(has[rank, rank * each : (rank + 1) * each].sum()) for rank in range(len(has))), default=0)


class _Done:
    """What is under way on a network that counts: nothing."""

    def wait(self) -> None:
        """Return at once."""


class Model:
    """One rank on a network that counts: what `switchsum_host.api.sparse` needs of a communicator."""

    def __init__(self, network: Counting, rank: int) -> None:
        self.rank, self.world_size, self.lanes_per_frame = rank, network.ranks, network.lanes
        self.ranks = Ranks(rank=rank, world_size=network.ranks, lanes_per_frame=network.lanes)
        self.supports, self.ways = np.zeros(3, np.int64), np.zeros(len(Way), np.int64)
        self.expected: dict[Key, Expected] = {}
        self._network = network

    def allreduce(self, array: Array, op: str = "sum", *, lanes: str = "int32", label: str = "") -> Array:
        """Combine arrays in place."""
        self._network.allreduce(self.rank, array, Operation.of(array, operator=op, lanes=lanes))
        return array

    def allreduce_async(self, array: Array, op: str = "sum", *, lanes: str = "int32", **_options: object) -> Any:
        """Combine arrays in place."""
        self.allreduce(array, op, lanes=lanes)
        return _Done()

    def allreduce_sparse(
        self,
        indices: Array,
        values: Array,
        size: int,
        op: str = "sum",
        *,
        lanes: str = "int32",
        keep: int | None = None,
        label: str = "",
    ) -> Any:
        """Add sparse arrays."""
        how = Options(operator=op, lanes=lanes, label=label)
        return sparse.allreduce_sparse(
            cast("Any", self), indices, values, size, how, background=False, keep=keep
        ).result()

    def start(self, collective: Collective, *, stays: bool = False, background: bool = False) -> Any:
        """Combine arrays in place."""
        operation, values, *_ = collective
        assert values is not None
        self._network.allreduce(self.rank, values, operation)
        return _Done()

    def break_off(self, error: SwitchsumError) -> NoReturn:
        """Raise the error."""
        raise error


def on_all(ranks: int, call: Callable[[int], object]) -> None:
    """Call a function for each rank, in threads of their own."""
    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(call, range(ranks)))
