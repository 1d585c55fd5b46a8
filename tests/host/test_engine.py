"""The worker engine on a network without faults: what comes out, what travels, what goes wrong."""

from __future__ import annotations

import mmap
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.engine import EngineByHand
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import OPERATIONS, Count
from switchsum_protocol import lane_scales
from switchsum_protocol import lanes as definition
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FRAME_BYTES, Flag, Kind, LaneFormat, Operator
from switchsum_protocol.slot_rules import COMBINATIONS
from switchsum_protocol.wire import Packet, parse_frame
from switchsum_switch.kernels.plain import PLAIN
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

from .checks import bits, check_sums

Array = npt.NDArray[Any]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16, np.dtype(np.int32)]
RNG = np.random.default_rng(11)
FIRST = ClusterConfig().first_slot


def draw(size: int, dtype: np.dtype[Any], workers: int, scale: float = 100.0) -> list[Array]:
    return [(RNG.standard_normal(size) * scale).astype(dtype) for _ in range(workers)]


def recording(cluster: Cluster) -> list[Packet]:
    """Return a list that fills with every contribution that reaches the switch."""
    packets: list[Packet] = []
    process = cluster.network.switch.process

    def record(port: int, frame: bytes) -> Any:
        packet = parse_frame(frame)
        assert packet is not None
        packets.append(packet)
        return process(port, frame)

    cluster.network.switch.process = record  # type: ignore[method-assign]
    return packets


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [1, 7, 8, 9, 64, 65, 1000])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_sums(dtype: np.dtype[Any], size: int, workers: int) -> None:
    cluster = Cluster(ClusterConfig(workers=workers))
    arrays = draw(size, dtype, workers)
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, cluster.config.lanes_per_frame)


