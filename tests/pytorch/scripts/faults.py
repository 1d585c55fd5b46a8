"""Trainings in which something goes wrong.

`dies`, `raises`, `cleans`, `exits`, `first`, `starter`, `switch`, `late`, `overflow`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def dies() -> None:
    """Rank 1 dies in its backward pass; the others hear of it."""
    model = DistributedDataParallel(nn.Linear(6, 2))
    for step in range(3):
        if step == 2 and dist.get_rank() == 1:
            model.module.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        model(torch.ones(4, 6)).sum().backward()


def raises() -> None:
    """Rank 1 ends with an exception, and without destroy_process_group, while the others wait for it."""
    if dist.get_rank() == 1:
        raise ZeroDivisionError("as it is meant to be")
    dist.all_reduce(torch.ones(4))


def cleans() -> None:
    """Rank 1 ends with an exception that it cleans up after, while the others wait for it."""
    try:
        raises()
    finally:
        if dist.get_rank() == 1:
            dist.destroy_process_group()


def exits() -> None:
    """Rank 1 ends with an exit code, and without an exception, while the others wait for it."""
    if dist.get_rank() == 1:
        sys.exit(1)
    dist.all_reduce(torch.ones(4))


def first() -> None:
    """Rank 0, which has made the job and would remove it, dies."""
    if dist.get_rank() == 0:
        print(os.environ["SWITCHSUM_CONTROLLER"], flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def starter() -> None:
    """Rank 0, which has started switch and controller, dies while rank 1 waits for it and rank 2 for nothing."""
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    membership = dist.group.WORLD.connect().queue.membership
    while dist.get_rank() == 2 and membership.error is None:
        time.sleep(0.01)
    dist.all_reduce(torch.ones(4))


def switch() -> None:
    """The switch that rank 0 has started is killed while the others wait for rank 0, which goes on."""
    if dist.get_rank() == 0:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        [pid] = [int(one) for one in children if b"--shm" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")]
        os.kill(pid, signal.SIGKILL)
    store = dist.distributed_c10d._get_default_store()
    try:
        dist.all_reduce(torch.ones(4))
    finally:
        store.set(f"told {dist.get_rank()}", "")
        if dist.get_rank() == 0:  # with its end the controller ends, which is another thing to hear of
            store.wait([f"told {rank}" for rank in range(dist.get_world_size())])


def late() -> None:
    """Rank 1 comes later than the group's time-out allows."""
    if dist.get_rank() != 1:
        dist.all_reduce(torch.ones(4))
    else:
        time.sleep(10 + float(sys.argv[2]))


def overflow() -> None:
    """A gradient of one rank is infinite: every rank skips that step. Then shapes change."""
    model = DistributedDataParallel(nn.Linear(6, 2))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        before = model.module.weight.detach().clone()
        scale = scaler.get_scale()
        data = torch.ones(4 + step, 6)
        if step == 1 and dist.get_rank() == 1:
            data[0, 0] = float("inf")
        optimizer.zero_grad()
        scaler.scale(model(data).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        is_skipped = step == 1
        assert torch.equal(before, model.module.weight.detach()) == is_skipped
        assert (scaler.get_scale() < scale) == is_skipped
    for size in (3, 700, 1, 70_000):
        tensor = torch.ones(size)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, torch.full((size,), float(dist.get_world_size())))
    print("every rank went on", flush=True)


if __name__ == "__main__":
    name, timeout_s = sys.argv[1], float(sys.argv[2])
    try:
        dist.init_process_group("switchsum", timeout=timedelta(seconds=timeout_s))
        began = time.monotonic()
        {
            "dies": dies,
            "first": first,
            "starter": starter,
            "switch": switch,
            "raises": raises,
            "cleans": cleans,
            "exits": exits,
            "late": late,
            "overflow": overflow,
        }[name]()
    except ZeroDivisionError:
        raise
    except Exception as error:
        print(f"{type(error).__name__} after {time.monotonic() - began:.0f} s: {error}", flush=True)
        raise SystemExit(3) from error
    dist.destroy_process_group()
