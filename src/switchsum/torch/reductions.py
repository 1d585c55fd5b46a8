"""Reductions of tensors: which of torch's the switch can do, and how; small tensors of one call travel as one.

A small tensor on its own would take a frame, or two round trips of floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from switchsum.torch.lane_choice import WIDEST, lanes_for
from switchsum.torch.tensors import Staged, buffer_for, check_written, hand_out, join, stage
from switchsum.torch.words import dtype_name
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.engine.operation import BITWISE, EACH
from switchsum_protocol.errors import UnsupportedDtype

SMALL_BYTES: Final = 16 * 1024
"""Tensors up to this size are fused: larger ones have enough frames of their own."""
_OP: Final = dist.ReduceOp.RedOpType
_ANY: Final = {_OP.SUM, _OP.MAX, _OP.BOR}
_ALL: Final = {_OP.MIN, _OP.PRODUCT, _OP.BAND}
_BITWISE: Final = {
    _OP.__members__[f"B{name.upper()}"]: name for name in BITWISE if f"B{name.upper()}" in _OP.__members__
}
"""The switch's operators on bits by torch's: "or" is BOR there."""
_BITS: Final = {_OP.BAND, _OP.BOR, _OP.BXOR}
_FLOATS: Final = {torch.float32, torch.float16, torch.bfloat16}
_NARROW: Final = {torch.int8, torch.uint8, torch.int16}
_INTEGERS: Final = {*_NARROW, torch.int32, torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """One tensor's reduction: dtype, operator and what is done before and after."""

    operator: str
    """The communicator's."""
    name: str
    """torch's name of the operator: several of torch's may be one of the communicator's."""
    dtype: torch.dtype | None = None
    """Dtype in which the values travel. None: their own."""
    is_inverted: bool = False
    """True: all bits are inverted on the way, so that `or` computes `and`."""
    divisor: int = 1
    """Divisor of the results, rounded towards zero. Averages of integers are sums here."""

    @property
    def _is_as_is(self) -> bool:
        """Whether the results mean what they say."""
        return not self.is_inverted and self.divisor == 1

    def stage(self, tensor: torch.Tensor, *, copy: bool = False) -> Staged:
        """Bring a tensor's values to where they can be reduced."""
        part = stage(tensor, self.dtype, copy=copy or not self._is_as_is)
        if self.is_inverted:
            part.arrive()
            part.values.bitwise_not_()
        return part

    def stage_result(self, tensor: torch.Tensor) -> Staged:
        """Bring a buffer for a result of the tensor's shape to where it can be written."""
        return buffer_for(tensor, self.dtype, copy=not self._is_as_is)

    def convert(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what the results mean in the tensor's own dtype; sums that do not fit it wrap, as torch's do."""
        if self.divisor != 1:
            values = values.div(self.divisor, rounding_mode="trunc")
        return (values.bitwise_not() if self.is_inverted else values).to(dtype)


def choose(  # noqa: PLR0912 - one case after the other
    op: Any, tensor: torch.Tensor, ranks: int
) -> Reduction | str:
    """Return how the switch reduces a tensor over so many ranks, or what it is that it cannot do.

    Raises UnsupportedDtype for what nobody can reduce.
    """
    op, dtype = kind_of(op), tensor.dtype
    if op == _OP.PREMUL_SUM:
        raise UnsupportedDtype("PREMUL_SUM is NCCL's alone: multiply the tensor by the factor first, and use SUM")
    if tensor.layout != torch.strided:
        return f"of {tensor.layout}"
    if dtype == torch.bool and op in _ANY | _ALL:
        return Reduction(name=op.name, operator="max" if op in _ANY else "min")
    if op in _BITS and (dtype.is_floating_point or dtype.is_complex):
        raise UnsupportedDtype(f"{op.name} of {dtype_name(dtype)}: bits are combined of integers and bool alone")
    if dtype.is_complex and op not in (_OP.SUM, _OP.AVG):
        raise UnsupportedDtype(f"{op.name} of {dtype_name(dtype)}: complex numbers are added alone")
    if dtype == torch.bool and op == _OP.AVG:
        raise UnsupportedDtype("bool cannot be averaged: convert the tensor, for example with .to(torch.float32)")
    if op in (_OP.SUM, _OP.AVG) and dtype in _NARROW:
        return Reduction(name=op.name, operator="sum", dtype=torch.int32, divisor=1 if op == _OP.SUM else ranks)
    if op == _OP.AVG and dtype in _INTEGERS:
        return Reduction(name=op.name, operator="sum", divisor=ranks)
    if op == _OP.SUM and dtype in _FLOATS | _INTEGERS:
        return Reduction(name=op.name, operator="sum")
    if op == _OP.AVG and dtype in _FLOATS:
        return Reduction(name=op.name, operator="average")
    if op in (_OP.MAX, _OP.MIN) and dtype in {*_FLOATS, *_INTEGERS, torch.float64}:
        return Reduction(name=op.name, operator="max" if op == _OP.MAX else "min")
    if op == _OP.BAND and dtype in _INTEGERS:
        return Reduction(name=op.name, operator="or", is_inverted=True)
    if op in _BITWISE and dtype in _INTEGERS:
        return Reduction(name=op.name, operator=_BITWISE[op])
    return f"({op.name}) of {dtype_name(dtype)}"


def kind_of(op: Any) -> Any:
    """Return which operator it is: options carry an object around it, which equals it from one side only."""
    return next(kind for kind in _OP.__members__.values() if op == kind)


@dataclass(frozen=True, slots=True)
class Fused:
    """Tensors that are reduced as one."""

    reduction: Reduction
    tensors: list[torch.Tensor]
    part: Staged

    def write_result(self) -> None:
        """Write the results to the tensors."""
        hand_out(self.reduction.convert(self.part.values, self.tensors[0].dtype), self.tensors, self.part)


@dataclass(frozen=True, slots=True)
class Single:
    """A tensor that is reduced where it is, if it can be."""

    reduction: Reduction
    part: Staged

    def write_result(self) -> None:
        """Write the result to the tensor."""
        self.part.write_result(lambda values: self.reduction.convert(values, self.part.tensor.dtype))


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
