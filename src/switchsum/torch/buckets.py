"""Which layers' gradients a collective sums: reports call DistributedDataParallel's buckets by these.

DistributedDataParallel gives its buckets to a process group in the order of their numbers, and says which parameters
are in which bucket where it logs.  It does not tell while a bucket is begun, so names are looked up when a report is
made, on the thread of the reports.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch.gradients import backward_pass
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle

_MODELS: Final[weakref.WeakSet[DistributedDataParallel]] = weakref.WeakSet()
_watching: list[object] = []


def watch_models() -> None:
    """Take note of every model that is made distributed from now on."""
    if not _watching:
        _watching.append(register_module_module_registration_hook(_note))


def _note(module: nn.Module, name: str, _: nn.Module | None) -> None:
    if name == "module" and isinstance(module, DistributedDataParallel):
        _MODELS.add(module)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of gradients; its text names the layers, if a model is found that has it."""

    group: weakref.ref[object]
    number: int
    size: int
    """Of how many values."""

    def __str__(self) -> str:
        """Say which bucket it is."""
        said = f"gradient bucket {self.number}"
        layers = {names for model in list(_MODELS) if (names := self._layers_of(model))}
        return f"{said} ({layers.pop()})" if len(layers) == 1 else said

    def _layers_of(self, model: DistributedDataParallel) -> str:
        """Return the first and the last parameter of this bucket of a model; empty: it has no such bucket."""
        if model.process_group is not self.group():
            return ""
        buckets = buckets_of(model)
        bucket = buckets[self.number] if self.number < len(buckets) else []
        if sum(one.numel() for _, one in bucket) != self.size:
            return ""
        first, last = bucket[0][0], bucket[-1][0]
        return first if first == last else f"{first} to {last}"


def buckets_of(model: DistributedDataParallel) -> list[list[tuple[str, torch.Tensor]]]:
    """Return the parameters of each bucket, by their names in the module; empty: it does not tell them.

    Buckets are made anew after the first step, in the order in which gradients came.  Before, and where some parameters
    may be unused, they are the parameters from the last one on, as many as fill each.
    """
    if model.logger is None:  # the model is being made, on another thread
        return []
    named = [pair for pair in model.module.named_parameters() if pair[1].requires_grad]
    logged = model.logger._get_ddp_logging_data().strs_map
    if ordered := logged.get("rebuilt_per_bucket_param_indices"):
        places = [[int(place) for place in bucket.split()] for bucket in ordered.split(",")]
        return [[named[place] for place in bucket if place < len(named)] for bucket in places]
    buckets = []
    for size in map(int, filter(None, logged.get("bucket_sizes", "").split(","))):
        bucket: list[tuple[str, torch.Tensor]] = []
        while named and sum(one.nbytes for _, one in bucket) < size:
            bucket.insert(0, named.pop())
        buckets.append(bucket)
    return buckets


class Buckets:
    """Counts the buckets of a process group in each backward pass."""

    def __init__(self, group: object) -> None:
        self._group = weakref.ref(group)
        self._pass, self._number = -1, 0
        watch_models()

    def next(self, tensors: Sequence[torch.Tensor]) -> Bucket | None:
        """Return the bucket that an allreduce is for; None: gradients are not what is reduced now.

        The caller begins it.
        """
        now = backward_pass()
        if now < 0 or len(tensors) != 1 or not _is_at_a_gradient():
            return None
        if now != self._pass:
            self._pass, self._number = now, 0
        bucket = Bucket(self._group, self._number, tensors[0].numel())
        self._number += 1
        return bucket


def _is_at_a_gradient() -> bool:
    """Return whether the backward pass has just accumulated a gradient, or has all of them (torch 2.13 to 2.15).

    Only the names in reports depend on it: where it is wrong, they say other buckets, and sums are as they are.
    """
    node = torch._C._current_autograd_node()
    return node is None or node.name().endswith("AccumulateGrad")


def begin(
    bucket: Bucket | None, start: Callable[[Communicator], list[Handle]], communicator: Communicator
) -> list[Handle]:
    """Begin collectives for a bucket, and have reports say so.

    The end of a backward pass waits for all of its buckets in C++, where a communicator does not see it.
    """
    if bucket is None:
        return start(communicator)
    if bucket.number == 0:
        communicator.note_wait()
    first = communicator.begun
    handles = start(communicator)
    communicator.note_purpose(bucket, first)
    return handles
