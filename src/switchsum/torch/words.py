"""Describes a call in words, in which ranks must agree and which errors quote."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import torch

_MOST_LISTED: Final = 4
_Kind = tuple[torch.dtype, tuple[int, ...], torch.layout]


def words(call: str, tensors: Sequence[torch.Tensor], op: str = "", root: int | None = None) -> str:
    """Describe a call: operator, root, and dtype and number of elements of each tensor in order.

    Shapes may differ between ranks, as over gloo; those of sparse tensors may not.
    """
    kinds = [
        (one.dtype, (one.numel(),) if one.layout == torch.strided else tuple(one.shape), one.layout) for one in tensors
    ]
    return _words(call, op, root, tuple(kinds))


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without its module."""
    return str(dtype).removeprefix("torch.")


@lru_cache(1024)
def _words(call: str, op: str, root: int | None, kinds: tuple[_Kind, ...]) -> str:
    listed = [_of_one(*one) for one in kinds]
    if len(listed) > _MOST_LISTED:
        rest = listed[_MOST_LISTED - 1 :]
        digest = zlib.crc32(" ".join(rest).encode())  # ranks whose lists differ there differ in this
        listed = [*listed[: _MOST_LISTED - 1], f"{len(rest)} more ({digest:08x})"]
    at = "" if root is None else f" at rank {root}"
    return f"{call}{f' ({op})' if op else ''}{at} of {', '.join(listed)}"


def _of_one(dtype: torch.dtype, sizes: tuple[int, ...], layout: torch.layout) -> str:
    sparse = "" if layout == torch.strided else "sparse "
    return f"{sparse}{dtype_name(dtype)}[{', '.join(map(str, sizes))}]"
