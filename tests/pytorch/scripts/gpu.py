"""Tensors on a GPU that all ranks share, part by part, beside what each rank works out for itself."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import switchsum.torch
from switchsum.torch import staging

GPU = torch.device("cuda", 0)
FLOATS = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SIZES = (1, 1000, 3_000_001)
"""The last one comes down in pieces."""
SLEEP_CYCLES = 300_000_000
"""What keeps a stream busy for a fifth of a second."""
Op = dist.ReduceOp


def values(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    """Return a rank's values, in ordinary memory."""
    made = torch.Generator().manual_seed(rank)
    if dtype in FLOATS:
        return torch.randn(size, generator=made).to(dtype)
    return torch.randint(0, 9, (size,), generator=made).to(dtype)


def of_all(size: int, dtype: torch.dtype) -> torch.Tensor:
    """Return all ranks' values, a row each, as float64."""
    return torch.stack([values(rank, size, dtype).double() for rank in range(dist.get_world_size())])


def check(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Compare a result on the GPU with what it should be; floats by their largest magnitude."""
    assert found.device == GPU, (what, found.device)
    off = (found.detach().cpu().double() - expected).abs().max().item()
    most = FLOATS.get(found.dtype, 0) * max(1.0, expected.abs().max().item()) * 2
    assert off <= most, f"{what}: off by {off}, allowed {most}"


def reductions() -> None:
    """All reductions, dtypes and sizes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in (*FLOATS, *INTEGERS):
        for size in SIZES:
            own, whole = values(rank, size, dtype), of_all(size, dtype)
            for op, expected in (
                (Op.SUM, whole.sum(0)),
                (Op.MAX, whole.amax(0)),
                (Op.AVG, whole.mean(0) if dtype in FLOATS else whole.sum(0).div(ranks, rounding_mode="trunc")),
            ):
                tensor = own.to(GPU)
                dist.all_reduce(tensor, op)
                check(tensor, expected, f"all_reduce {op} {dtype} {size}")
            tensor = own.to(GPU)
            dist.reduce(tensor, 1)
            check(tensor, whole.sum(0) if rank == 1 else own.double(), f"reduce {dtype} {size}")
        size = 999
        part = torch.empty(size, dtype=dtype, device=GPU)
        rows = of_all(size * ranks, dtype).sum(0).reshape(ranks, size)
        dist.reduce_scatter_tensor(part, values(rank, size * ranks, dtype).to(GPU))
        check(part, rows[rank], f"reduce_scatter_tensor {dtype}")
        part.zero_()
        dist.reduce_scatter(part, list(values(rank, size * ranks, dtype).to(GPU).chunk(ranks)))
        check(part, rows[rank], f"reduce_scatter {dtype}")
        several = [values(rank, one, dtype).to(GPU) for one in (3, 70_000, 20)]
        with dist._coalescing_manager(device=GPU):
            for one in several:
                dist.all_reduce(one)
        for one in several:
            check(one, of_all(len(one), dtype).sum(0), f"coalesced {dtype}")
    bits = torch.tensor([1 << rank, 3], dtype=torch.int32, device=GPU)
    dist.all_reduce(bits, Op.BOR)
    assert bits.tolist() == [(1 << ranks) - 1, 3]
    bits = torch.tensor([7, 1 << rank], dtype=torch.int32, device=GPU)
    dist.all_reduce(bits, Op.BAND)
    assert bits.tolist() == [7, 0]
    double = torch.full((5,), rank + 1.0, dtype=torch.float64, device=GPU)
    dist.all_reduce(double)  # over gloo
    assert double.tolist() == [ranks * (ranks + 1) / 2] * 5
    rows = torch.sparse_coo_tensor(torch.tensor([[rank, 50]]), torch.ones(2, 8), (100, 8), check_invariants=True).to(
        GPU
    )
    dist.all_reduce(rows)
    dense = rows.to_dense().sum(1).cpu()
    assert dense[50] == 8 * ranks
    assert dense[:ranks].tolist() == [8.0] * ranks


def moves() -> None:
    """All calls that only move values."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        own = (torch.arange(12) + rank).to(dtype).to(GPU)
        all_ = [(torch.arange(12) + one).to(dtype) for one in range(ranks)]
        tensor = own.clone()
        dist.broadcast(tensor, 1)
        assert torch.equal(tensor.cpu(), all_[1]), dtype
        lists = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(lists, own)
        assert all(torch.equal(one.cpu(), other) for one, other in zip(lists, all_, strict=True)), dtype
        whole = torch.empty(12 * ranks, dtype=dtype, device=GPU)
        dist.all_gather_into_tensor(whole, own)
        assert torch.equal(whole.cpu(), torch.cat(all_)), dtype
        lists = [torch.empty_like(own) for _ in range(ranks)]
        dist.gather(own, lists if rank == 0 else None, 0)
        assert rank or all(torch.equal(one.cpu(), other) for one, other in zip(lists, all_, strict=True)), dtype
        tensor = torch.empty_like(own)
        dist.scatter(tensor, [one.to(GPU) for one in all_] if rank == 0 else None, 0)
        assert torch.equal(tensor.cpu(), all_[rank]), dtype
        whole = torch.empty(2 * ranks, dtype=dtype, device=GPU)
        dist.all_to_all_single(whole, own[: 2 * ranks].contiguous())
        assert torch.equal(whole.cpu(), torch.cat([one[2 * rank : 2 * rank + 2] for one in all_])), dtype
        if rank == 0:
            dist.send(own, 1)
        elif rank == 1:
            tensor = torch.empty_like(own)
            dist.recv(tensor, 0)
            assert torch.equal(tensor.cpu(), all_[0]), dtype
    said: list[Any] = [None] * ranks
    dist.all_gather_object(said, {"rank": rank, "tensor": torch.full((2,), rank, device=GPU)})
    assert [one["rank"] for one in said] == list(range(ranks))
    dist.barrier()


def streams() -> None:
    """What kernels wrote before a call is what travels, and what they do after `wait` is done to results."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    expected = ranks * (ranks + 1) / 2
    for size in (1000, 3_000_001):
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                tensor = torch.zeros(size, device=GPU)
                torch.cuda._sleep(SLEEP_CYCLES)
                tensor.fill_(rank + 1.0)  # has not begun when the call is made
                work = dist.all_reduce(tensor, async_op=True)
                assert work is not None
                work.wait()
                tensor.mul_(2)
            stream.synchronize()
            assert tensor.unique().tolist() == [2 * expected], (size, tensor.unique().tolist())
    # Many in flight, each behind a kernel of its own stream; memory of inputs is given back while they are under way.
    works = []
    for index in range(20):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(SLEEP_CYCLES // 100)
            tensor = torch.full((50_000,), float(index * (rank + 1)), device=GPU)
            out = torch.empty(50_000 // ranks, device=GPU)
            works.append((index, out, dist.reduce_scatter_tensor(out, tensor[: len(out) * ranks], async_op=True)))
            del tensor
        torch.full((50_000,), -1.0, device=GPU)  # may take that memory
    for index, out, work in works:
        work.wait()
        assert out.unique().tolist() == [index * expected], (index, out.unique().tolist())
    # What is read by a kernel that has not ended is not written over.
    source = torch.full((100_000,), 7.0, device=GPU)
    torch.cuda._sleep(SLEEP_CYCLES)
    copy = source.clone()
    dist.broadcast(source, 0)
    assert copy.unique().tolist() == [7.0]
    part = staging.device_of(source)
    assert part is not None
    assert part.pinned((4,), torch.float32).is_pinned()
    future = dist.all_reduce(torch.ones(4, device=GPU), async_op=True).get_future()
    assert future.then(lambda done: done.value()[0] * 3).wait().tolist() == [3.0 * ranks] * 4


def net() -> torch.nn.Module:
    """Return a small model, the same on all ranks."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 8)).to(GPU)


def steps(model: Any, ranks: list[int], count: int) -> list[float]:
    """Train on the data of some ranks; return the losses."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    losses = []
    for step in range(count):
        optimizer.zero_grad()
        loss = torch.zeros((), device=GPU)
        for rank in ranks:
            data = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * step + rank)).to(GPU)
            loss = loss + (model(data) - data[:, :8]).square().mean() / len(ranks)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trainings() -> None:
    """DistributedDataParallel learns what one process learns from all ranks' data."""
    rank, ranks, count = dist.get_rank(), dist.get_world_size(), 12
    alone = net()
    steps(alone, list(range(ranks)), count)
    expected = torch.cat([one.detach().reshape(-1) for one in alone.parameters()])
    moved = (expected - torch.cat([one.detach().reshape(-1) for one in net().parameters()])).norm()

    def off(register: Callable[[Any], object], **options: Any) -> float:
        model = DistributedDataParallel(net(), device_ids=[0], **options)
        register(model)
        steps(model, [rank], count)
        found = torch.cat([one.detach().reshape(-1) for one in model.module.parameters()])
        return ((found - expected).norm() / moved).item()

    cases: list[tuple[str, Callable[[Any], object], float]] = [
        ("as it is", lambda _: None, 1e-4),
        ("bf16", lambda model: model.register_comm_hook(None, default_hooks.bf16_compress_hook), 0.1),
        ("int16", lambda model: model.register_comm_hook(
            None, switchsum.torch.hooks.compressed(switchsum.torch.hooks.NarrowLanes("int16"))), 0.1),
        ("int8", lambda model: switchsum.torch.compress(model, "int8"), 0.3),
        ("topk", lambda model: switchsum.torch.compress(model, "topk:0.3"), 1.5),
        ("powerSGD", lambda model: model.register_comm_hook(
            powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2),
            powerSGD_hook.powerSGD_hook), 1.5),
    ]  # fmt: skip
    for name, register, most in cases:
        found = off(register)
        print(f"rank {rank}: DDP {name}: off by {found:.1e} of the way", flush=True)
        assert found < most, (name, found)
    assert off(lambda _: None, static_graph=True) < 1e-4
    assert off(lambda _: None, gradient_as_bucket_view=True, bucket_cap_mb=0.1) < 1e-4


