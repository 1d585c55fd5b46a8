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
        dtype = self.values.dtype
        if dtype == torch.bfloat16:  # numpy has none of its own
            return shared_array(self.values, np.dtype(ml_dtypes.bfloat16))
        return shared_array(self.values, np.dtype(str(dtype).removeprefix("torch.")))

    def bits(self) -> npt.NDArray[np.uint8]:
        """Return the values as bytes, in the same memory."""
        return shared_array(self.values, np.dtype(np.uint8)).reshape(-1)


class _Memory:
    """A tensor's memory, as numpy asks for it."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, tensor: torch.Tensor, octets: int) -> None:
        self._owner = tensor  # numpy keeps this object, and so the tensor, as long as there is an array of it
        place = (tensor.data_ptr(), False)
        self.__array_interface__ = {"shape": (octets,), "typestr": "|u1", "data": place, "version": 3}


def shared_array(tensor: torch.Tensor, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a contiguous tensor's memory as an array of the tensor's shape, or of its bytes if `dtype` is one byte.

    `tensor.numpy()` would do, but that a tensor which has been numpy's can never be resized again.
    """
    octets = tensor.numel() * tensor.element_size()
    shape = tuple(tensor.shape) if dtype.itemsize == tensor.element_size() else (octets,)
    if octets == 0:
        return np.empty(shape, dtype)
    return np.asarray(_Memory(tensor, octets)).view(dtype).reshape(shape)


def is_away(tensor: torch.Tensor) -> bool:
    """Whether a tensor's values are not in ordinary memory, but on a GPU."""
    return tensor.device.type != "cpu"


def empty(shape: Sequence[int], dtype: torch.dtype, *, like: torch.Tensor) -> torch.Tensor:
    """Return ordinary memory for values of a tensor: pinned, where they come from a GPU or go to one."""
    return torch.empty(tuple(shape), dtype=dtype, pin_memory=like.device.type != "cpu")


def room(tensor: torch.Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Staged:
    """Return room for a result of a tensor's shape: what the tensor holds is not looked at."""
    plain = tensor.detach()
    if _is_usable(plain, dtype) and not copy:
        return Staged(tensor=tensor, values=tensor)
    return Staged(tensor=tensor, values=empty(plain.shape, dtype or plain.dtype, like=plain))


def join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors' values side by side, on their device: from there they come down in one piece."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def hand_out(values: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """Write values that lie side by side to the tensors: up in one piece if these are on a GPU."""
    if tensors and is_away(tensors[0]):
        values = values.to(tensors[0].device)
    for tensor, part in zip(tensors, values.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.detach().copy_(part.reshape(tensor.shape))


def _is_usable(plain: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """Whether a tensor's own memory can be read and written by address, as values of that dtype."""
    is_plain = plain.is_contiguous() and not plain.is_conj() and not plain.is_neg()
    return not is_away(plain) and is_plain and dtype in (None, plain.dtype)


def stage(tensor: torch.Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Staged:
    """Bring a tensor's values to ordinary memory, as `dtype` if given; those of a GPU go to pinned memory."""
    plain = tensor.detach()
    if _is_usable(plain, dtype) and not copy:
        return Staged(tensor=tensor, values=tensor)
    values = empty(plain.shape, dtype or plain.dtype, like=plain)
    values.copy_(plain)
    return Staged(tensor=tensor, values=values)


def same_size(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors have as many values, of one dtype."""
    return len({(tensor.numel(), tensor.dtype) for tensor in tensors}) == 1