@pytest.mark.parametrize("dtype", [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)], ids=str)
@pytest.mark.parametrize("size", [1, 31, 32, 33, 1000])
def test_sums_of_integers_that_fit_and_that_do_not(dtype: np.dtype[Any], size: int) -> None:
    cluster = Cluster(ClusterConfig(workers=3))
    limits = np.iinfo(dtype)
    for low, high in [(0, 40), (limits.min // 3, limits.max // 3), (limits.min, limits.max)]:
        arrays = [RNG.integers(low, high, size, dtype, endpoint=True) for _ in range(3)]
        arrays[0][: size // 2] = 0
        outputs = [array.copy() for array in arrays]
        finished = cluster.allreduce(outputs)
        exact = sum(array.astype(object) for array in arrays)
        fits = (exact >= limits.min) & (exact <= limits.max)
        for output, event in zip(outputs, finished, strict=True):
            np.testing.assert_array_equal(output, np.clip(exact, limits.min, limits.max))
            per_block = cluster.config.lanes_per_frame * 4 // dtype.itemsize
            assert set(event.overflowed) == set((np.flatnonzero(~fits) // per_block).tolist())


ORDERED = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)] + [np.dtype("?"), np.dtype("f8")]


@pytest.mark.parametrize("dtype", ORDERED + DTYPES[:3], ids=str)
@pytest.mark.parametrize("operator", [operator.name.lower() for operator in Operator if operator != Operator.SUM])
def test_every_operator_but_the_sum(dtype: np.dtype[Any], operator: str) -> None:
    known = Operator[operator.upper()]
    if known.is_bitwise and dtype.kind not in "iub":
        return
    cluster = Cluster(ClusterConfig(workers=3))
    rows = RNG.integers(0, 256, (3, 200 * dtype.itemsize), np.uint8)
    if dtype.kind == "b":
        rows &= 1
    arrays = list(rows.view(dtype))
    for array in arrays:
        array[:100] = 0
    outputs = [array.copy() for array in arrays]
    assert not any(event.overflowed for event in cluster.allreduce(outputs, operator))
    with np.errstate(invalid="ignore"):  # signalling NaN
        wide = np.array(arrays, np.float32) if dtype == BFLOAT16 else np.array(arrays)
        expected = reduce(COMBINATIONS[known], wide)
        for output in outputs:
            np.testing.assert_array_equal(output.astype(wide.dtype), expected)
    for output in outputs[1:]:
        np.testing.assert_array_equal(bits(output), bits(outputs[0]))


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("lanes", ["int16", "int8"])
@pytest.mark.parametrize("workers", [1, 4])
def test_narrow_lanes(dtype: np.dtype[Any], lanes: str, workers: int) -> None:
    cluster = Cluster(ClusterConfig(workers=workers))
    packets = recording(cluster)
    arrays = draw(500, dtype, workers)
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs, lanes=lanes)
    value_bits = int(lanes.removeprefix("int"))
    check_sums(arrays, outputs, 16, value_bits=value_bits)
    payloads = [len(packet.payload) for packet in packets if packet.header.flags & Flag.PAYLOAD]
    assert payloads == workers * -(-500 // 16) * [2 * value_bits]
    again = [array.copy() for array in arrays]
    cluster.allreduce(again, lanes=lanes)
    if dtype == np.float32:
        assert (bits(again[0]) != bits(outputs[0])).any()  # another operation draws other numbers


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_values_of_8_bits_are_the_same_where_frames_may_not_grow(dtype: np.dtype[Any]) -> None:
    sums, sizes = set(), []
    for growth_bytes in (None, 512):
        cluster = Cluster(ClusterConfig(workers=3, lanes_per_frame=2048, growth_bytes=growth_bytes))
        packets = recording(cluster)
        arrays = [np.random.default_rng(rank).standard_normal(9000).astype(dtype) for rank in range(3)]
        cluster.allreduce(arrays, lanes="int8")
        sums |= {array.tobytes() for array in arrays}
        sizes.append({len(packet.payload) for packet in packets if packet.header.flags & Flag.PAYLOAD})
    assert len(sums) == 1
    assert sizes == [{4096}, {8192}]


@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("size", [1, 32, 33, 1000])
def test_values_of_4_bits_add_up_in_lanes_of_8(workers: int, size: int) -> None:
    cluster = Cluster(ClusterConfig(workers=workers))
    packets = recording(cluster)
    arrays = [
        np.full(size, -8, np.int8) if workers == 16 else RNG.integers(-8, 8, size, np.int8) for _ in range(workers)
    ]
    arrays[0][0] = 7  # no block is all zero
    outputs = [array.copy() for array in arrays]
    assert not any(event.overflowed for event in cluster.allreduce(outputs, lanes="int4"))
    check_sums(arrays, outputs, 16)
    sent = [
        packet for packet in packets if packet.header.flags & Flag.PAYLOAD and packet.header.kind == Kind.CONTRIBUTION
    ]
    assert {len(packet.payload) for packet in sent} == {2 * cluster.config.lanes_per_frame}
    assert {packet.header.format for packet in sent} == {LaneFormat.NIBBLES}


def test_values_of_4_bits_are_the_same_where_frames_may_not_grow() -> None:
    arrays = [np.random.default_rng(rank).integers(-8, 8, 20_000, np.int8) for rank in range(3)]
    sizes = []
    for growth_bytes in (None, 512):
        cluster = Cluster(ClusterConfig(workers=3, lanes_per_frame=2048, growth_bytes=growth_bytes))
        packets = recording(cluster)
        outputs = [array.copy() for array in arrays]
        cluster.allreduce(outputs, lanes="int4")
        check_sums(arrays, outputs, 2048)
        sizes.append({len(packet.payload) for packet in packets if packet.header.flags & Flag.PAYLOAD})
    assert sizes == [{4096}, {8192}]


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_averages(dtype: np.dtype[Any]) -> None:
    cluster = Cluster(ClusterConfig(workers=3))
    arrays = draw(100, dtype, 3)
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs, "average")
    check_sums(arrays, outputs, cluster.config.lanes_per_frame, "average")


@pytest.mark.parametrize("lanes", ["int32", "int16", "int8"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_averages_of_the_largest_values_are_finite(dtype: np.dtype[Any], lanes: str) -> None:
    facts = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest = float(facts.max)
    for workers in (1, 2, 3, 7):
        cluster = Cluster(ClusterConfig(workers=workers))
        shares = np.random.default_rng(workers).uniform(0.99, 1, 400)
        values = (largest * np.append([1, 1, -1, -1], shares)).astype(dtype)
        arrays = [values.copy() for _ in range(workers)]
        cluster.allreduce(arrays, "average", lanes)
        found = arrays[0].astype(np.float64)
        assert np.abs(found).max() <= largest
        bits = {"int32": 32, "int16": 16, "int8": 8}[lanes]
        step = lane_scales.step(definition.block_exponent(values.astype(np.float32)), workers, bits)
        tolerance = step + float(facts.eps) * largest
        np.testing.assert_allclose(found, values.astype(np.float64), rtol=0, atol=tolerance)


def test_sums_beyond_the_largest_values_are_infinite() -> None:
    for dtype in DTYPES[:3]:
        largest = ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]
        for lanes in ("int32", "int16", "int8"):
            arrays = [np.full(10, largest, dtype) for _ in range(3)]
            Cluster(ClusterConfig(workers=3)).allreduce(arrays, "sum", lanes)
            assert np.isinf(arrays[0].astype(np.float64)).all()


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("lanes", [1, 8, 33])
def test_any_window_and_lane_count(window: int, lanes: int) -> None:
    cluster = Cluster(ClusterConfig(workers=3, window_slots=window, lanes_per_frame=lanes))
    for _ in range(3):
        arrays = draw(int(RNG.integers(1, 200)), DTYPES[0], 3)
        outputs = [array.copy() for array in arrays]
        cluster.allreduce(outputs)
        check_sums(arrays, outputs, lanes)


def test_numbers_run_over_the_end_of_32_bits() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=2, first_number=0xFFFF_FFFA))
    arrays = draw(500, DTYPES[3], 2)
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, 8)
    assert 0 < cluster.workers[0].engine.counts[Count.ROUNDS] > 12


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("blocks", "pattern"), [(1, "random"), (40, "random"), (40, "clustered"), (41, "adversarial")])
def test_only_blocks_that_are_not_zero_travel(dtype: np.dtype[Any], blocks: int, pattern: str) -> None:
    cluster = Cluster(ClusterConfig(workers=3, window_slots=4))
    packets = recording(cluster)
    arrays = draw(blocks * 8, dtype, 3)
    kept = RNG.random((3, blocks)) < 0.3
    if pattern == "clustered":
        kept[:] = False
        kept[:2, 10:19] = True
    elif pattern == "adversarial":  # no two ranks have a block in common, and one column has them all
        kept[:] = False
        kept[np.arange(0, blocks, 4) // 4 % 3, np.arange(0, blocks, 4)] = True
    for array, keep in zip(arrays, kept, strict=True):
        array.reshape(blocks, 8)[~keep] = 0
    filled = np.array([array.reshape(blocks, 8).astype(np.float64).any(axis=1) for array in arrays])
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, 8)
    with_lanes = [packet.header for packet in packets if packet.header.flags & Flag.PAYLOAD]
    sent = {(header.rank, header.block) for header in with_lanes}
    assert sent == {(int(rank), int(block)) for rank, block in np.argwhere(filled)}
    assert len(with_lanes) == len(sent)
    # Besides the union of the blocks, a round for each column of floats; of integers the column's first block.
    columns = min(4, blocks)
    union = set(np.flatnonzero(filled.any(axis=0)).tolist())
    rounds = len(union | set(range(columns))) if dtype == np.int32 else len(union) + columns
    assert cluster.workers[0].engine.counts[Count.ROUNDS] == rounds


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_skipping_costs_a_dense_array_next_to_nothing(dtype: np.dtype[Any]) -> None:
    cluster = Cluster(ClusterConfig(workers=2, lanes_per_frame=256, window_slots=8))
    cluster.allreduce([np.ones(256 * 1000, dtype) for _ in range(2)])
    counts = cluster.workers[0].engine.counts
    assert counts[Count.BYTES_SENT] <= 1.02 * 1000 * (FRAME_BYTES + 1024)
    assert counts[Count.ROUNDS] <= 1000 + 8


