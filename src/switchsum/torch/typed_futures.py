"""Futures whose value C++ can read: DistributedDataParallel's built-in hook for float16 wants a list of tensors.

A future that is made in Python has a Python object for C++.  The built-in hook without compression takes the tensors
out of it, and the one with float16 ends the process' backward pass with an internal assertion.  A function of
TorchScript that waits for the future, and returns the tensors, has a future of the right type.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import torch
from torch.futures import Future

from switchsum.torch.gradients import in_backward

_CODE: Final = """
def tensors_of(done: Future[List[Tensor]], tensors: List[Tensor]) -> List[Tensor]:
    torch.jit.wait(done)
    return tensors

def begin(done: Future[List[Tensor]], tensors: List[Tensor]) -> Future[List[Tensor]]:
    return torch.jit.fork(tensors_of, done, tensors)
"""
_OWN: Final = "switchsum.torch."


def is_for_cpp(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether a future is asked for by code in C++ that reduces float16 in a backward pass.

    Hooks in Python call `get_future` from a frame of their own.  C++ has none: the frame below ours is that of whoever
    began the backward pass, or there is none at all.
    """
    if len(tensors) != 1 or tensors[0].dtype != torch.float16 or not in_backward():
        return False
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is None or frame.f_globals.get("__name__") == "torch.autograd.graph"


def typed(done: Future[Any], tensors: list[torch.Tensor]) -> Future[Any]:
    """Return a future of tensors that is completed when another one is, and fails as that does.

    What is chained to it runs on a thread of torch's own.  So nothing that begins collectives may be: what is chained
    in C++ does not.
    """
    code = _compiled()
    if code is None:
        return done
    future: Future[Any] = code.begin(done, tensors)
    return future


@cache
def _compiled() -> Any:
    """Return the functions; None: this torch has no TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.jit.CompilationUnit(_CODE)
        except Exception:
            return None
