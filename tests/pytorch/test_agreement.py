"""Ranks whose calls differ in any one argument all hear of it; what may differ is accepted."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from support.timing import patience
from switchsum_protocol.errors import OperationMismatch, SwitchsumError, UsageError

from .calls import OP, options
from .conftest import make_groups

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")

import switchsum.torch  # noqa: E402
from switchsum.torch.hooks import NarrowLanes, SmallBlocks, compressed  # noqa: E402
from switchsum_host.compress.base import Part  # noqa: E402

dist = torch.distributed
c10d = dist.distributed_c10d
RANKS = 2
BEYOND = {"_end_coalescing", "_register_on_completion_hook", "reconfigure", "recv", "recv_anysource", "send"}
"""What returns work and is no collective of all ranks."""
pytestmark = pytest.mark.filterwarnings("ignore:.*over gloo")


def collectives() -> set[str]:
    """Return the names of torch's collectives, as torch itself lists them: what a group has that returns work."""
    found = {name for name in dir(dist.ProcessGroup) if "Work" in (getattr(dist.ProcessGroup, name).__doc__ or "")}
    return found - BEYOND


def options_of(name: str, facts: dict[str, Any]) -> Any:
    """Return what c10d hands over besides tensors."""
    kinds = {"gather": "Gather", "scatter": "Scatter", "all": "AllToAll"}
    start = "gather" if name.startswith("gather") else "all" if name.startswith(("alltoall", "all_to_all")) else name
    if start not in kinds:  # reductions and what the switch moves look at attributes alone, but for what gloo does
        return options(
            reduceOp=facts.get("op", OP.SUM), rootRank=facts.get("root", 0), asyncOp=facts.get("async_op", True)
        )
    opts = getattr(c10d, f"{kinds[start]}Options")()
    opts.asyncOp = facts.get("async_op", True)
    if start != "all":
        opts.rootRank = facts.get("root", 0)
    return opts


class Call:
    """A collective with arguments that ranks agree in, and others."""

    def __init__(
        self, name: str, base: dict[str, Any], *differ: tuple[str, Any], may: tuple[tuple[str, Any], ...] = ()
    ) -> None:
        self.name, self.base, self.differ, self.may = name, base, differ, may

    def tensors(self, facts: dict[str, Any], times: int = 1) -> list[Any]:
        """Return tensors of a dtype with these numbers of rows."""
        shape = tuple(facts.get("inner", (3,)))
        return [torch.full((rows * times, *shape), facts.get("value", 1)).to(facts["dtype"]) for rows in facts["rows"]]

    def begin(self, group: Any, facts: dict[str, Any]) -> Any:
        """Begin the call as c10d does."""
        size, name = group.size(), self.name
        opts = options_of(name, facts)
        own, whole = self.tensors(facts), self.tensors(facts, size)
        is_root = group.rank() == facts.get("root", 0)
        lists = [[torch.zeros_like(one) for one in own] for _ in range(size)]
        method = getattr(group, name)
        if name == "barrier":
            return method(opts)
        if name in ("allreduce", "allreduce_coalesced", "reduce", "broadcast"):
            if facts.get("expanded"):
                own = [one[:1].expand(one.shape) for one in own]
            return method(own, opts)
        if name == "allgather":
            return method([[one[0] for one in lists]], own[:1], opts)
        if name == "allgather_coalesced":
            return method(lists, own, opts)
        if name == "gather":
            return method([[one[0] for one in lists]] if is_root else [], own[:1], opts)
        if name in ("gather_single", "gather_into_tensor"):
            return method(whole[0] if is_root else torch.zeros(0), own[0], opts)
        if name == "scatter":
            return method(own[:1], [[one[0] for one in lists]] if is_root else [], opts)
        if name == "reduce_scatter":
            return method(own[:1], [[torch.ones_like(own[0]) for _ in range(size)]], opts)
        if name == "alltoall":
            return method([one[0] for one in lists], [torch.ones_like(own[0]) for _ in range(size)], opts)
        if name in ("all_to_all_single", "alltoall_base"):
            return method(torch.zeros_like(whole[0]), whole[0], [], [], opts)
        if "gather" in name:
            return method(whole, own, opts) if name.endswith("coalesced") else method(whole[0], own[0], opts)
        assert name in (
            *("reduce_scatter_single", "_reduce_scatter_base"),
            *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
        )
        return method(own, whole, opts) if name.endswith("coalesced") else method(own[0], whole[0], opts)