def test_zeros_cost_a_round_per_slot_and_come_out_positive() -> None:
    cluster = Cluster(ClusterConfig(workers=2, window_slots=4))
    outputs = [np.full(1000, -0.0, np.float32), np.zeros(1000, np.float32)]
    cluster.allreduce(outputs)
    assert cluster.workers[0].engine.counts[Count.ROUNDS] == 4
    for output in outputs:
        assert not bits(output).any()


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.skipif(PLAIN, reason="plain Python adds half a billion values in a day")
def test_half_a_billion_values_and_no_copy_of_them() -> None:
    cluster = Cluster(ClusterConfig(workers=1, lanes_per_frame=2048, window_slots=4))
    array = np.zeros(550_000_001, np.float32)
    array[[0, -1]] = (1.5, -2.5)
    before = resident_bytes()
    cluster.allreduce([array])
    assert array[[0, 1, -2, -1]].tolist() == [1.5, 0.0, 0.0, -2.5]
    assert cluster.workers[0].engine.counts[Count.ROUNDS] == 4 + 2
    # Zeros of a fresh array have no memory of their own, and reading them gives them none.
    assert resident_bytes() - before < array.nbytes // 10


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_block_that_is_not_finite_reaches_every_rank_as_nan(dtype: np.dtype[Any], value: float) -> None:
    cluster = Cluster(ClusterConfig(workers=3))
    arrays = draw(100, dtype, 3)
    arrays[1][35] = value
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, 8)
    assert np.isnan(outputs[0].astype(np.float32)).sum() == 8


