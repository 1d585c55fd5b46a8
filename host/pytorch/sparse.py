"""Sums of sparse tensors, as nn.Embedding(sparse=True) has for gradients: only rows that somebody has travel."""

from __future__ import annotations

import numpy as np
import torch

from switchsum.host.communicator import Communicator
from switchsum.host.pytorch.tensors import stage


class SparseSum:
    """One sum under way: the supports are agreed on already, the values travel.

    Every rank tells which rows it has, in bits; then all add the values of the union's rows, which is exact and in the
    same order everywhere, so that no index travels.
    """

    def __init__(self, communicator: Communicator, tensor: torch.Tensor, operator: str) -> None:
        """Agree on the rows, and begin the sum; the tensor is sparse in its first dimension only."""
        self._tensor = tensor
        own = tensor.detach().coalesce()
        indices = own.indices()[0].cpu().numpy()
        present = np.zeros(own.shape[0], np.bool_)
        present[indices] = True
        everybodys = communicator.allreduce(np.packbits(present), "or")
        union = np.unpackbits(everybodys, count=len(present)).view(np.bool_)
        self._rows = torch.from_numpy(np.flatnonzero(union))
        self._values = torch.zeros((len(self._rows), *own.shape[1:]), dtype=own.dtype)
        self._values[np.searchsorted(self._rows.numpy(), indices)] = own.values().cpu()
        self.handle = communicator.allreduce_async(stage(self._values).array(), operator)

    def deliver(self) -> None:
        """Write the sum to the tensor."""
        values = self._values.to(self._tensor.device)
        rows = self._rows[None].to(self._tensor.device)
        total = torch.sparse_coo_tensor(rows, values, self._tensor.shape, is_coalesced=True, check_invariants=False)
        with torch.no_grad():
            self._tensor.copy_(total)  # a detached sparse tensor would be another one
