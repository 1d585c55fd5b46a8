"""Chooses the lanes of a model's gradients, and of nothing else, by torch's communication hooks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._comm_hooks import default_hooks as hooks_of_fsdp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks_of_ddp
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch.group import SwitchGroup
from switchsum.torch.lane_choice import check_lanes, lanes
from switchsum_protocol.errors import UsageError


def gradient_lanes(model: nn.Module, kind: str) -> None:
    """Set what a model's gradients travel as; all other sums of the process travel as before.

    Every rank calls it once for its model, before the first step.  Gradients are averaged as torch does it without a
    hook.  Those that torch hands over in up to 16 KiB travel in lanes of 32 bits, unless the lanes are "each".

    Args:
        model: A DistributedDataParallel, a module that `fully_shard` was called on, or a FullyShardedDataParallel.  Its
            process group has the backend "switchsum".
        kind: "int32", "int16", "int8" or "each", as in `Communicator.allreduce`.

    Raises:
        UsageError: There are no such lanes, or the model is of another kind, or has a communication hook already, or
            its process group has another backend (of `fully_shard` at the first step).

    Note:
        With hybrid sharding by `fully_shard` only the reduce-scatters are the hook's.  Set `lanes` of the process group
        that adds the shards.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch.nn.parallel import DistributedDataParallel
        >>> import switchsum.torch
        >>> dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        >>> model = DistributedDataParallel(torch.nn.Linear(4, 2))
        >>> switchsum.torch.gradient_lanes(model, "int16")
        >>> dist.destroy_process_group()

    """
    check_lanes(kind, "lanes")
    if isinstance(model, DistributedDataParallel):
        _check_group(model.process_group)
        if model._comm_hooks:
            raise UsageError("the model already has a communication hook: call gradient_lanes in place of that hook")
        model.register_comm_hook(None, _hook_of_ddp(model, kind))
    elif isinstance(model, FullyShardedDataParallel):
        _check_group(model.process_group)
        state = hooks_of_fsdp.DefaultState(model.process_group)
        model.register_comm_hook(state, _InLanes(kind))
    elif sharded := [one for one in model.modules() if isinstance(one, FSDPModule)]:
        for one in sharded:
            one.set_custom_reduce_scatter(_ReduceScatter(kind))
    else:
        raise UsageError(
            f"gradient_lanes takes a DistributedDataParallel, a module with fully_shard or a FullyShardedDataParallel, "
            f"not {type(model).__name__}: wrap the call that sums in `with switchsum.torch.lanes({kind!r}):`"
        )


def _check_group(group: object) -> None:
    """Refuse a group that would take no notice of lanes; raises UsageError."""
    if not isinstance(group, SwitchGroup):
        raise UsageError("gradient_lanes needs a model whose process group has the backend 'switchsum'")


def _hook_of_ddp(model: DistributedDataParallel, kind: str) -> Any:
    """Return a hook that does what DistributedDataParallel does without one."""
    group: dist.ProcessGroup = model.process_group

    # torch compares annotations with the classes themselves, and here they would be text.
    def average(_, bucket):  # type: ignore[no-untyped-def]
        with lanes(kind):
            return hooks_of_ddp.allreduce_hook(group, bucket)

    average.__annotations__ = {"bucket": dist.GradBucket, "return": Future[torch.Tensor]}
    return average


class _InLanes:
    """FullyShardedDataParallel's own hooks, in lanes."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(self, state: Any, gradient: torch.Tensor, output: torch.Tensor | None = None) -> None:
        """Average a gradient in place, or its own part of it in `output`."""
        with lanes(self._kind):
            if output is None:
                hooks_of_fsdp.allreduce_hook(state, gradient)
            else:
                hooks_of_fsdp.reduce_scatter_hook(state, gradient, output)


class _ReduceScatter(DefaultReduceScatter):
    """The reduce-scatter of `fully_shard`, in lanes."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        """Do what it does without lanes."""
        _check_group(group)
        with lanes(self._kind):
            return super().__call__(output_tensor, input_tensor, group, op, async_op)
