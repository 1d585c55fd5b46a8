"""Sub-groups: a ring of them that each rank begins elsewhere, and more of them than a switch has large shares for."""

from __future__ import annotations

import torch
import torch.distributed as dist

MANY = 20


def check_ring() -> None:
    """Each rank begins with the group that it shares with the next one: every group waits for a rank that is busy."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ring = [dist.new_group(sorted((one, (one + 1) % size))) for one in range(size)]
    own = [ring[rank], ring[rank - 1]]  # rank 0 begins with 0-1, rank 1 with 1-2, rank 2 with 2-0
    tensors = [torch.full((700,), rank + 1.0) for _ in own]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in zip(tensors, own, strict=True)]
    for work in works:
        work.wait()
    others = (rank + 1) % size, (rank - 1) % size
    assert [tensor[0].item() for tensor in tensors] == [rank + 1.0 + other + 1.0 for other in others]
    for group in own:
        dist.destroy_process_group(group)


def check_many() -> None:
    """All of them at work, with different sums."""
    groups = [dist.new_group() for _ in range(MANY)]
    tensors = [torch.full((300,), float(index)) for index in range(MANY)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in zip(tensors, groups, strict=True)]
    for work in works:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [dist.get_world_size() * index for index in range(MANY)]


if __name__ == "__main__":
    dist.init_process_group("switchsum")
    check_ring()
    check_many()
    dist.barrier()
    print("sub-groups are right", flush=True)
    dist.destroy_process_group()
