"""Tells whether a call is part of a backward pass of autograd."""

from __future__ import annotations

from typing import Final

import torch

_NO_GRAPH_TASK: Final = -1


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
