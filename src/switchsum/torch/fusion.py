"""Small tensors of one call travel as one: each on its own would take a frame, or two round trips of floats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from switchsum.host.api.communicator import Communicator
from switchsum.host.api.operation_queue import Handle
from switchsum.host.engine.operation import EACH
from switchsum.torch.lane_choice import WIDEST, lanes_for
from switchsum.torch.operators import Reduction
from switchsum.torch.tensors import Staged, check_written, hand_out, join

SMALL_BYTES: Final = 16 * 1024
"""Tensors up to this size are fused: larger ones have enough frames of their own."""


@dataclass(frozen=True, slots=True)
class Fused:
    """Tensors that are reduced as one."""

    reduction: Reduction
    tensors: list[torch.Tensor]
    part: Staged

    def deliver(self) -> None:
        """Write the results to the tensors."""
        hand_out(self.reduction.convert(self.part.values, self.tensors[0].dtype), self.tensors, self.part)


@dataclass(frozen=True, slots=True)
class Single:
    """A tensor that is reduced where it is, if it can be."""

    reduction: Reduction
    part: Staged

    def deliver(self) -> None:
        """Write the result to the tensor."""
        self.reduction.deliver(self.part)


def fuse(tensors: Sequence[torch.Tensor], reductions: Sequence[Reduction]) -> list[Fused | Single]:
    """Bring tensors to where they are reduced, small ones of one dtype side by side, in an order that ranks share."""
    check_written(*tensors)
    small: dict[tuple[torch.dtype, Reduction], list[torch.Tensor]] = {}
    parts: list[Fused | Single] = []
    for tensor, reduction in zip(tensors, reductions, strict=True):
        if len(tensors) > 1 and tensor.numel() * tensor.element_size() <= SMALL_BYTES:
            small.setdefault((tensor.dtype, reduction), []).append(tensor)
        else:
            parts.append(Single(reduction, reduction.stage(tensor)))
    for (_, reduction), group in small.items():
        if len(group) == 1:
            parts.append(Single(reduction, reduction.stage(group[0])))
            continue
        parts.append(Fused(reduction, group, reduction.stage(join(group))))
    return parts


def reduce_parts(
    communicator: Communicator, parts: Sequence[Fused | Single], asked: str | None, called: str
) -> list[Handle]:
    """Begin the reductions that a call is, in the lanes asked for; small tensors in those that round least."""
    handles = []
    for one in parts:
        whole, operator = one.part.plain(), one.reduction.operator
        is_small = isinstance(one, Fused) and asked != EACH
        lanes = WIDEST if is_small else lanes_for(whole, operator, communicator, asked)
        pieces = [whole] if one.part.device is None else one.part.pieces()
        label = called if len(one.part.coming) < 2 else f"{called} in pieces, from {one.part.tensor.device.type}"
        handles += [
            communicator.allreduce_async(values.reshape(-1), operator, lanes=lanes, label=label) for values in pieces
        ]
    return handles
