"""Rank 1 is a new process in rank 0's second group, as one that replaces a lost rank is; both make a third one."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

LIMIT = timedelta(seconds=float(sys.argv[1]))


def main() -> None:
    """Make groups; print what they add."""
    rank = int(os.environ["RANK"])
    if rank == 0:
        dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        dist.destroy_process_group()
    sums = []
    for _ in range(2):
        dist.init_process_group("switchsum", timeout=LIMIT)
        values = torch.full((3,), rank + 1)
        dist.all_reduce(values)
        sums.append(values.tolist())
        dist.destroy_process_group()
    print(f"rank {rank} has {sums}")


if __name__ == "__main__":
    main()