ONE: dict[str, Any] = {"dtype": torch.float32, "rows": [4]}
TWO: dict[str, Any] = {"dtype": torch.float32, "rows": [4, 9]}
OF_ONE = (("dtype", torch.int32), ("dtype", torch.float64), ("dtype", torch.uint8), ("rows", [5]))
OF_TWO = (*OF_ONE[:3], ("rows", [9, 4]), ("rows", [5, 8]), ("rows", [4]), ("rows", [4, 9000]))
OPS = (("op", OP.MAX), ("op", OP.AVG), ("op", OP.PRODUCT))
ROOT = (("root", 1),)
MAY = (("value", 2), ("async_op", False))
SHAPE = (("inner", (1, 3)),)


def call_of(name: str) -> Call:
    """Return a collective's arguments; fails for one that this test does not know."""
    if name == "barrier":
        return Call(name, ONE, may=MAY[1:])
    if name in ("allreduce", "allreduce_coalesced"):
        expanded = ("expanded", True)
        return Call(name, TWO, *OF_TWO, *OPS, expanded, may=(*MAY, *SHAPE))
    if name == "reduce":
        return Call(name, ONE, *OF_ONE, *OPS, *ROOT, may=(*MAY, *SHAPE))
    if name.startswith(("reduce_scatter", "_reduce_scatter")):
        several = name.endswith("coalesced")
        return Call(name, TWO if several else ONE, *(OF_TWO[:5] if several else OF_ONE), *OPS, may=(*MAY, *SHAPE))
    if name in ("broadcast", "gather", "gather_single", "gather_into_tensor", "scatter"):
        return Call(name, ONE, *OF_ONE, *ROOT, may=(*MAY, *SHAPE))
    if name.startswith(("allgather", "_allgather", "all_gather")):
        several = name.endswith("coalesced")
        return Call(name, TWO if several else ONE, *(OF_TWO[:5] if several else OF_ONE), may=(*MAY, *SHAPE))
    assert name in ("alltoall", "alltoall_base", "all_to_all_single"), f"a new collective of torch: {name}"
    return Call(name, ONE, *OF_ONE, may=(*MAY, *SHAPE))


CALLS = [call_of(name) for name in sorted(collectives())]
DIFFERENT = [(call, argument, value) for call in CALLS for argument, value in call.differ]
ACCEPTED = [(call, argument, value) for call in CALLS for argument, value in call.may]


def ids(cases: list[Any]) -> list[str]:
    return [f"{call.name}-{argument}-{value}".replace("torch.", "") for call, argument, value in cases]


@pytest.fixture
def pair() -> Iterator[list[Any]]:
    made = make_groups(RANKS)
    yield made
    for group in made:
        group.shutdown()


def outcomes(groups: list[Any], call: Call, facts: list[dict[str, Any]]) -> list[BaseException | None]:
    """Return what each rank's call ends with."""

    def run(rank: int) -> BaseException | None:
        try:
            work = call.begin(groups[rank], facts[rank])
            work.wait()
        except BaseException as error:
            return error
        return None

    with ThreadPoolExecutor(RANKS) as pool:
        return [one.result(patience(20)) for one in [pool.submit(run, rank) for rank in range(RANKS)]]


