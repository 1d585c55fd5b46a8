"""Checkpoints of torch.distributed.checkpoint: a sharded model and its optimizer, saved at once and beside training."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def network(seed: int) -> nn.Sequential:
    """Return the same model on every rank."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 33), nn.Tanh(), nn.Linear(33, 2))


class Trained:
    """A model of which each rank has a shard, and its optimizer."""

    def __init__(self, seed: int) -> None:
        self.model = network(seed)
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (self.model[0], self.model[2], self.model):
            fully_shard(layer, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 0.01)

    def train(self, first: int, last: int) -> None:
        """Take steps, each on a rank's own batch."""
        for step in range(first, last):
            generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 6, generator=generator)).square().mean().backward()
            self.optimizer.step()

    def whole(self) -> list[torch.Tensor]:
        """Return all ranks' parameters."""
        return [one.full_tensor().detach().clone() for one in self.model.parameters()]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint."""
        state = self.state()
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def main(folder: Path) -> None:
    """Save twice after two steps, and go on from both."""
    dist.init_process_group("switchsum")
    first = Trained(seed=0)
    first.train(0, 2)
    saved = first.whole()
    dcp.save(first.state(), checkpoint_id=folder / "at once")
    # A group of its own: what its thread does comes between the training's collectives in another order on each rank.
    pending = dcp.async_save(first.state(), checkpoint_id=folder / "beside", process_group=dist.new_group())
    first.train(2, 5)
    pending.result()
    ended = first.whole()
    for name in ("at once", "beside"):
        second = Trained(seed=1)
        second.load(folder / name)
        assert all(map(torch.equal, second.whole(), saved)), name
        second.train(2, 5)
        assert all(map(torch.equal, second.whole(), ended)), name  # the optimizer's moments are there, too
        one_process = network(seed=2)
        state = {"model": one_process.state_dict()}
        dcp.load(state, checkpoint_id=folder / name)
        assert all(map(torch.equal, state["model"].values(), saved)), name
    print("trains on from both checkpoints", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