def test_a_sum_beyond_the_dtype_is_infinite() -> None:
    cluster = Cluster(ClusterConfig(workers=2))
    outputs = [np.full(4, 60000, np.float16) for _ in range(2)]
    cluster.allreduce(outputs)
    for output in outputs:
        assert np.isinf(output).all()


def test_integer_sums_that_overflow_are_reported_equally_and_are_the_nearest() -> None:
    cluster = Cluster(ClusterConfig(workers=3, window_slots=2))
    arrays = [np.arange(80, dtype=np.int32) for _ in range(3)]
    for array in arrays[:2]:
        array[[17, 79]] = (2**31 - 1, -(2**31))
    outputs = [array.copy() for array in arrays]
    finished = cluster.allreduce(outputs)
    assert {event.overflowed for event in finished} == {(2, 9)}
    exact = sum(array.astype(np.int64) for array in arrays)
    for output in outputs:
        np.testing.assert_array_equal(output, np.clip(exact, -(2**31), 2**31 - 1))


def test_a_partial_sum_may_overflow() -> None:
    # Which partial sum overflows depends on the order of arrival; some of these do in any order.
    cluster = Cluster(ClusterConfig(workers=4))
    arrays = [np.full(30, sign * 2_000_000_000, np.int32) for sign in (1, 1, -1, -1)]
    arrays[0][3:] = 5
    outputs = [array.copy() for array in arrays]
    assert not any(event.overflowed for event in cluster.allreduce(outputs))
    assert all(worker.engine.counts[Count.OVERFLOWS] > 0 for worker in cluster.workers)
    check_sums(arrays, outputs, 8)


def test_a_switch_that_limits_growth_gets_padding() -> None:
    cluster = Cluster(ClusterConfig(workers=2, lanes_per_frame=256, growth_bytes=512))
    packets = recording(cluster)
    arrays = [np.zeros(2000, np.float32), RNG.standard_normal(2000).astype(np.float32)]
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, 256)
    assert {len(packet.payload) for packet in packets} == {512, 1024}
    assert all(not any(packet.payload) for packet in packets if not packet.header.flags & Flag.PAYLOAD)


def test_operations_overlap_and_finish_whatever_the_order_of_arrival() -> None:
    cluster = Cluster(ClusterConfig(workers=3, window_slots=5))
    inputs = [draw(int(RNG.integers(1, 120)), DTYPES[i % 4], 3) for i in range(60)]
    outputs = [[array.copy() for array in arrays] for arrays in inputs]
    # Each rank submits at its own pace.
    waiting = [list(range(60)) for _ in range(3)]
    serials: dict[tuple[int, int], int] = {}
    while any(waiting):
        rank = int(RNG.choice([rank for rank in range(3) if waiting[rank]]))
        for _ in range(int(RNG.integers(1, 8))):
            if waiting[rank]:
                index = waiting[rank].pop(0)
                serials[rank, index] = cluster.submit(rank, outputs[index][rank])
        until = cluster.clock.now_s + 100e-6
        cluster.run(lambda until=until: min(cluster.network.next_at, *(w.wake_at for w in cluster.workers)) > until)  # type: ignore[misc]
    cluster.run(lambda: all(len(worker.finished) == 60 for worker in cluster.workers))
    assert all(serials[rank, index] == index for rank, index in serials)
    for arrays, results in zip(inputs, outputs, strict=True):
        check_sums(arrays, results, 8)


