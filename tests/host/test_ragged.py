"""Gathering of parts that differ in length: what comes out, what is refused, and where parts lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchsum.testing import on_ranks
from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum.testing.tree import Tree
from switchsum_host.api import ragged
from switchsum_host.api.collectives import Ranks
from switchsum_host.api.communicator import Communicator
from switchsum_protocol.errors import OperationMismatch, UnsupportedDtype, UsageError

from .checks import RANKS, failures, on_all
from .moved import without_repeats

Array = npt.NDArray[Any]
LENGTHS = st.lists(st.integers(0, 3000), min_size=RANKS, max_size=RANKS)


@settings(max_examples=40, deadline=None)
@given(
    lengths=LENGTHS,
    dtype=st.sampled_from(["u1", "f2", "f4", ">i8", "c16", "i2,f8"]),
    row=st.sampled_from([(), (3,), (0,), (2, 2)]),
    is_known=st.booleans(),
    seed=st.integers(0, 1 << 32),
)
def test_each_rank_gets_all_parts_bit_by_bit(
    ranks: list[Communicator], lengths: list[int], dtype: str, row: tuple[int, ...], is_known: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    arrays = [
        np.frombuffer(random.bytes(length * int(np.prod(row)) * kind.itemsize), kind).reshape(length, *row)
        for length in lengths
    ]
    sizes = lengths if is_known else None
    for parts in on_all(ranks, lambda one: one.allgatherv(arrays[one.rank], sizes=sizes)):
        for part, array in zip(parts, arrays, strict=True):
            assert (part.dtype, part.shape) == (array.dtype, array.shape)
            assert part.tobytes() == array.tobytes()
            assert part.flags.writeable


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=20), st.sampled_from([64, 1024]))
def test_no_two_parts_share_a_byte(octets: list[int], frame: int) -> None:
    made = ragged.layout(octets, frame)
    has = np.zeros(made.size, np.int64)
    for rank, length in enumerate(octets):
        inside = min(made.inside[rank], length)
        has[rank * made.region : rank * made.region + inside] += 1
        has[made.ends[rank] : made.ends[rank] + length - inside] += 1
        assert inside <= made.region
        assert made.ends[rank] % 8 == 0
    assert has.max(initial=0) <= 1
    assert has.sum() == sum(octets)
    assert made.size <= 5 * (sum(octets) + 8 * len(octets))


def test_frames_are_as_few_as_in_either_of_the_plain_layouts() -> None:
    random = np.random.default_rng(5)
    for _ in range(200):
        octets = random.integers(3000, 6000, 6).tolist()
        apart = [-(-length // 1024) for length in octets]
        together = -(-sum(-(-length // 8) * 8 for length in octets) // 1024)
        assert ragged.layout(octets, 1024).frames_down <= min(sum(apart) - min(apart), together)


def test_a_rank_does_not_get_whole_frames_of_its_own(ranks: list[Communicator]) -> None:
    frames = (40, 4, 0)
    arrays = [np.full(count * 1024, 1, np.uint8) for count in frames]

    def call(one: Communicator) -> float:
        before = one.statistics()
        one.allgatherv(arrays[one.rank], sizes=[1024 * count for count in frames])
        return without_repeats(before, one.statistics())[1]

    for rank, received in enumerate(on_all(ranks, call)):
        others = 1024 * (sum(frames) - frames[rank])
        # A header for each round, of which there are at most as many as regions have frames, or the window has slots.
        assert others <= received < others + 3 * 41 * 120


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("no axis", UsageError),
        ("too few sizes", UsageError),
        ("another size", UsageError),
        ("negative size", UsageError),
        ("objects", UnsupportedDtype),
    ],
)
def test_what_is_refused(kind: str, error: type[Exception]) -> None:
    def call(one: Communicator) -> str:
        array: Array = np.ones(3)
        sizes = None
        match kind:
            case "no axis":
                array = np.array(1.0)
            case "too few sizes":
                sizes = [3]
            case "another size":
                sizes = [4, 4]
            case "negative size":
                sizes = [3, -3] if one.rank == 0 else [-3, 3]
            case "objects":
                array = np.array([None])
        with pytest.raises(error) as caught:
            one.allgatherv(array, sizes=sizes)
        return str(caught.value)

    assert all(on_ranks(2, call))


@pytest.mark.parametrize("kind", ["dtype", "row", "sizes", "label"])
def test_ranks_that_differ_hear_of_it(fresh_ranks: list[Communicator], kind: str) -> None:
    def call(one: Communicator) -> None:
        is_other = one.rank == 1
        array = np.ones((3, 3 if is_other and kind == "row" else 2), "f8" if is_other and kind == "dtype" else "f4")
        sizes = None if kind != "sizes" else [3, 3, 5] if one.rank != 2 else [3, 4, 3]
        one.allgatherv(array, sizes=sizes, label="b" if is_other and kind == "label" else "a")

    assert [type(error) for error in failures(fresh_ranks, call)] == [OperationMismatch] * RANKS


@pytest.mark.parametrize("leaves", [0, 2])
def test_parts_and_ends_come_through_loss(leaves: int) -> None:
    workers, lanes = 4, 8
    config = ClusterConfig(workers=workers, lanes_per_frame=lanes, window_slots=8)
    bad = Impairment(loss=0.05, duplication=0.05, reordering=0.05)
    tree = Tree(config, leaves=leaves, loss=0.05, seed=3) if leaves else None
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), seed=3, switch=tree)
    random = np.random.default_rng(7)
    for _ in range(4):
        octets = random.integers(0, 900, workers).tolist()
        parts = [np.frombuffer(random.bytes(length), np.uint8) for length in octets]
        members = [Ranks(rank=rank, world_size=workers, lanes_per_frame=lanes) for rank in range(workers)]
        gatherings = [
            ragged.Gathering("parts", part, octets, ranks, label="", words="")
            for part, ranks in zip(parts, members, strict=True)
        ]
        serials = []
        for gathering, worker in zip(gatherings, cluster.workers, strict=True):
            operation, values, *_ = gathering.collective
            serials.append(worker.engine.submit(operation, values, cluster.clock.now_s))
        cluster.run(lambda: all(serial in one.finished for serial, one in zip(serials, cluster.workers, strict=True)))  # noqa: B023
        for gathering in gatherings:
            for rank, part in enumerate(parts):
                np.testing.assert_array_equal(gathering.part(rank), part)


def test_several_in_the_background(ranks: list[Communicator]) -> None:
    def call(one: Communicator) -> None:
        handles = [one.allgatherv_async(np.full(one.rank + turn, turn, np.int16)) for turn in range(4)]
        one.barrier()
        for turn, handle in enumerate(handles):
            assert [part.tolist() for part in handle.wait()] == [[turn] * (rank + turn) for rank in range(RANKS)]

    on_all(ranks, call)
