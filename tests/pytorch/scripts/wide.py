"""What else builds on a process group: sub-groups, DeviceMesh, DTensor, FSDP, ZeRO, join, objects, coalescing."""

from __future__ import annotations

import copy
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import switchsum.torch
from switchsum_host.api.statistics import Statistics
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

warnings.filterwarnings("ignore", category=FutureWarning)
warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def model() -> nn.Sequential:
    """Return the same model on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))


def inputs(rank: int) -> torch.Tensor:
    """Return a rank's batch."""
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(rank))


def expected(ranks: int) -> list[torch.Tensor]:
    """Return the parameters after one step on all ranks' batches, in one process."""
    whole = model()
    optimizer = torch.optim.SGD(whole.parameters(), 0.1)
    torch.stack([whole(inputs(rank)).square().mean() for rank in range(ranks)]).mean().backward()
    optimizer.step()
    return [value.detach() for value in whole.parameters()]


def step(sharded: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train for one step."""
    sharded(inputs(dist.get_rank())).square().mean().backward()
    optimizer.step()


def check_groups() -> None:
    """Sums in groups of some of the ranks, each with a job of its own, at the same time."""
    rank, size = dist.get_rank(), dist.get_world_size()
    pairs = [dist.new_group([0, 1]), dist.new_group(list(range(2, size)))]
    for _ in range(3):
        tensor = torch.full((500,), rank + 1.0)
        dist.all_reduce(tensor, group=pairs[rank >= 2])
        assert torch.equal(tensor, torch.full((500,), 3.0 if rank < 2 else sum(range(3, size + 1))))
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("rows", "columns"))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=mesh.get_group("rows"))
    assert torch.equal(tensor, torch.full((3,), 2.0))
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": one} for one in range(size)]
    listed = [rank, "x"]
    dist.broadcast_object_list(listed, 1)
    assert listed == [1, "x"]
    tensors = [torch.ones(4) for _ in range(5)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(torch.equal(tensor, torch.full((4,), float(size))) for tensor in tensors)
    dist.destroy_process_group(pairs[rank >= 2])


def check_tensors() -> None:
    """DTensor's redistributions, which go through C++."""
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(8.0 * size).reshape(2 * size, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    partial = DTensor.from_local(whole, mesh, [Partial()])
    assert torch.equal(partial.redistribute(mesh, [Replicate()]).to_local(), whole * size)
    assert torch.equal(partial.redistribute(mesh, [Shard(0)]).full_tensor(), whole * size)
    assert torch.equal(sharded.redistribute(mesh, [Shard(1)]).full_tensor(), whole)  # all to all


def check_sharded_training() -> None:
    """FSDP of both generations, ZeRO, and batches of different number."""
    rank, size = dist.get_rank(), dist.get_world_size()
    wanted = expected(size)
    second = model()
    for layer in (second[0], second[2], second):
        fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
    step(second, torch.optim.SGD(second.parameters(), 0.1))
    for value, one in zip(second.parameters(), wanted, strict=True):
        torch.testing.assert_close(value.full_tensor(), one)
    first = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=True)
    step(first, torch.optim.SGD(first.parameters(), 0.1))
    with FullyShardedDataParallel.summon_full_params(first):
        for value, one in zip(first.parameters(), wanted, strict=True):
            torch.testing.assert_close(value.detach(), one)
    parallel = DistributedDataParallel(model())
    step(parallel, ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.SGD, lr=0.1))
    for value, one in zip(parallel.parameters(), wanted, strict=True):
        torch.testing.assert_close(value.detach(), one)
    alone = copy.deepcopy(parallel.module)
    for is_static in (True, False):
        with Join([parallel], divide_by_initial_world_size=is_static):
            for _ in range(1 + rank):
                parallel.zero_grad()
                parallel(inputs(rank)).sum().backward()
        if rank == size - 1:  # the only one that takes the last step
            alone.zero_grad()
            (alone(inputs(rank)).sum() / (size if is_static else 1)).backward()
            for value, one in zip(parallel.parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(value.grad, one.grad)


def check_bytes_of_sharded_training() -> None:
    """FSDP2's bytes: each part of the parameters goes up once in an all_gather, the whole gradient once.

    Up that is (1 + 2/N) S for two all_gathers and a reduce_scatter of S bytes.  Down it is (2 - 1/N) S: a rank takes
    its part of the sum, and the others' parts of what is gathered.
    """
    ranks, layers, steps = dist.get_world_size(), 3, 2
    mesh = init_device_mesh("cpu", (ranks,))
    whole = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256, bias=False), nn.Tanh()) for _ in range(layers)))
    for layer in (*whole, whole):
        fully_shard(layer, mesh=mesh)
    size = sum(value.numel() * value.element_size() for value in whole.parameters())

    def train() -> None:
        whole(torch.randn(8, 256)).sum().backward()  # blocks of zeros would not travel

    train()  # what is laid out in a first step
    before = switch_counts()
    for _ in range(steps):
        train()
    after = switch_counts()
    header, payload = FRAME_BYTES, payload_bytes(dist.group.WORLD.connect().lanes_per_frame)
    # On a busy machine frames are repeated and answered again, with lanes or without: in between is what was needed.
    most_up = after.bytes_sent - before.bytes_sent
    most_down = after.bytes_received - before.bytes_received
    again = sum(getattr(after, one) - getattr(before, one) for one in ("held", "duplicate_frames", "stale_frames"))
    least_up = most_up - (header + payload) * (after.repeats - before.repeats)
    least_down = most_down - (header + payload) * again
    of_headers = header / payload  # who has nothing in a block says so in a frame without lanes
    wanted_up = (1 + 2 / ranks) * (1 + of_headers) + 2 * (1 - 1 / ranks) * of_headers
    wanted_down = 2 - 1 / ranks + 3 * of_headers
    if dist.get_rank() == 0:
        found = most_up / steps / size, most_down / steps / size
        print(f"up {found[0]:.2f} S of {wanted_up:.2f}, down {found[1]:.2f} S of {wanted_down:.2f}")
    for least, most, wanted in ((least_up, most_up, wanted_up), (least_down, most_down, wanted_down)):
        assert 0.95 * wanted < most / steps / size, (most / steps / size, wanted)
        assert least / steps / size < 1.05 * wanted, (least / steps / size, wanted)


def switch_counts() -> Statistics:
    """Return what this rank has sent and received so far."""
    counts = switchsum.torch.statistics().switch
    assert counts is not None
    return counts


if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    dist.destroy_process_group()
    dist.init_process_group(sys.argv[1])  # in the same store, under the same names
    for check in (check_groups, check_tensors, check_sharded_training, check_bytes_of_sharded_training):
        check()
        if dist.get_rank() == 0:
            print("passed", check.__name__, flush=True)
    dist.destroy_process_group()
