"""Gradients of bfloat16 through DistributedDataParallel and FSDP: two bytes a value; the same bits in every run."""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import fields

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from switchsum.torch import compress, statistics
from switchsum_protocol.frame import HEADER_BYTES

NARROW = 2.4
"""Bytes a value each way at most, frames' headers and first rounds included."""
SIZE = 400


def net(dtype: torch.dtype) -> nn.Sequential:
    """Return the same model on all ranks."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, SIZE)).to(dtype)


def step(model: nn.Module, dtype: torch.dtype) -> None:
    """Do a backward pass with data of this rank's own."""
    data = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(dist.get_rank())).to(dtype)
    model(data).square().mean().backward()


def bytes_of(model: nn.Module) -> float:
    """Return the larger of the bytes that a step sends and receives, without repeats: a busy machine makes many."""
    before = statistics().switch
    step(model, torch.bfloat16)
    after = statistics().switch
    assert before is not None
    assert after is not None
    count = {one.name: getattr(after, one.name) - getattr(before, one.name) for one in fields(after)}
    answers = count["frames_received"] - count["held"]
    sent = count["bytes_sent"] * (1 - count["repeats"] / count["frames_sent"])
    received = (count["bytes_received"] - count["held"] * HEADER_BYTES) * count["rounds"] / answers
    return max(sent, received)


def check_bytes() -> None:
    """DistributedDataParallel's buckets, and FSDP's reduce_scatter, which two all_gathers come before."""
    model = DistributedDataParallel(net(torch.bfloat16))
    values = sum(one.numel() for one in model.parameters())
    moved = bytes_of(model)
    assert moved < NARROW * values, moved / values
    sharded = fully_shard(net(torch.bfloat16))
    step(sharded, torch.bfloat16)
    moved = bytes_of(sharded)
    assert moved < 2 * NARROW * values, moved / values  # parameters of two bytes are gathered


def digest() -> str:
    """Return what identifies a step's averaged gradients in lanes of 16 bits."""
    model = DistributedDataParallel(net(torch.float32))
    compress(model, "int16")
    step(model, torch.float32)
    return hashlib.sha256(b"".join(one.grad.numpy().tobytes() for one in model.parameters())).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.environ["SWITCHSUM_SEED"] = sys.argv[1]
    dist.init_process_group("switchsum")
    print("bits", digest(), flush=True)
    check_bytes()
    dist.destroy_process_group()
