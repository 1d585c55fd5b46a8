"""Tensors as the communicator wants them, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A tensor's values in ordinary memory, contiguous: the tensor itself if it is so, else a copy."""

    tensor: torch.Tensor
    """The caller's."""
    values: torch.Tensor

    def deliver(self, convert: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        """Write the values to the caller's tensor, where they are not already."""
        if self.values is not self.tensor:
            values = self.values if convert is None else convert(self.values)
            self.tensor.detach().copy_(values)

    def array(self) -> npt.NDArray[Any]:
        """Return the values as numpy's, in the same memory."""
        values = self.values.detach()
        if values.dtype == torch.bfloat16:  # numpy has none of its own
            return values.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        array: npt.NDArray[Any] = values.numpy()
        return array

    def bits(self) -> npt.NDArray[np.uint8]:
        """Return the values as bytes, in the same memory."""
        array: npt.NDArray[np.uint8] = self.values.detach().reshape(-1).view(torch.uint8).numpy()
        return array


def stage(tensor: torch.Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Staged:
    """Bring a tensor's values to ordinary memory, as `dtype` if given; those of a GPU go to pinned memory."""
    plain = tensor.detach()
    if plain.device.type != "cpu":
        values = torch.empty(plain.shape, dtype=dtype or plain.dtype, pin_memory=True)
        values.copy_(plain)
    elif copy or dtype not in (None, plain.dtype) or not plain.is_contiguous() or plain.is_conj() or plain.is_neg():
        values = torch.empty(plain.shape, dtype=dtype or plain.dtype)
        values.copy_(plain)
    else:
        values = tensor
    return Staged(tensor=tensor, values=values)


def same_size(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors have as many values, of one dtype."""
    return len({(tensor.numel(), tensor.dtype) for tensor in tensors}) == 1
