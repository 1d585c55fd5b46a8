"""Ray Train on this backend: python examples/with_ray.py starts Ray on this machine and trains on its workers."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import ray
import ray.train.torch
import torch
import torch.distributed as dist
from images import data, network
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, DistributedSampler


def train(options: dict[str, Any]) -> None:
    """Train on one worker, and have rank 0 write the accuracy to a file."""
    torch.manual_seed(1)
    shown, kept = data()
    model = ray.train.torch.prepare_model(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    sampler: DistributedSampler[Any] = DistributedSampler(shown)
    for epoch in range(options["epochs"]):
        sampler.set_epoch(epoch)
        for images, labels in DataLoader(shown, batch_size=32, sampler=sampler):
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
    model.eval()
    images, labels = kept.tensors
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    if dist.get_rank() == 0:
        text = f"{dist.get_backend()}, {dist.get_world_size()} ranks: accuracy {accuracy:.4f}"
        Path(options["result"]).write_text(text)


def main() -> None:
    """Train for some epochs, and print the accuracy."""
    parser = argparse.ArgumentParser(description="digits with Ray Train")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    here = {"PYTHONPATH": str(Path(__file__).parent)}  # workers import images.py, too
    ray.init(num_cpus=options.workers + 1, include_dashboard=False, runtime_env={"env_vars": here})
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result")
        TorchTrainer(
            train,
            train_loop_config={"epochs": options.epochs, "result": str(result)},
            torch_config=TorchConfig(backend="switchsum"),
            scaling_config=ScalingConfig(num_workers=options.workers),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        print(result.read_text())


if __name__ == "__main__":
    main()
