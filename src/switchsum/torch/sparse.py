"""Sums of sparse tensors, as nn.Embedding(sparse=True) has for gradients: only rows that somebody has travel."""

from __future__ import annotations

import numpy as np
import torch

from switchsum.torch.tensors import stage
from switchsum_host.api import sparse
from switchsum_host.api.collectives import Options
from switchsum_host.api.communicator import Communicator


class SparseSum:
    """One sum under way: the rows are agreed on already, their values travel.

    The steps before are taken at once, and not by a thread: waking one up on each rank takes longer than they do.
    """

    def __init__(self, communicator: Communicator, tensor: torch.Tensor, how: Options) -> None:
        """Agree on the rows, and begin the sum; the tensor is sparse in its first dimension only."""
        self._tensor = tensor
        own = tensor.detach().coalesce()
        indices = own.indices()[0].cpu().numpy()
        self._part = stage(own.values())
        values = self._part.array()
        self._sum = sparse.allreduce_sparse(communicator, indices, values, own.shape[0], how, True)
        self.handle = self._sum.handle

    def write_result(self) -> None:
        """Write the sum, once it is there, to the tensor."""
        total: sparse.SparseSum = self._sum.result()
        octets = torch.from_numpy(
            np.ascontiguousarray(total.values).reshape(-1).view(np.uint8)
        )  # bfloat16 is not numpy's
        values = octets.view(self._tensor.dtype).reshape(len(total.indices), *self._tensor.shape[1:])
        self._part.lift(lambda: self._write(torch.from_numpy(total.indices)[None], values))

    def _write(self, indices: torch.Tensor, values: torch.Tensor) -> None:
        device, shape = self._tensor.device, self._tensor.shape
        whole = torch.sparse_coo_tensor(
            indices.to(device), values.to(device), shape, device=device, is_coalesced=True, check_invariants=False
        )
        with torch.no_grad():
            self._tensor.copy_(whole)  # a detached sparse tensor would be another one
            for part in (self._tensor._indices(), self._tensor._values()):
                self._part.give(part)
