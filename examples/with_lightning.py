"""PyTorch Lightning on this backend: torchrun --nproc-per-node 4 examples/with_lightning.py."""

from __future__ import annotations

import argparse
import logging
import os
import warnings

import torch
import torch.distributed as dist
from images import data, network
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


class Digits(LightningModule):
    """The net of images.py."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return cross_entropy(self.network(images), labels)

    def test_step(self, batch: list[torch.Tensor], index: int) -> None:
        """Log the accuracy, a mean over all ranks."""
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def main() -> None:
    """Train for some epochs, and print the accuracy."""
    parser = argparse.ArgumentParser(description="digits with Lightning")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")  # its advice about workers of data loaders
    torch.manual_seed(1)
    trainer = Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy=DDPStrategy(process_group_backend="switchsum"),
        max_epochs=options.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    shown, kept = data()
    model = Digits()
    trainer.fit(model, DataLoader(shown, batch_size=32, shuffle=True, drop_last=True))
    accuracy = trainer.test(model, DataLoader(kept, batch_size=64), verbose=False)[0]["accuracy"]
    if trainer.is_global_zero:
        print(f"{dist.get_backend()}, {trainer.world_size} ranks: accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
