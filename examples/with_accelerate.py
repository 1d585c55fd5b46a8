"""Hugging Face accelerate on this backend: torchrun --nproc-per-node 4 examples/with_accelerate.py.

On CPUs accelerate would choose gloo itself; a process group that is there already it takes as it is.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from accelerate import Accelerator
from images import data, network
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


def main() -> None:
    """Train for some epochs, and print the accuracy."""
    parser = argparse.ArgumentParser(description="digits with accelerate")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    dist.init_process_group("switchsum")
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    shown, kept = data()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(shown, batch_size=32, shuffle=True))
    test = accelerator.prepare(DataLoader(kept, batch_size=64))
    for _ in range(options.epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(cross_entropy(model(images), labels))
            optimizer.step()
    model.eval()
    with torch.no_grad():
        right = [accelerator.gather_for_metrics((model(images).argmax(1) == labels).float()) for images, labels in test]
    accuracy = torch.cat(right).mean().item()
    accelerator.print(f"{dist.get_backend()}, {accelerator.num_processes} ranks: accuracy {accuracy:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
