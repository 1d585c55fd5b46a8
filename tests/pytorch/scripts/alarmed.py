"""Signal handlers in the midst of collectives: `refilled`, `backward`, `destroyed`, `destroyed_with_futures`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Alarm(Exception):
    """What the handler raises."""


def ring(*_: object) -> None:
    """Raise it."""
    raise Alarm


def refilled() -> None:
    """Rank 0 is late; the handler of rank 1 raises while it waits, and the tensor is used again at once."""
    signal.signal(signal.SIGALRM, ring)
    rank, ranks, hits = dist.get_rank(), dist.get_world_size(), 0
    for size in (10, 50_000):
        for turn in range(3):
            dist.barrier()
            tensor = torch.full((size,), float(turn + 1))
            if rank == 0:
                time.sleep(0.3)
            elif rank == 1:
                signal.setitimer(signal.ITIMER_REAL, 0.1)
            try:
                dist.all_reduce(tensor)
            except Alarm:
                hits += 1
            tensor.fill_(100.0)
            dist.all_reduce(tensor)
            assert tensor.unique().tolist() == [100.0 * ranks], tensor.unique()
    assert hits == 6 * (rank == 1), hits


def backward() -> None:
    """Rank 0 is late in its backward passes; the handler of rank 1 raises in its own, which comes to its end."""
    signal.signal(signal.SIGALRM, ring)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 300), nn.Linear(300, 2)), bucket_cap_mb=0.005)
    optimizer, rank, hits = torch.optim.SGD(model.parameters(), 0.01), dist.get_rank(), 0

    def delay(_: torch.Tensor) -> None:
        if rank == 0:
            time.sleep(0.3)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.1)

    for parameter in list(model.parameters())[:1]:
        parameter.register_hook(delay)
    for step in range(6):
        loss = model(torch.full((8, 30), 0.1 * (step + rank))).square().mean()
        optimizer.zero_grad()
        try:
            loss.backward()
        except Alarm:
            hits += 1
        optimizer.step()
    assert hits == 6 * rank, hits
    own = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    assert all(torch.equal(one, own) for one in every)


def destroyed(with_futures: bool = False) -> None:
    """What is told to end cleans up in its handler while a collective is under way."""

    def clean_up(*_: object) -> None:
        dist.destroy_process_group()
        print("cleaned up", flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, clean_up)
    tensor = torch.ones(3_000_000)
    dist.all_reduce(tensor)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    while True:
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
        futures = [work.get_future()] * with_futures
        work.wait()
        for future in futures:
            future.wait()  # another thread may just be about it


def destroyed_with_futures() -> None:
    """Callbacks are kept in order, for which the thread that completes futures waits for this one."""
    destroyed(with_futures=True)


if __name__ == "__main__":
    dist.init_process_group("switchsum", timeout=timedelta(seconds=60))
    globals()[sys.argv[1]]()
    if dist.is_initialized():
        dist.destroy_process_group()
    print("well", flush=True)
