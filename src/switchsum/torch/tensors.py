"""Tensors as the communicator wants them, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from switchsum.torch import staging
from switchsum_protocol.errors import UsageError

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are copied from a GPU at a time. Meanwhile earlier pieces are packed and sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A tensor's values in ordinary memory, contiguous: the tensor itself if it is so, else a copy."""

    tensor: torch.Tensor
    """The caller's."""
    values: torch.Tensor
    device: staging.Device | None = None
    """Object that copies results back to the device. None: they are there once they are copied."""
    after: staging.Mark | None = None
    """Event of the caller's stream: the work that it had when the values were asked for."""
    source: torch.Tensor | None = None
    """Tensor that is copied down. It must not be freed before the copy has ended."""
    coming: tuple[staging.Mark, ...] = ()
    """The ends of the pieces' way down."""

    def lift(self, copies: Callable[[], object]) -> None:
        """Copy values to the device, and wait until they are there."""
        if self.device is None or self.after is None:
            copies()
        else:
            self.device.up(copies, self.after).synchronize()

    def give(self, tensor: torch.Tensor) -> None:
        """Give the caller a tensor whose memory copies up have taken."""
        if self.device is not None and self.after is not None:
            self.device.give(tensor, self.after)

    def arrive(self) -> None:
        """Wait until the values are here."""
        for mark in self.coming:
            mark.synchronize()

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the values piece by piece, as they arrive, or at once where they are here."""
        if len(self.coming) < 2:
            yield self.array()
            return
        values, count = self.plain().reshape(-1), _piece(self.values)
        for number, mark in enumerate(self.coming):
            mark.synchronize()
            yield values[number * count : (number + 1) * count]

    def write_result(self, convert: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        """Write the values to the caller's tensor, where they are not already."""
        if self.values is not self.tensor:
            values = self.values if convert is None else convert(self.values)
            self.lift(lambda: self.tensor.detach().copy_(values, non_blocking=self.device is not None))

    def array(self) -> npt.NDArray[Any]:
        """Return the values as numpy's, in the same memory."""
        self.arrive()
        return self.plain()

    def plain(self) -> npt.NDArray[Any]:
        """Do the same for memory whose values may still be on their way."""
        dtype = self.values.dtype
        if dtype == torch.bfloat16:  # numpy has none of its own
            return shared_array(self.values, np.dtype(ml_dtypes.bfloat16))
        return shared_array(self.values, np.dtype(str(dtype).removeprefix("torch.")))

    def bits(self) -> npt.NDArray[np.uint8]:
        """Return the values as bytes, in the same memory."""
        self.arrive()
        return shared_array(self.values, np.dtype(np.uint8)).reshape(-1)

    def rows(self, count: int) -> npt.NDArray[np.uint8]:
        """Return so many rows of bytes, in the same memory: one for each rank."""
        bits = self.bits()
        return bits.reshape(count, len(bits) // count)


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
    """Return whether a tensor's values are not in ordinary memory, but on a GPU."""
    return tensor.device.type != "cpu"


def apart(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, *, like: torch.Tensor) -> Staged:
    """Return ordinary memory for values of a tensor: pinned, where they come from a GPU or go to one."""
    device = staging.device_of(like)
    if device is None:
        values = torch.empty(tuple(shape), dtype=dtype, device="cpu", pin_memory=like.device.type != "cpu")
        return Staged(tensor=tensor, values=values)
    return Staged(tensor=tensor, values=device.pinned(tuple(shape), dtype), device=device, after=device.now())


def _piece(values: torch.Tensor) -> int:
    """Return how many values come down at a time."""
    return PIECE_BYTES // values.element_size()


def check_has_values(tensor: torch.Tensor) -> None:
    """Refuse a tensor of the device `meta`; raises UsageError."""
    if tensor.is_meta:
        raise UsageError(
            "a tensor on the device 'meta' has no values that could be sent: materialize it first, for example with "
            "module.to_empty(device='cpu')"
        )


def check_written(*tensors: torch.Tensor) -> None:
    """Refuse, before anything is begun, to write results to where several values share memory; raises UsageError."""
    for one in tensors:
        check_has_values(one)
        if one.layout != torch.strided or one.numel() == 0:
            continue
        if any(step == 0 and size > 1 for size, step in zip(one.shape, one.stride(), strict=True)):
            raise UsageError(
                f"results cannot be written to a tensor whose values share memory, as those of expand() do (shape "
                f"{list(one.shape)}, strides {list(one.stride())}): call .clone() first"
            )


def buffer_for(tensor: torch.Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Staged:
    """Return a buffer for a result of a tensor's shape: what the tensor holds is not looked at."""
    check_written(tensor)
    plain = tensor.detach()
    if is_usable(plain, dtype) and not copy:
        return Staged(tensor=tensor, values=tensor)
    return apart(tensor, plain.shape, dtype or plain.dtype, like=plain)


def join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors' values side by side, on their device: from there they come down in one piece."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def hand_out(values: torch.Tensor, tensors: Sequence[torch.Tensor], part: Staged) -> None:
    """Write values of a part that lie side by side to the tensors: up in one piece if these are on a GPU."""

    def copies() -> None:
        up = values
        if tensors and is_away(tensors[0]):
            up = values.to(tensors[0].device, non_blocking=part.device is not None)
        for tensor, own in zip(tensors, up.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.detach().copy_(own.reshape(tensor.shape))

    part.lift(copies)


def is_usable(plain: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Return whether a tensor's own memory can be read and written by address, as values of that dtype."""
    is_plain = plain.is_contiguous() and not plain.is_conj() and not plain.is_neg()
    return not is_away(plain) and is_plain and dtype in (None, plain.dtype)


def stage(tensor: torch.Tensor, dtype: torch.dtype | None = None, *, copy: bool = False) -> Staged:
    """Bring a tensor's values to ordinary memory, as `dtype` if given; those of a GPU go to pinned memory."""
    check_has_values(tensor)
    plain = tensor.detach()
    if is_usable(plain, dtype) and not copy:
        return Staged(tensor=tensor, values=tensor)
    device = staging.device_of(plain)
    if device is None:
        part = apart(tensor, plain.shape, dtype or plain.dtype, like=plain)
        part.values.copy_(plain)
        return part
    # A copy is on the caller's stream, and so before the mark.  A tensor that is only marked as conjugate or negative
    # is computed here.  Otherwise torch would compute it in the host's copy at once, before the values have come.
    source = plain.resolve_conj().resolve_neg().reshape(-1)
    part = apart(tensor, plain.shape, dtype or plain.dtype, like=plain)
    assert part.after is not None
    count = _piece(part.values)
    coming = []
    for target, own in zip(part.values.reshape(-1).split(count), source.split(count), strict=True):
        coming.append(device.down(partial(target.copy_, own, non_blocking=True), part.after))
    return replace(part, source=source, coming=tuple(coming))


def same_size(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether all tensors have as many values, of one dtype."""
    return len({(tensor.numel(), tensor.dtype) for tensor in tensors}) == 1
