"""A training that goes on from its checkpoint after a rank has died in the middle of a backward pass."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 8
DEATH = 5


def main(folder: Path) -> None:
    """Train, a checkpoint after each step."""
    dist.init_process_group("switchsum")
    rank, first_time = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    checkpoint, begun = folder / "checkpoint", 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        begun = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for step in range(begun, STEPS):
        if first_time and step == DEATH and rank == 1:
            model.module.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        optimizer.zero_grad()
        data = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + rank))
        model(data).square().mean().backward()
        optimizer.step()
        if rank == 0:
            state = {"step": step + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, folder / "next")
            (folder / "next").rename(checkpoint)
    if rank == 0:
        weights = model.module.weight.detach().reshape(-1).tolist()
        (folder / "result").write_text(json.dumps({"begun": begun, "weights": weights}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