def mixed() -> None:
    """A backend for each type of device."""
    ranks = dist.get_world_size()
    for device in (torch.device("cpu"), GPU):
        tensor = torch.ones(1000, device=device)
        dist.all_reduce(tensor)
        assert tensor.unique().tolist() == [ranks], device
    dist.barrier()


def times() -> None:
    """Print how long sums take, from the GPU's memory and from ordinary memory."""
    for megabytes in (1, 10, 100):
        for device in (GPU, torch.device("cpu")):
            tensor = torch.ones(megabytes * 250_000, device=device)
            taken = []
            for _ in range(7):
                tensor.fill_(1.0)
                torch.cuda.synchronize()
                dist.barrier()
                began = time.monotonic()
                dist.all_reduce(tensor)
                torch.cuda.synchronize()
                taken.append(time.monotonic() - began)
            if dist.get_rank() == 0:
                half = sorted(taken)[3]
                ranks = dist.get_world_size()
                print(f"{ranks} ranks, {megabytes} MB on {device.type}: {1e3 * half:.2f} ms, "
                      f"{megabytes / half / 1e3:.2f} GB/s a rank", flush=True)  # fmt: skip


if __name__ == "__main__":
    part = globals()[sys.argv[1]]
    backend = "cpu:gloo,cuda:switchsum" if part is mixed else "switchsum"
    dist.init_process_group(backend, timeout=timedelta(seconds=float(sys.argv[2])))
    part()
    print(f"{sys.argv[1]} on {torch.cuda.get_device_name(GPU)}: right", flush=True)
    dist.destroy_process_group()
