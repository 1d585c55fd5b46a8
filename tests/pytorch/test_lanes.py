"""What sums of tensors travel as: two bytes a value of bfloat16 where a ring is no better, or what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import median
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from checks.bench import accuracy
from support.timing import patience
from switchsum_protocol.errors import UsageError
from tests.host.moved import without_repeats

from .conftest import RANKS, SCRIPTS, Launch, make_groups, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
import switchsum.torch  # noqa: E402  (it needs torch)
from switchsum.torch import lanes_of_models  # noqa: E402  (it needs torch)
from switchsum.torch.compression import compressor_of  # noqa: E402  (it needs torch)
from switchsum.torch.gloo import LOOPBACK, open_gloo  # noqa: E402  (it needs torch)
from switchsum.torch.lane_choice import FEW_BYTES, MOST_RANKS, asked_for, lanes_for  # noqa: E402  (it needs torch)

dist = torch.distributed
VALUES = 50_000
NARROW, WIDE = 2.4, 4.5
"""Bytes a value, frames' headers and first rounds included, in lanes of 16 and of 32 bits."""


def options(operator: Any = dist.ReduceOp.SUM) -> Any:
    return SimpleNamespace(reduceOp=operator, rootRank=0)


def sent_each_way(groups: list[Any], call: Any) -> float:
    """Return how many bytes a value a rank sends and receives at most, in an allreduce that `call` begins.

    The middle one of three, without repeats, which a busy machine makes.
    """
    found = []
    for _ in range(3):
        counts = [group.connect().statistics() for group in groups]
        on_all(groups, call)
        after = [group.connect().statistics() for group in groups]
        found.append(max(max(without_repeats(old, new)) for old, new in zip(counts, after, strict=True)) / VALUES)
    return median(found)


def values(rank: int, dtype: Any) -> Any:
    return torch.randn(VALUES, generator=torch.Generator().manual_seed(rank)).to(dtype)


def exact(dtype: Any) -> Any:
    return sum(values(rank, dtype).double() for rank in range(RANKS))


@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, NARROW), (torch.float16, WIDE), (torch.float32, WIDE)])
def test_sums_of_bfloat16_cost_two_bytes_a_value_each_way(groups: list[Any], dtype: Any, most: float) -> None:
    def call(group: Any) -> None:
        tensor = values(group.rank(), dtype)
        group.allreduce([tensor], options()).wait()
        off = (tensor.double() - exact(dtype)).norm() / exact(dtype).norm()
        assert off < 2e-3  # of a ring of bfloat16: 2.4e-3

    spent = sent_each_way(groups, call)
    assert most - 0.4 < spent < most


