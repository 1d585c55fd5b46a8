"""Which of torch's reductions the switch can do, for which dtypes, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from switchsum.host.engine.operation import BITWISE
from switchsum.protocol.errors import UnsupportedDtype
from switchsum.torch.tensors import Staged, room, stage
from switchsum.torch.words import dtype_name

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
    """How the switch reduces one tensor."""

    operator: str
    """The communicator's."""
    name: str
    """torch's name of the operator: several of torch's may be one of the communicator's."""
    dtype: torch.dtype | None = None
    """What the values travel as; None: as they are."""
    is_inverted: bool = False
    """Whether all bits travel inverted, which makes an `or` of an `and`."""
    divisor: int = 1
    """What the results are divided by, towards zero: averages of integers are sums here."""

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
        """Bring room for a result of the tensor's shape to where it can be written."""
        return room(tensor, self.dtype, copy=not self._is_as_is)

    def convert(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what the results mean in the tensor's own dtype; sums that do not fit it wrap, as torch's do."""
        if self.divisor != 1:
            values = values.div(self.divisor, rounding_mode="trunc")
        return (values.bitwise_not() if self.is_inverted else values).to(dtype)

    def deliver(self, part: Staged) -> None:
        """Write the result to the tensor."""
        part.deliver(lambda values: self.convert(values, part.tensor.dtype))


def choose(op: Any, tensor: torch.Tensor, ranks: int) -> Reduction | str:
    """Return how the switch reduces a tensor over so many ranks, or what it is that it cannot do.

    Raises UnsupportedDtype for what nobody can reduce.
    """
    op, dtype = kind_of(op), tensor.dtype
    if tensor.layout != torch.strided:
        return f"of {tensor.layout}"
    if dtype == torch.bool and op in _ANY | _ALL:
        return Reduction(name=op.name, operator="max" if op in _ANY else "min")
    if op in _BITS and (dtype.is_floating_point or dtype.is_complex):
        raise UnsupportedDtype(f"{op.name} of {dtype_name(dtype)}: bits are combined of integers and bool alone")
    if dtype.is_complex and op not in (_OP.SUM, _OP.AVG):
        raise UnsupportedDtype(f"{op.name} of {dtype_name(dtype)}: complex numbers are added alone")
    if dtype == torch.bool and op == _OP.AVG:
        raise UnsupportedDtype("an average of bool is no bool: convert the tensor, as by .to(torch.float32)")
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


def deliver(parts: Iterable[tuple[Reduction, Staged]]) -> None:
    """Write results to tensors."""
    for reduction, part in parts:
        reduction.deliver(part)


def kind_of(op: Any) -> Any:
    """Return which operator it is: options carry an object around it, which equals it from one side only."""
    return next(kind for kind in _OP.__members__.values() if op == kind)
