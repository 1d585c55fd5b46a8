"""Every argument that torch's process groups, works and options have is obeyed, or refused by name.

The tables say which, and why one that is neither need not be.  The walk finds what torch has: one that a newer torch
adds fails until it is in a table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from switchsum_protocol.errors import UsageError

from .conftest import RANKS, on_all

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from torch.distributed import distributed_c10d as c10d  # noqa: E402  (it needs torch)

from switchsum.torch.forms import ALIASES, FORMS, in_full  # noqa: E402  (it needs torch)

dist = torch.distributed
OP = dist.ReduceOp

OPTIONS: Final = {
    "timeout": "obeyed: test_time_outs calls each collective with one",
    "reduceOp": "obeyed: test_group calls each operator",
    "rootRank": "obeyed: test_group calls each rank as root",
    "rootTensor": "refused unless 0: a call has one tensor",
    "asyncOp": "every call returns a work at once; torch.distributed calls its `wait` where nobody asked for async_op",
    "device": "says which GPU a barrier of NCCL runs on; this one runs on the host",
    "device_ids": "likewise",
    **dict.fromkeys(("handles", "uuid"), "of `reconfigure`, which is refused"),
    "hints": "of `reconfigure`, which is refused, and of windows, which gloo refuses by name",
}
"""Fields of the options of collectives."""

METHODS: Final = {
    **dict.fromkeys(
        ("abort", "shutdown", "rank", "size", "name", "get_group_store", "boxed", "unbox", "_id", "_backend_id"),
        "no arguments that change anything",
    ),
    **dict.fromkeys(
        (
            "_device_types",
            "_get_backend",
            "get_backend",
            "_get_backend_name",
            "_register_backend",
            "_set_default_backend",
            "bound_device_id",
        ),
        "torch's own, of the gloo that is registered",
    ),
    **dict.fromkeys(("group_name", "group_desc", "_set_group_name", "_set_group_desc"), "torch's own: names"),
    **dict.fromkeys(
        (
            "_get_sequence_number_for_group",
            "_set_sequence_number_for_group",
            "_enable_collectives_timing",
            "_has_hooks",
        ),
        "torch's own, of the gloo that is registered: nothing of a collective depends on it",
    ),
    **dict.fromkeys(
        ("_register_on_completion_hook", "_wait_for_pending_works"),
        "gloo refuses it by name, as NCCL's alone: test_what_gloo_refuses_for_us",
    ),
    **dict.fromkeys(("_start_coalescing", "_end_coalescing"), "obeyed: test_group coalesces"),
    "set_timeout": "obeyed: test_time_outs",
    "monitored_barrier": "timeout is obeyed: test_time_outs; wait_all_ranks: all missing ranks are named in any case",
    **dict.fromkeys(
        (
            "split_group",
            "merge_remote_group",
            "reconfigure",
            "get_reconfigure_handle",
            "supports_reconfigure",
            "register_pre_hook",
            "register_post_hook",
        ),
        "refused by name, or False: test_what_torch_would_hand_to_gloo_is_refused",
    ),
    **dict.fromkeys(("unregister_pre_hook", "unregister_post_hook", "unregister_abort_hook"), "there is none"),
    **dict.fromkeys(("register_abort_hook", "new_window"), "gloo refuses it by name: test_what_gloo_refuses_for_us"),
    "supports_window": "False: gloo's",
    "_add_ephemeral_timeout": "torch has backends that cannot extend time-outs ignore it, as gloo does",
    "recv_anysource": "obeyed: test_group",
    "use_pg_for_symm_mem_rendezvous": "torch's own: symmetric memory of GPUs",
    **dict.fromkeys(FORMS, "obeyed: `FORMS` has the names of all its arguments"),
}
"""Methods and properties of a process group."""

BACKENDS: Final = {
    **dict.fromkeys(
        ("allocate_tensor", "mem_allocator", "memory_stats", "suspend", "resume", "shrink"),
        "gloo refuses it by name: test_what_gloo_refuses_for_us",
    ),
    **dict.fromkeys(
        (
            "supports_coalescing",
            "supports_shrinking",
            "supports_splitting",
            "supports_tensor_alloc",
            "supports_time_estimate",
        ),
        "says what gloo can do",
    ),
    **dict.fromkeys(("options", "Options"), "gloo's: its time-out is that of the group, test_time_outs"),
    **dict.fromkeys(("split", "merge"), "make a gloo of gloo's, as who asks for the backend wants: the group refuses"),
    "allreduce_sparse": "of gloo's: the group's own allreduce takes sparse tensors, test_group",
    **dict.fromkeys(
        ("_set_group_uid", "eager_connect_single_device", "get_error", "setUsePgForSymmMemRendezvous"),
        "torch's own, of NCCL: gloo does nothing",
    ),
}
"""What a backend has beside what a process group has: `_get_backend` returns the gloo that is registered."""

WORKS: Final = {
    "wait": "timeout is obeyed: test_time_outs",
    **dict.fromkeys(
        ("is_completed", "is_success", "exception", "result", "synchronize", "get_future"), "no arguments: test_works"
    ),
    "block_current_stream": "has a stream of a GPU wait: raises what torch's own works do, since the host waits here",
    **dict.fromkeys(("source_rank", "_source_rank"), "of gloo's own works, which `recv_anysource` returns"),
    **dict.fromkeys(("timeout", "_get_sequence_number"), "torch's own: works made in Python refuse them by name"),
    **dict.fromkeys(("boxed", "unbox", "_get_duration", "_get_op_type", "get_future_result"), "torch's own, of NCCL"),
}
"""Methods of a work."""


def options_of_torch() -> Iterator[tuple[str, str]]:
    for name, kind in vars(torch._C._distributed_c10d).items():
        if name.endswith("Options") and isinstance(kind, type) and not name.startswith("_"):
            yield from ((name, field) for field in dir(kind) if not field.startswith("_"))


def public(kind: type) -> Iterator[str]:
    """Yield what torch says of a class, without what every object has and without names of backends."""
    for name in dir(kind):
        if not name.startswith(("__", "_pybind11")) and not name.isupper() and name != "BackendType":
            yield name


def test_each_field_of_torchs_options_is_obeyed_or_refused() -> None:
    found = set(options_of_torch())
    assert {("AllreduceOptions", "timeout"), ("BroadcastOptions", "rootTensor")} <= found  # the walk sees something
    assert {field for _, field in found} - set(OPTIONS) == set()


def test_each_method_of_a_process_group_is_in_the_table() -> None:
    found = set(public(dist.ProcessGroup))
    assert {"allreduce", "monitored_barrier"} <= found
    assert found - set(METHODS) == set()


def test_each_method_of_a_backend_is_in_a_table() -> None:
    found = set(public(torch._C._distributed_c10d.Backend))
    assert {"set_timeout", "allreduce"} <= found  # the walk finds them
    assert found - set(METHODS) - set(BACKENDS) == set()


def test_each_method_of_a_work_is_in_the_table() -> None:
    found = set(public(dist.Work))
    assert "wait" in found
    assert found - set(WORKS) == set()


@pytest.mark.parametrize("name", sorted(FORMS))
def test_a_method_takes_each_argument_that_torchs_takes(name: str) -> None:
    method = getattr(dist.ProcessGroup, name, None)
    if method is None:
        pytest.skip(f"this torch has no {name}")
    forms = re.findall(rf"^(?:\d+\. )?{name}\(self: \S+, (.*)\) ->", method.__doc__ or "", re.MULTILINE)
    assert forms, method.__doc__
    known = {FORMS[name].long, FORMS[name].short}
    for form in forms:
        names = {ALIASES.get(name, {}).get(one, one) for one in re.findall(r"(?<![.\w])(\w+): ", form)}
        found = [one for one in known if names <= set(one)]
        assert found, (names, known)


def test_what_torch_would_hand_to_gloo_is_refused(groups: list[Any]) -> None:
    group = groups[0]
    assert not group.supports_reconfigure
    for name, values, instead in (
        ("get_reconfigure_handle", (), "ElasticGroup"),
        ("reconfigure", (object(),), "ElasticGroup"),
        ("split_group", ([0, 1],), "new_group"),
        ("merge_remote_group", (dist.HashStore(), 2), "new_group"),
        ("register_pre_hook", (1, print), "torch.profiler"),
        ("register_post_hook", (1, print), "torch.profiler"),
    ):
        with pytest.raises(UsageError, match=f"no {name}: .*{instead}"):
            getattr(group, name)(*values)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("register_abort_hook", (1, print)),
        ("new_window", ()),
        ("_register_on_completion_hook", (print,)),
        ("_wait_for_pending_works", ()),
        ("memory_stats", ()),
        ("suspend", ()),
        ("resume", ()),
        ("shrink", ([0],)),
    ],
)
def test_what_gloo_refuses_for_us(groups: list[Any], name: str, values: tuple[Any, ...]) -> None:
    owner = groups[0] if name in METHODS else groups[0]._get_backend(torch.device("cpu"))
    if not hasattr(owner, name):
        pytest.skip(f"this torch has no {name}")
    with pytest.raises(RuntimeError, match=r"gloo does not support|Only ProcessGrouppNCCL supports"):
        getattr(owner, name)(*values)


def reduced(group: Any, *values: Any, **named: Any) -> list[float]:
    tensor = torch.full((3,), group.rank() + 1.0)
    group.allreduce(tensor, *values, **named).wait()
    return tensor.tolist()


def test_the_short_forms_of_torchs_calls_are_obeyed(groups: list[Any]) -> None:
    size = RANKS

    def call(group: Any) -> None:
        rank = group.rank()
        assert reduced(group) == [6.0] * 3
        assert reduced(group, OP.MAX) == [3.0] * 3
        assert reduced(group, op=OP.MIN) == [1.0] * 3
        group.allreduce(tensor=(one := torch.ones(2)), op=OP.SUM).wait()
        assert one.tolist() == [size] * 2
        tensors = [torch.full((3,), rank + 1.0)]
        group.allreduce(tensors, OP.MAX).wait()
        assert tensors[0].tolist() == [3.0] * 3
        for root in range(size):
            one = torch.full((3,), float(rank))
            group.broadcast(one, root).wait()
            assert one.tolist() == [root] * 3
            group.reduce(one := torch.full((3,), rank + 1.0), root, OP.SUM).wait()
            if rank == root:
                assert one.tolist() == [6.0] * 3
            gathered = [torch.empty(2) for _ in range(size)] if rank == root else []
            group.gather(gathered, torch.full((2,), float(rank)), root=root).wait()
            assert [one.tolist() for one in gathered] == [[float(one)] * 2 for one in range(size)] * (rank == root)
            given = [torch.full((2,), float(one)) for one in range(size)] if rank == root else []
            group.scatter(taken := torch.empty(2), given, root).wait()
            assert taken.tolist() == [float(rank)] * 2
        group.allgather(every := [torch.empty(2) for _ in range(size)], torch.full((2,), float(rank))).wait()
        assert [one.tolist() for one in every] == [[float(one)] * 2 for one in range(size)]
        group.reduce_scatter(part := torch.empty(2), [torch.full((2,), one + 1.0) for one in range(size)]).wait()
        assert part.tolist() == [size * (rank + 1.0)] * 2
        group.alltoall_base(whole := torch.empty(size), torch.full((size,), float(rank)), [], []).wait()
        assert whole.tolist() == list(range(size))
        group.barrier().wait()

    on_all(groups, call)


@pytest.mark.parametrize(
    ("values", "named", "text"),
    [
        ((), {"opt": 1}, "unexpected keyword argument 'opt'"),
        ((torch.ones(1), 0), {"root": 1}, "multiple values for argument 'root'"),
        ((torch.ones(1), 0, None, 5), {}, "takes 3 arguments"),
        ((torch.ones(1),), {"timeout": None}, "missing 1 required argument: 'root'"),
    ],
)
def test_arguments_that_a_call_does_not_take_are_refused_by_name(
    values: tuple[Any, ...], named: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        in_full("broadcast", values, named)


def test_several_tensors_in_a_call_of_one_are_refused_by_every_rank(groups: list[Any]) -> None:
    pair = [torch.ones(2), torch.ones(2)]
    options = c10d.BroadcastOptions()
    options.rootTensor = 1

    def refused(group: Any) -> list[str]:
        calls: list[Callable[[], Any]] = [
            lambda: group.reduce(pair, c10d.ReduceOptions()),
            lambda: group.broadcast(pair, c10d.BroadcastOptions()),
            lambda: group.broadcast(pair[:1], options),
            lambda: group.allgather([[torch.empty(2)] * RANKS] * 2, pair, c10d.AllgatherOptions()),
        ]
        texts = []
        for call in calls:
            with pytest.raises(UsageError) as caught:
                call()
            texts.append(str(caught.value))
        group.barrier().wait()  # which goes on, since all have refused the same
        return texts

    for texts in on_all(groups, refused):
        for text, word in zip(
            texts, ("reduce takes", "broadcast takes", "rootTensor", "allgather_coalesced"), strict=True
        ):
            assert word in text
