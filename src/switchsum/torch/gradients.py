"""Tells whether a call reduces gradients: only gradients travel in the narrow lanes that the environment asks for.

DistributedDataParallel and FSDP reduce a parameter's gradient when autograd has accumulated it, or at the end of the
backward pass.  Which node autograd is at tells them from what else a backward pass may reduce: statistics of
SyncBatchNorm, activations of tensor parallelism, users' own values.
"""

from __future__ import annotations

import sys
from typing import Final

import torch

from switchsum.torch.completer import current_work

_NODES: Final = ("AccumulateGrad", "RegisterPostBackwardFunctionBackward")
"""Ends of names of autograd's nodes (torch 2.11 to 2.15): the second one is FSDP2's."""
_NO_GRAPH_TASK: Final = -1
_MOST_FRAMES: Final = 16


def in_backward() -> bool:
    """Return whether the caller is part of a backward pass."""
    return backward_pass() != _NO_GRAPH_TASK


def backward_pass() -> int:
    """Return the number of the backward pass that the caller is part of; less than 0: of none."""
    return torch._C._current_graph_task_id()


def in_last_callbacks() -> bool:
    """Whether the caller is called when a backward pass has computed all gradients, as static graphs' first hooks are.

    What torch calls then may wait, in C++, before it comes to what is queued behind it.
    """
    return in_backward() and torch._C._current_autograd_node() is None


def are_reduced() -> bool:
    """Return whether the caller reduces gradients; the same on all ranks that call the same."""
    if in_backward():
        node = torch._C._current_autograd_node()
        return node is None or node.name().endswith(_NODES)
    work = current_work()
    return work.is_of_gradients if work is not None else _is_shadow()


def _is_shadow() -> bool:
    """Return whether this rank has no batches left and takes part in the others' reductions, in `join` of DDP."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    if parallel is None:
        return False
    code = parallel.DistributedDataParallel._match_all_reduce_for_bwd_pass.__code__
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame.f_code is code:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False
