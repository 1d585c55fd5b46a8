"""Sub-groups: a ring of them that each rank begins elsewhere, and more of them than a switch has large shares for."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

from switchsum_protocol.errors import CollectiveTimeout

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


def check_lists() -> None:
    """Ranks make other groups at the same time, and in other orders; each group has its own ranks' sums."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = [rank % 2, rank % 2 + 2]
    tensor = torch.tensor([rank + 1.0])
    dist.all_reduce(tensor, group=dist.new_group(own))
    assert tensor.item() == sum(own) + 2
    all_, pair = list(range(size)), [rank // 2 * 2, rank // 2 * 2 + 1]
    lists = [all_, pair, pair] if rank in (0, 3) else [pair, pair, all_]
    groups = [(one, dist.new_group(one, use_local_synchronization=True)) for one in lists]
    for one, group in sorted(groups, key=lambda pair: -len(pair[0])):
        tensor = torch.tensor([rank + 1.0])
        dist.all_reduce(tensor, group=group)
        assert tensor.item() == sum(one) + len(one)


def check_vain(timeout_s: float) -> None:
    """Each rank waits for one that has made another group, and is told which."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = sorted([rank, (rank + 1) % size])
    group = dist.new_group(own, timeout=timedelta(seconds=timeout_s), use_local_synchronization=True)
    try:
        dist.all_reduce(torch.ones(1), group=group)
    except CollectiveTimeout as error:
        print(f"in vain: {error}", flush=True)


def check_unused() -> None:
    """Groups that are closed while their ranks join leave nothing behind."""
    for _ in range(5):
        dist.new_group()
    dist.new_group([dist.get_rank(), (dist.get_rank() + 1) % dist.get_world_size()], use_local_synchronization=True)
    dist.destroy_process_group()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("switchsum torch join")]


if __name__ == "__main__":
    dist.init_process_group("switchsum")
    if len(sys.argv) > 1:
        check_lists()
        dist.barrier()
        check_vain(float(sys.argv[1]))
        dist.barrier()
        check_unused()
        print("lists are kept apart", flush=True)
        sys.exit()
    check_ring()
    check_many()
    dist.barrier()
    print("sub-groups are right", flush=True)
    dist.destroy_process_group()