@pytest.mark.parametrize(("call", "argument", "value"), DIFFERENT, ids=ids(DIFFERENT))
def test_ranks_that_differ_in_one_argument_all_hear_of_it(
    pair: list[Any], call: Call, argument: str, value: Any
) -> None:
    errors = outcomes(pair, call, [call.base, {**call.base, argument: value}])
    if argument == "expanded":  # refused, of which the other rank hears
        assert isinstance(errors[1], UsageError)
        assert isinstance(errors[0], OperationMismatch)
        return
    assert all(isinstance(error, OperationMismatch) for error in errors), errors
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pt_gloo")]


@pytest.mark.parametrize(("call", "argument", "value"), ACCEPTED, ids=ids(ACCEPTED))
def test_what_may_differ_is_accepted(pair: list[Any], call: Call, argument: str, value: Any) -> None:
    assert outcomes(pair, call, [call.base, {**call.base, argument: value}]) == [None, None]


def test_words_are_those_of_the_caller(pair: list[Any]) -> None:
    (call,) = [one for one in CALLS if one.name == "allgather"]
    errors = outcomes(pair, call, [call.base, {**call.base, "dtype": torch.int64}])
    said = [getattr(error, "operation", "") for error in errors]
    assert [one.partition(" (call")[0] for one in said] == ["all_gather of float32[12]", "all_gather of int64[12]"]


def test_lists_that_only_the_root_gives_are_checked_on_it(pair: list[Any]) -> None:
    def run(rank: int) -> BaseException | None:
        own = torch.ones(3)
        try:
            pair[rank].gather([[torch.zeros(3), torch.zeros(4)]] if rank == 0 else [], [own]).wait()
        except SwitchsumError as error:
            return error
        return None

    with ThreadPoolExecutor(RANKS) as pool:
        errors = list(pool.map(run, range(RANKS)))
    assert isinstance(errors[0], UsageError)
    assert isinstance(errors[1], OperationMismatch)


def test_parts_that_do_not_fit_one_another_are_named_on_every_rank(pair: list[Any]) -> None:
    def run(rank: int) -> str:
        splits = [[1, 2], [3, 1]][rank]
        with pytest.raises(OperationMismatch) as caught:
            pair[rank].all_to_all_single(torch.zeros(3 + rank), torch.ones(3 + rank), splits, splits).wait()
        pair[rank].barrier().wait()  # the group goes on
        return str(caught.value)

    with ThreadPoolExecutor(RANKS) as pool:
        assert set(pool.map(run, range(RANKS))) == {
            "all_to_all of float32: rank 0 gives 2 values to rank 1, which takes 3"
        }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.int32, torch.complex64], ids=str)
@pytest.mark.parametrize("op", [OP.SUM, OP.AVG, OP.PRODUCT, OP.MIN, OP.MAX, OP.BAND, OP.BOR, OP.BXOR], ids=str)
def test_every_reduction_works_or_is_refused_by_a_named_error(pair: list[Any], dtype: Any, op: Any) -> None:
    opts = dist.AllreduceOptions()
    opts.reduceOp = op

    def run(rank: int) -> BaseException | None:
        try:
            pair[rank].allreduce([torch.ones(3).to(dtype)], opts).wait()
        except BaseException as error:
            return error
        return None

    with ThreadPoolExecutor(RANKS) as pool:
        errors = list(pool.map(run, range(RANKS)))
    assert all(error is None or isinstance(error, SwitchsumError) for error in errors), errors
    assert len({type(error) for error in errors}) == 1


def test_a_monitored_barrier_is_a_barrier(pair: list[Any]) -> None:
    with ThreadPoolExecutor(RANKS) as pool:
        assert list(pool.map(lambda group: group.monitored_barrier(), pair)) == [None] * RANKS


