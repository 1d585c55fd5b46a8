"""Messages between ranks over torch's gloo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.distributed as dist

from switchsum_lab.sweeps.sparse_hosts import Octets


class GlooPeers:
    """Messages of any size; each is announced by its size.

    A pair of ranks has a connection for each direction: over one alone gloo reaches half of the rate when both send.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.ranks = dist.get_world_size()
        self._groups = [dist.new_group(), dist.new_group()]

    def _group(self, source: int, target: int) -> dist.ProcessGroup:
        return self._groups[source < target]

    def swap(self, outgoing: Mapping[int, Octets], sources: Sequence[int]) -> dict[int, Octets]:
        """See `sparse_hosts.Peers`."""
        works = []
        for rank, octets in outgoing.items():
            group = self._group(self.rank, rank)
            works.append(dist.isend(torch.tensor([len(octets)]), rank, group))
            if len(octets):
                works.append(dist.isend(torch.from_numpy(octets), rank, group))
        groups = {rank: self._group(rank, self.rank) for rank in sources}
        sizes = {rank: torch.zeros(1, dtype=torch.int64) for rank in sources}
        for announced in [dist.irecv(sizes[rank], rank, groups[rank]) for rank in sources]:
            announced.wait()
        came = {rank: np.empty(int(sizes[rank][0]), np.uint8) for rank in sources}
        works += [dist.irecv(torch.from_numpy(came[rank]), rank, groups[rank]) for rank in sources if len(came[rank])]
        for work in works:
            work.wait()
        return came
