"""A group of several backends: what is on a device goes to the backend of that device."""

from __future__ import annotations

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import switchsum.torch


def through_the_switch(group: dist.ProcessGroup | None = None) -> int:
    """Return how many collectives of this rank went through the switch."""
    counted = switchsum.torch.statistics(group).switch
    return 0 if counted is None else counted.collectives


def check(group: dist.ProcessGroup | None, is_switch: bool) -> None:
    """Use a group's CPU tensors in many ways, and look at who has served them."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    before = through_the_switch(group)
    tensor = torch.full((700,), rank + 1.0)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    assert work is not None
    work.wait()
    assert work.is_completed()
    assert tensor[-1].item() == size * (size + 1) / 2
    gathered = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(gathered, torch.full((3,), float(rank)), group=group)
    assert [one[0].item() for one in gathered] == [float(one) for one in range(size)]
    part = torch.zeros(5)
    dist.reduce_scatter_single(part, torch.ones(5 * size), group=group)
    assert part.tolist() == [float(size)] * 5
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    assert objects == [{"rank": one} for one in range(size)]
    assert (through_the_switch(group) > before) == is_switch
    before = through_the_switch(group)
    dist.barrier(group)
    assert through_the_switch(group) > before  # it has no tensor


def check_training(is_switch: bool) -> None:
    """Let DDP's reducer, which is C++, use the group."""
    before = through_the_switch()
    model = DistributedDataParallel(nn.Linear(6, 2))
    model(torch.full((4, 6), dist.get_rank() + 1.0)).sum().backward()
    size = dist.get_world_size()
    gradient = model.module.weight.grad
    assert gradient is not None
    torch.testing.assert_close(gradient, torch.full((2, 6), 4 * (size + 1) / 2), rtol=1e-5, atol=0)
    assert (through_the_switch() > before) == is_switch


if __name__ == "__main__":
    backend = sys.argv[1]
    is_switch = "cpu:switchsum" in backend
    # torchrun's store keeps the addresses of torch's own gloo, which does not start again in it.
    for _ in range(2 if "switchsum" in backend.partition(",")[0] else 1):
        dist.init_process_group(backend, timeout=timedelta(seconds=90))
        assert dist.get_backend_config() == backend
        check(None, is_switch)
        check_training(is_switch)
        for ranks in ([0, 1], [1, 2]):
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                check(group, is_switch)
                dist.destroy_process_group(group)
        dist.destroy_process_group()
    print("both went where they belong", flush=True)
