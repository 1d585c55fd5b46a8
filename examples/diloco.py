"""The GPT of gpt.py on a slow link, synchronised every 50 steps: torchrun --nproc-per-node 4 examples/diloco.py."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from gpt import BATCH, CONTEXT, GPT
from text import characters, share
from torch.nn.functional import cross_entropy

import switchsum.torch


def main() -> None:
    """Train each rank's own model, and print the losses and what rank 0 has sent."""
    parser = argparse.ArgumentParser(description="a small GPT with DiLoCo")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=50, help="steps between two outer steps of a fragment")
    parser.add_argument("--fragments", type=int, default=4)
    parser.add_argument("--delay", type=int, default=12, help="steps that an average may take")
    parser.add_argument("--how", default="int10", help="compression of outer gradients")
    options = parser.parse_args()
    dist.init_process_group("switchsum")
    rank = dist.get_rank()
    text, count = characters()
    own = share(text, rank, dist.get_world_size())
    torch.manual_seed(1)
    model = GPT(count)
    optimizer = torch.optim.AdamW(model.parameters(), 0.002)
    plan = {name: getattr(options, name) for name in ("every", "fragments", "delay", "how")}
    diloco = switchsum.torch.DiLoCo(model, optimizer, **plan)
    generator = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(options.steps):
        at = torch.randint(0, len(own) - CONTEXT - 1, (BATCH,), generator=generator)
        windows = own[at[:, None] + torch.arange(CONTEXT + 1)]
        loss = cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    diloco.finish()
    ends = torch.stack([losses[0], torch.stack(losses[-10:]).mean()])
    switchsum.torch.average([ends], None)
    counts = switchsum.torch.statistics().switch
    if rank == 0 and counts is not None:
        whole = 4 * sum(one.numel() for one in model.parameters())
        print(f"loss {ends[0]:.3f} in the first step, {ends[1]:.3f} in the last ten")
        print(
            f"{counts.bytes_sent / 1e6:.1f} MB sent in {options.steps} steps; {whole / 1e6:.1f} MB are all parameters"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
