"""DiLoCo around models that others have wrapped: `wrapped`, `shards`, `gloo`, `accelerate`, `lightning`."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch import DiLoCo
from switchsum_protocol.errors import UsageError

STEPS, EVERY = 8, 4


def network() -> nn.Module:
    """Return a model that differs from rank to rank."""
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a rank's own data."""
    generator = torch.Generator().manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    given = [torch.randn(8, 6, generator=generator) for _ in range(STEPS)]
    return [(one, one[:, :2]) for one in given]


def everybody(model: nn.Module, group: Any = None) -> list[torch.Tensor]:
    """Return every rank's parameters, side by side."""
    row = torch.cat(
        [getattr(one, "to_local", lambda one=one: one)().detach().reshape(-1) for one in model.parameters()]
    )
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, row, group=group)
    return rows


def check(diloco: DiLoCo, model: nn.Module, group: Any = None) -> None:
    """Every rank was on its own between outer steps, and has the same model in the end."""
    before = everybody(model, group)
    assert not any(torch.equal(one, before[0]) for one in before[1:]), before
    assert [fragment.steps for fragment in diloco.fragments] == [2, 1], diloco.fragments
    diloco.finish()
    rows = everybody(model, group)
    assert all(torch.equal(one, rows[0]) for one in rows)
    print("the same bits on every rank", flush=True)


def loop(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS - 1) -> None:
    """Train so far that the last steps are no rank's but this one's."""
    for given, wanted in batches()[:steps]:
        optimizer.zero_grad()
        mse_loss(model(given), wanted).backward()
        optimizer.step()


def wrapped(how: str | None = "int10") -> None:
    """Within DistributedDataParallel no gradient is averaged any more."""
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    diloco = DiLoCo(model, optimizer, every=EVERY, delay=1, how=how)
    loop(model, optimizer)
    check(diloco, model)


def shards() -> None:
    """With FSDP2 in groups of two, ranks with the same shard average it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    model = network()
    for one in model.parameters():
        dist.broadcast(one.detach(), 0)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh["shards"])
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    replicas = mesh["replicas"].get_group()
    diloco = DiLoCo(model, optimizer, every=EVERY, delay=1, group=replicas)
    loop(model, optimizer)
    check(diloco, model, replicas)
    own = everybody(model, mesh["shards"].get_group())
    assert not torch.equal(own[0], own[1])  # shards they are


def accelerate() -> None:
    """One line behind `prepare`."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    assert isinstance(model, DistributedDataParallel)
    diloco = DiLoCo(model, optimizer, every=EVERY, delay=1)
    for given, wanted in batches()[: STEPS - 1]:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(mse_loss(model(given), wanted))
            optimizer.step()
    check(diloco, model)


def lightning() -> None:
    """One line in `on_train_start`."""
    import lightning.pytorch as pl
    from lightning.pytorch.strategies import DDPStrategy
    from torch.utils.data import DataLoader

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            given, wanted = batches()[index]
            return mse_loss(self.network(given), wanted)

        def on_train_start(self) -> None:
            self.diloco = DiLoCo(self.trainer.model, self.optimizers(), every=EVERY, delay=1)

        def on_train_end(self) -> None:
            check(self.diloco, self)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    warnings.filterwarnings("ignore")
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend="switchsum"),
        max_steps=STEPS - 1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(torch.zeros(2 * (STEPS - 1), 1), batch_size=1))


def main(what: str) -> None:
    """Train."""
    if what != "lightning":
        dist.init_process_group("gloo" if what == "gloo" else "switchsum")
    if what == "gloo":
        with pytest.raises(
            UsageError, match=r"compression \(int10\) needs the backend 'switchsum'; on gloo use how=None"
        ):
            wrapped()
        wrapped(how=None)
    else:
        {"wrapped": wrapped, "shards": shards, "accelerate": accelerate, "lightning": lightning}[what]()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