def test_reductions_to_one_rank_and_by_parts_do_likewise(groups: list[Any]) -> None:
    whole = VALUES // RANKS * RANKS

    def reduce(group: Any) -> None:
        group.reduce([values(group.rank(), torch.bfloat16)], options()).wait()

    def by_parts(group: Any) -> None:
        part = torch.empty(whole // RANKS, dtype=torch.bfloat16)
        group.reduce_scatter_single(part, values(group.rank(), torch.bfloat16)[:whole], options()).wait()

    def by_tensors(group: Any) -> None:
        parts = list(values(group.rank(), torch.bfloat16)[:whole].split(whole // RANKS))
        group.reduce_scatter([torch.empty_like(parts[0])], [parts], options()).wait()

    for call in (reduce, by_parts, by_tensors):
        assert sent_each_way(groups, call) < NARROW


def test_counts_in_small_tensors_stay_exact(groups: list[Any]) -> None:
    def call(group: Any) -> None:
        few = [torch.tensor([1.0, 100.0], dtype=torch.bfloat16).repeat(FEW_BYTES // 8 // 2) for _ in range(9)]
        group.allreduce_coalesced(few, options()).wait()  # together they are not few
        group.allreduce([few[0]], options()).wait()
        assert few[1].unique().tolist() == [RANKS, RANKS * 100]

    on_all(groups, call)


@pytest.fixture
def asked_groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Groups of an environment that asks for lanes."""
    monkeypatch.setenv("SWITCHSUM_LANES", request.param)
    made = make_groups(RANKS)
    yield made
    for group in made:
        group.shutdown()


def own_sum(group: Any) -> None:
    group.allreduce([values(group.rank(), torch.float32)], options()).wait()


def by_word(group: Any) -> None:
    with switchsum.torch.lanes("int16"):
        own_sum(group)


def of_group(group: Any) -> None:
    group.lanes = "int16"
    own_sum(group)
    group.lanes = None


@pytest.mark.parametrize("asked_groups", ["int16"], indirect=True)
def test_lanes_of_the_environment_are_for_all_sums_but_those_that_the_caller_asks_for(asked_groups: list[Any]) -> None:
    def by_another_word(group: Any) -> None:
        with switchsum.torch.lanes("int32"):
            own_sum(group)

    for call, most in [(own_sum, NARROW), (by_another_word, WIDE)]:
        assert most - 0.4 < sent_each_way(asked_groups, call) < most, call


@pytest.mark.parametrize("asked_groups", ["int32"], indirect=True)
def test_wide_lanes_of_the_environment_are_for_all_sums(asked_groups: list[Any]) -> None:
    def call(group: Any) -> None:
        group.allreduce([values(group.rank(), torch.bfloat16)], options()).wait()

    assert WIDE - 0.4 < sent_each_way(asked_groups, call) < WIDE


def in_one(group: Any, tensors: list[Any]) -> None:
    """Add tensors side by side, as a bucket."""
    whole = torch.cat(tensors)
    group.allreduce([whole], options()).wait()
    for tensor, part in zip(tensors, whole.split([one.numel() for one in tensors]), strict=True):
        tensor.copy_(part)


def one_by_one(group: Any, tensors: list[Any]) -> None:
    works = [group.allreduce([tensor], options()) for tensor in tensors]
    for work in works:
        work.wait()


def fused(group: Any, tensors: list[Any]) -> None:
    group.allreduce_coalesced(tensors, options()).wait()


def as_rows(group: Any, tensors: list[Any]) -> None:
    """Add them as rows of a sparse tensor."""
    for tensor in tensors:
        own, places = tensor[:, None].clone(), torch.arange(len(tensor))[None]
        rows = torch.sparse_coo_tensor(places, own, own.shape, check_invariants=False)
        group.allreduce([rows], options()).wait()
        tensor.copy_(rows.to_dense()[:, 0])


@pytest.mark.parametrize("asked_groups", ["each"], indirect=True)
def test_lanes_of_each_value_give_the_same_bits_however_tensors_are_cut(asked_groups: list[Any]) -> None:
    sizes, found = [7, 300, 2000, 1, FEW_BYTES // 4, 20_000, 23], set()
    for call in (in_one, one_by_one, fused, as_rows):

        def add(group: Any, call: Any = call) -> bytes:
            drawn = values(group.rank(), torch.float32) * 10.0 ** torch.linspace(-20, 20, VALUES).round()
            tensors = [part.clone() for part in drawn[: sum(sizes)].split(sizes)]
            call(group, tensors)
            return torch.cat(tensors).numpy().tobytes()

        found.update(on_all(asked_groups, add))
    assert len(found) == 1
    assert 5 < sent_each_way(asked_groups, own_sum) < 5.7


def test_the_hook_of_each_value_averages_a_bucket_and_its_parts_to_the_same_bits(groups: list[Any]) -> None:
    def average(group: Any, pieces: int) -> bytes:
        drawn = values(group.rank(), torch.float32) * 10.0 ** torch.linspace(-20, 20, VALUES).round()
        found = []
        for part in np.array_split(drawn[:3001].numpy(), pieces):
            exchange = compressor_of("each").begin(group.connect(), "a parameter", part)
            for handle in exchange.handles:
                handle.wait()
            found.append(exchange.finish())
        return np.concatenate(found).tobytes()

    whole, parts = on_all(groups, lambda group: average(group, 1)), on_all(groups, lambda group: average(group, 7))
    assert len({*whole, *parts}) == 1


def test_a_call_or_a_group_has_narrow_lanes_by_the_callers_word(groups: list[Any]) -> None:
    for call, most in [(by_word, NARROW), (of_group, NARROW), (own_sum, WIDE)]:
        assert most - 0.4 < sent_each_way(groups, call) < most, call
    with pytest.raises(UsageError, match="lanes is 'int4'"), switchsum.torch.lanes("int4"):
        pass


@pytest.mark.timeout(120)
def test_gradients_of_a_model_alone_have_the_lanes_that_its_hooks_have(launch: Launch) -> None:
    assert launch(2, SCRIPTS / "gradients.py").check().count("gradients alone") == 2


def test_gradient_lanes_refuses_what_it_cannot_do() -> None:
    with pytest.raises(UsageError, match="lanes is 'int4'"):
        switchsum.torch.gradient_lanes(torch.nn.Linear(2, 2), "int4")
    with pytest.raises(UsageError, match=r"not Linear: wrap the call that sums in `with switchsum.torch.lanes\('int8'"):
        switchsum.torch.gradient_lanes(torch.nn.Linear(2, 2), "int8")


def test_gradient_lanes_refuses_groups_that_take_no_notice_of_lanes() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        with pytest.raises(UsageError, match="process group has the backend 'switchsum'"):
            switchsum.torch.gradient_lanes(model, "int16")
        scatter = lanes_of_models._ReduceScatter("int16")  # torch gives it the group at the first step
        with pytest.raises(UsageError, match="process group has the backend 'switchsum'"):
            scatter(torch.zeros(2), torch.zeros(2), dist.group.WORLD, dist.ReduceOp.SUM)
    finally:
        dist.destroy_process_group()


def test_an_unknown_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_LANES", "int4")
    with pytest.raises(UsageError, match="SWITCHSUM_LANES is 'int4': it must be one of int32, int16, int8"):
        asked_for()


@pytest.mark.parametrize(
    ("dtype", "operator", "ranks", "frame", "asked", "lanes"),
    [
        (ml_dtypes.bfloat16, "sum", 8, 256, None, "int16"),
        (ml_dtypes.bfloat16, "average", 4, 2048, None, "int16"),
        (ml_dtypes.bfloat16, "sum", 16, 256, None, "int32"),
        (ml_dtypes.bfloat16, "sum", 8, 2048, None, "int32"),
        (ml_dtypes.bfloat16, "max", 4, 256, "int8", "int32"),
        (np.float16, "sum", 4, 256, None, "int32"),
        (np.float16, "sum", 32, 2048, "int16", "int16"),
        (np.int32, "sum", 4, 256, "int16", "int32"),
    ],
)
def test_what_sums_travel_as(dtype: Any, operator: str, ranks: int, frame: int, asked: str | None, lanes: str) -> None:
    communicator: Any = SimpleNamespace(world_size=ranks, lanes_per_frame=frame)
    assert lanes_for(np.zeros(VALUES, dtype), operator, communicator, asked) == lanes


@pytest.mark.parametrize("frame", MOST_RANKS)
@pytest.mark.parametrize("kind", accuracy.INPUTS)
def test_by_default_no_sum_is_worse_than_a_rings(kind: str, frame: int) -> None:
    for ranks, most in ((2, 1.06), (3, 1.0), (MOST_RANKS[frame], 1.0)):  # with two ranks a ring rounds only once
        found = accuracy.errors(kind, "bfloat16", ranks, frame)
        assert found["int16"].relative <= most * found["ring"].relative
        assert found["int16"].worst <= found["ring"].worst


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_the_ring_that_sums_are_compared_with_is_gloos(dtype: Any) -> None:
    name = str(dtype).removeprefix("torch.")
    arrays = accuracy.draw("heavy", 4, accuracy.DTYPES[name][1])
    expected = torch.from_numpy(accuracy.around_a_ring(arrays).view(np.int16))
    store = dist.HashStore()

    def ring(rank: int) -> Any:
        group = open_gloo(store, rank, 4, timedelta(seconds=patience(20)), LOOPBACK)
        tensor = torch.from_numpy(arrays[rank].view(np.int16).copy()).view(dtype)
        group.allreduce([tensor]).wait()
        return tensor.view(torch.int16)

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(one, expected) for one in pool.map(ring, range(4)))
