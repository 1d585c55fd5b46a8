"""A convolutional net on scikit-learn's handwritten digits: torchrun --nproc-per-node 4 examples/images.py."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from side_by_side import run
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def data() -> tuple[TensorDataset, TensorDataset]:
    """Return images `[n, 1, 8, 8]` in 0..1 with labels, to train with and to test with."""
    bunch = load_digits()
    images = torch.tensor(bunch.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(bunch.target)
    is_test = torch.arange(len(labels)) % 5 == 0
    return TensorDataset(images[~is_test], labels[~is_test]), TensorDataset(images[is_test], labels[is_test])


def network() -> nn.Sequential:
    """Return the net: logits `[n, 10]` of images `[n, 1, 8, 8]`."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def train(steps: int) -> Iterator[float]:
    """Yield the losses, and then the accuracy on images that were not trained with."""
    torch.manual_seed(1)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    shown, kept = data()
    sampler = DistributedSampler(shown, seed=2)
    loader = DataLoader(shown, batch_size=32, sampler=sampler, drop_last=True)
    done = 0
    while done < steps:
        sampler.set_epoch(done)
        for images, labels in loader:
            if done == steps:
                break
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            yield loss.item()
            done += 1
    model.eval()
    images, labels = kept.tensors
    with torch.no_grad():
        correct = (model.module(images).argmax(1) == labels).float().mean()
    yield correct.item()


if __name__ == "__main__":
    raise SystemExit(run("convolutional net, 1,797 digits", "accuracy", train, steps=200, tolerance=0.005))