@pytest.mark.parametrize("lists", [([2, 3], [3, 2]), ([5], [2, 3])], ids=str)
def test_hooks_that_keep_nothing_compare_the_parts_of_a_bucket(
    pair: list[Any], lists: tuple[list[int], list[int]]
) -> None:
    def run(rank: int) -> None:
        parts = [Part(key=str(index), shape=(size,)) for index, size in enumerate(lists[rank])]
        compressor = [NarrowLanes("int16"), SmallBlocks()][len(lists[0]) == 1]
        (handle,) = compressor.begin_parts(pair[rank].connect(), parts, np.ones(5, np.float32)).handles
        with pytest.raises(OperationMismatch):
            handle.wait()

    with ThreadPoolExecutor(RANKS) as pool:
        list(pool.map(run, range(RANKS)))


@pytest.mark.parametrize("every", [(2, 3), (0, 2)], ids=str)
def test_how_often_hooks_compare_with_exact_averages_is_alike(pair: list[Any], every: tuple[int, int]) -> None:
    parameter = torch.nn.Parameter(torch.ones(600))

    bucket: Any = SimpleNamespace(buffer=lambda: torch.ones(600), index=lambda: 0, parameters=lambda: [parameter])

    def run(rank: int) -> str:
        hook = compressed(NarrowLanes("int16"), pair[rank], check_every=every[rank])

        def average() -> None:
            for _ in range(2):
                hook(None, bucket).wait()

        with pytest.raises(RuntimeError) as caught:  # torch's, around that of a callback
            average()
        return str(caught.value)

    with ThreadPoolExecutor(RANKS) as pool:
        for own, text in zip(every, pool.map(run, range(RANKS)), strict=True):
            assert "OperationMismatch: another rank issued another operation" in text
            assert not own or f"exact averages, one in {own} (check_every)" in text


OWN: Final = {
    "compress": {"model": "compared by DistributedDataParallel", "how": "compared", "check_every": "compared"},
    "hooks.compressed": {
        "compressor": "compared",
        "group": "it is what the ranks are in",
        "model": "compared by DistributedDataParallel",
        "check_every": "compared",
    },
    "average": {
        "tensors": "number, dtypes and shapes are compared",
        "how": "compared",
        "group": "it is what the ranks are in",
        "async_op": "each rank waits as it likes",
    },
    "Average": {"how": "compared", "group": "it is what the ranks are in"},
    "Average.__call__": {
        "tensors": "number, dtypes and shapes are compared",
        "names": "compared",
        "async_op": "each rank waits as it likes",
    },
    "ElasticGroup": {
        **dict.fromkeys(("controller", "link"), "each rank's own way there"),
        "job": "it is what the ranks are in",
        "rank": "each rank's own",
        "world_size": "compared by the controller",
        **dict.fromkeys(("timeout_s", "patience_s"), "who gives up first is lost to the others, which hear of it"),
    },
    "Scheduled": {
        "model": "shapes are compared by the broadcasts of its parameters",
        "optimizer": "steps are each rank's own, as beside DistributedDataParallel",
        "group": "it is what the ranks are in",
        "lanes": "compared: it is part of an operation",
    },
    "gradient_lanes": {"model": "its sums are compared", "kind": "compared: it is part of an operation"},
    "lanes": {"kind": "compared: it is part of an operation"},
}
"""What is called by all ranks: why ranks hear of each argument that differs, or need not."""
ALONE: Final = {
    "DiLoCo": "test_outer_records walks it",
    "LocalSGD": "test_outer_records walks it",
    "SwitchGroup": "init_process_group makes it: test_meeting",
    **dict.fromkeys(("GroupStatistics", "dump_flight_recorder", "statistics"), "no call of all ranks"),
}


def test_every_argument_of_what_all_ranks_call_is_compared_or_says_why_not() -> None:
    names = {*switchsum.torch.__all__} - {"hooks"} | {"hooks.compressed", "Average.__call__"}
    assert names == OWN.keys() | ALONE.keys()
    for name, said in OWN.items():
        found: Any = switchsum.torch
        for part in name.split("."):
            found = getattr(found, part)
        assert inspect.signature(found).parameters.keys() - {"self"} == said.keys(), name