@pytest.mark.parametrize(("blocks", "count"), [(4, 6), (1, 24), (2, 12), (3, 8)])
def test_operations_in_flight_have_equal_shares_of_the_slots(blocks: int, count: int) -> None:
    # Alone each would use some of 8 slots only; together they use all of them, as one of as many blocks would.
    seconds = []
    for size, operations in ((8 * blocks, count), (8 * blocks * count, 1)):
        cluster = Cluster(ClusterConfig(workers=2, window_slots=8))
        packets = recording(cluster)
        inputs = [draw(size, np.dtype(np.int32), 2) for _ in range(operations)]
        outputs = [[array.copy() for array in arrays] for arrays in inputs]
        for arrays in outputs:
            for rank, array in enumerate(arrays):
                cluster.submit(rank, array)
        cluster.run(lambda cluster=cluster: all(len(one.finished) == operations for one in cluster.workers))  # type: ignore[misc]  # noqa: B023
        seconds.append(cluster.clock.now_s)
        for arrays, results in zip(inputs, outputs, strict=True):
            check_sums(arrays, results, 8)
        with_lanes = [packet.header.slot for packet in packets if packet.header.flags & Flag.PAYLOAD]
        assert Counter(with_lanes) == dict.fromkeys(range(FIRST, FIRST + 8), 2 * blocks * count // 8)
    assert seconds[0] < 2 * seconds[1]  # each begins a column with a round of its own, where one goes on


def test_small_operations_share_the_round_trip() -> None:
    one = Cluster(ClusterConfig(workers=2, window_slots=8))
    one.allreduce(draw(8, DTYPES[0], 2))
    many = Cluster(ClusterConfig(workers=2, window_slots=8))
    for _ in range(8):
        for rank, array in enumerate(draw(8, DTYPES[0], 2)):
            many.submit(rank, array)
    many.run(lambda: all(len(worker.finished) == 8 for worker in many.workers))
    assert many.clock.now_s == pytest.approx(one.clock.now_s)


def test_more_operations_than_the_table_holds_must_wait() -> None:
    cluster = Cluster(ClusterConfig(workers=2))
    arrays = [np.ones(1, np.int32) for _ in range(2)]
    for _ in range(OPERATIONS):
        cluster.submit(0, arrays[0])
    assert cluster.workers[0].engine.is_full
    with pytest.raises(UsageError, match="under way"):
        cluster.submit(0, arrays[0])


def test_a_barrier_waits_for_everybody() -> None:
    cluster = Cluster(ClusterConfig(workers=3))
    barrier = Operation(kind="barrier")
    for worker in cluster.workers[:2]:
        worker.engine.submit(barrier, None, cluster.clock.now_s)
    with pytest.raises(TimeoutError, match="virtual"):
        cluster.run(lambda: any(worker.finished for worker in cluster.workers), limit_s=1.0)
    cluster.workers[2].engine.submit(barrier, None, cluster.clock.now_s)
    cluster.run(lambda: all(worker.finished for worker in cluster.workers))


def test_a_worker_that_was_stopped_for_long_goes_on() -> None:
    cluster = Cluster(ClusterConfig(workers=2, timeout_s=5.0))
    arrays = draw(2000, DTYPES[0], 2)
    outputs = [array.copy() for array in arrays]
    for rank in range(2):
        cluster.submit(rank, outputs[rank])
    with pytest.raises(TimeoutError):
        cluster.run(lambda: False, limit_s=400e-6)
    cluster.clock.advance_to(cluster.clock.now_s + 60.0)
    cluster.run(lambda: all(worker.finished for worker in cluster.workers))
    check_sums(arrays, outputs, 8)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_rows_are_not_written_while_the_transport_reads_them(loss: float) -> None:
    # Results come back long before the transport lets go of the rows; the cluster checks that they stay as they are.
    link = LinkConditions(up=Impairment(loss=loss), down=Impairment(loss=loss, duplication=0.3))
    cluster = Cluster(ClusterConfig(workers=3, window_slots=4, reading_s=3e-3), links=link)
    arrays = draw(600, DTYPES[3], 3)
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs)
    check_sums(arrays, outputs, 8)
    assert all(worker.engine.counts[Count.BLOCKED] > 10 for worker in cluster.workers)


def test_a_transport_may_take_a_part_of_the_queue() -> None:
    cluster = Cluster(ClusterConfig(workers=1, window_slots=8))
    engine = cluster.workers[0].engine
    values = np.ones(64, np.int32)
    engine.submit(Operation.of(values), values, 0.0)
    rows = engine.outgoing()[0].tolist()
    assert rows == [2 * slot + 1 for slot in range(8)]
    lengths = list(range(100, 108))
    engine.outgoing()[1][:] = lengths  # each its own, so that none can stand for another
    for taken, count in ((1, 1), (3, 2), (8, 5)):
        engine.sent(count)
        assert [part.tolist() for part in engine.outgoing()] == [rows[taken:], lengths[taken:]]


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 2},
        {"rank": -1},
        {"world_size": 4097},
        {"window_slots": 0},
        {"window_slots": 9},
        {"lanes_per_frame": 99},
    ],
    ids=str,
)
def test_configurations_that_cannot_work_are_refused(change: dict[str, int]) -> None:
    config = ClusterConfig(workers=2, lanes_per_frame=8, window_slots=8)
    fields = {name: getattr(config.engine(0), name) for name in config.engine(0).__dataclass_fields__} | change
    with pytest.raises(UsageError):
        EngineByHand(type(config.engine(0))(**fields), allocate_rows(16, FRAME_BYTES + 32), LEAD_BYTES)
