"""Which of torch's reductions the switch can do, for which dtypes, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from switchsum.host.pytorch.tensors import SUMMED, WIDENED, Staged, stage

_OP: Final = dist.ReduceOp.RedOpType
_ANY: Final = {_OP.SUM, _OP.MAX, _OP.BOR}
_ALL: Final = {_OP.MIN, _OP.PRODUCT, _OP.BAND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """How the switch reduces one tensor."""

    operator: str
    """The communicator's."""
    dtype: torch.dtype | None = None
    """What the values travel as; None: as they are."""
    threshold: int = 0
    """Of booleans: how many ranks must have True."""

    def stage(self, tensor: torch.Tensor, *, copy: bool = False) -> Staged:
        """Bring a tensor's values to where they can be reduced."""
        return stage(tensor, self.dtype, copy=copy)

    def stage_result(self, tensor: torch.Tensor) -> Staged:
        """Bring room for a result of the tensor's shape to where it can be written."""
        return stage(tensor, self.dtype)

    def convert(self, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what the sums mean in the tensor's own dtype."""
        return values >= self.threshold if dtype == torch.bool else values.to(dtype)

    def deliver(self, part: Staged) -> None:
        """Write the result to the tensor."""
        part.deliver(None if self.dtype is None else lambda values: self.convert(values, part.tensor.dtype))


def choose(op: Any, tensor: torch.Tensor, ranks: int) -> Reduction | str:
    """Return how the switch reduces a tensor, or what it is that it cannot do."""
    op = _kind(op)
    if tensor.layout != torch.strided:
        return f"of {tensor.layout}"
    if tensor.dtype == torch.bool:
        if op in _ANY or op in _ALL:
            return Reduction(operator="sum", dtype=torch.int32, threshold=1 if op in _ANY else ranks)
    elif op == _OP.SUM and tensor.dtype in WIDENED:
        return Reduction(operator="sum", dtype=torch.int32)
    elif (op == _OP.SUM or (op == _OP.AVG and tensor.dtype.is_floating_point)) and tensor.dtype in SUMMED:
        return Reduction(operator="sum" if op == _OP.SUM else "average")
    return f"({op.name}) of {str(tensor.dtype).removeprefix('torch.')}"


def _kind(op: Any) -> Any:
    """Return which operator it is: options carry an object around it, which equals it from one side only."""
    return next(kind for kind in _OP.__members__.values() if op == kind)
