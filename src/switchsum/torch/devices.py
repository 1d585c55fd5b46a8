"""Groups of several backends, as in `cpu:gloo,cuda:switchsum`: whose a call is, by the device of its tensors.

torch lets a process group that is written in Python replace the whole group, and the other backends with it.  So the
group keeps what torch has made for other devices, and hands on what is about their tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

Kind = TypeVar("Kind", bound=type)

WITH_TENSORS: Final = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "broadcast",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "gather_single",
    "gather_into_tensor",
    "scatter",
    "alltoall",
    "all_to_all_single",
    "send",
    "recv",
    "recv_anysource",
    "_allgather_base",
    "allgather_into_tensor_coalesced",
    "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced",
    "alltoall_base",
)
"""Calls that are about tensors; a barrier is about none, and the switch's."""


def backends_of(others: Mapping[str, dist.ProcessGroup]) -> dict[str, Any]:
    """Return the backend that each type of device has in a group of its own."""
    return {device: other._get_backend(torch.device(device)) for device, other in others.items()}


def shared_by_device(kind: Kind) -> Kind:
    """Have a class's calls go to one of `self.others`, by type of device, where their tensors are on a device of it."""
    for name in WITH_TENSORS:
        setattr(kind, name, _shared(name, getattr(kind, name)))
    return kind


def _shared(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(group: Any, *arguments: Any, **options: Any) -> Any:
        other = other_of(group, (*arguments, *options.values()))
        if other is not None:
            return getattr(other, name)(*arguments, **options)
        return method(group, *arguments, **options)

    return call


def other_of(group: Any, values: Iterable[Any]) -> Any:
    """Return torch's own group for the device of a call's tensors; None: they are this group's."""
    tensor = _first_tensor(values) if group.others else None
    return None if tensor is None else group.others.get(tensor.device.type)


def _first_tensor(values: Iterable[Any]) -> torch.Tensor | None:
    """Return the first tensor in nested lists."""
    for value in values:
        found = value if isinstance(value, torch.Tensor) else None
        if isinstance(value, (list, tuple)):
            found = _first_tensor(value)
        if found is not None:
            return found
    return None
