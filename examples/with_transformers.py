"""Hugging Face's Trainer on this backend: torchrun --nproc-per-node 4 examples/with_transformers.py.

On CPUs its `ddp_backend` takes no name but gloo and mpi, for accelerate is below it; a process group that is there
already is taken as it is.
"""

from __future__ import annotations

import argparse
import tempfile

import torch
import torch.distributed as dist
from images import data, network
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments


class Classifier(nn.Module):
    """A network as Trainer wants it: it computes its loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return loss and scores."""
        scores = self.network(images)
        return {"loss": cross_entropy(scores, labels), "logits": scores}


class Named(Dataset[dict[str, torch.Tensor]]):
    """Images and labels by name."""

    def __init__(self, pairs: Dataset[tuple[torch.Tensor, ...]]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        images, labels = self.pairs[place]
        return {"images": images, "labels": labels}


def accuracy(found: EvalPrediction) -> dict[str, float]:
    """Return the share of images that are recognised."""
    return {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())}


def main() -> None:
    """Train for some epochs, and print the accuracy."""
    parser = argparse.ArgumentParser(description="digits with transformers.Trainer")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("switchsum")
    torch.manual_seed(1)
    shown, kept = data()
    with tempfile.TemporaryDirectory() as scratch:
        settings = TrainingArguments(
            output_dir=scratch,
            use_cpu=True,
            num_train_epochs=options.epochs,
            per_device_train_batch_size=32,
            learning_rate=0.05,
            optim="sgd",
            optim_args="momentum=0.9",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(
            Classifier(), settings, train_dataset=Named(shown), eval_dataset=Named(kept), compute_metrics=accuracy
        )
        trainer.train()
        share = trainer.evaluate()["eval_accuracy"]
    if dist.get_rank() == 0:
        print(f"{dist.get_backend()}, {dist.get_world_size()} ranks: accuracy {share:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
