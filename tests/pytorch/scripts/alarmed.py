"""Signal handlers in the midst of collectives: `interrupted`, `backward`, `destroyed`, `destroyed_with_futures`."""

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

from switchsum_protocol.errors import SwitchsumError


class Alarm(Exception):
    """What the handler raises."""


def ring(*_: object) -> None:
    """Raise it."""
    raise Alarm


def interrupted() -> None:
    """Rank 0 is late; the handler of rank 1 raises while it waits, and whatever it calls then has a named error."""
    signal.signal(signal.SIGALRM, ring)
    rank, tensor = dist.get_rank(), torch.ones(50_000)
    dist.barrier()
    if rank == 0:
        time.sleep(0.3)
    else:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    heard = 0
    for _ in range(3):
        try:
            dist.all_reduce(tensor)
        except Alarm:
            heard += 1
        except SwitchsumError as error:
            print(f"named: {type(error).__name__}", flush=True)
            break
    assert heard == rank
    os._exit(0)  # without a farewell, of which the other rank would hear


def backward() -> None:
    """Rank 0 is late in its backward pass; the handler of rank 1 raises in its own: both end with a named error."""
    signal.signal(signal.SIGALRM, ring)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(30, 300), nn.Linear(300, 2)), bucket_cap_mb=0.005)
    rank = dist.get_rank()

    def delay(_: torch.Tensor) -> None:
        if rank == 0:
            time.sleep(0.3)
        else:
            signal.setitimer(signal.ITIMER_REAL, 0.1)

    for parameter in list(model.parameters())[:1]:
        parameter.register_hook(delay)
    for step in range(6):
        try:
            model(torch.full((8, 30), 0.1 * (step + rank))).square().mean().backward()
        except Alarm:
            pass  # it goes on, or the next pass has a named error
        except RuntimeError as error:  # C++ hands on the text
            print("named:", *(name for name in ("Interrupted", "WorkerLost") if name in str(error)), flush=True)
            break
    os._exit(0)


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
