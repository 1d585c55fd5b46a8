"""FSDP2 with every tensor taken for one of a GPU, on a device that does nothing until it is waited for, as on gloo."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from switchsum.torch import forwarded, staging, tensors

sys.path.insert(0, str(Path(__file__).parents[1]))
from late import LateDevice  # type: ignore[import-not-found]  # of the folder above

SIZE = 64


def trained(group: dist.ProcessGroup) -> list[torch.Tensor]:
    """Return this rank's parts of the parameters after three steps on a group."""
    torch.manual_seed(0)
    mesh = DeviceMesh.from_group(group, "cpu")
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, SIZE))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    for step in range(3):
        data = torch.randn(8, SIZE, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return [one.detach().to_local().clone() for one in model.parameters()]


if __name__ == "__main__":
    dist.init_process_group("switchsum")
    expected = trained(dist.new_group(backend="gloo"))
    device = LateDevice()
    for module in (tensors, forwarded):
        mock.patch.object(module, "is_away", return_value=True).start()
    staging.device_of = lambda tensor: device
    torch.testing.assert_close(trained(dist.group.WORLD), expected, rtol=1e-4, atol=1e-6)
    assert device.downs > 0 < device.ups, (device.downs, device.ups)
    dist.barrier()
    print(f"FSDP2 learns the same, staged: {device.downs} copies down, {device.ups} up", flush=True)
    dist.destroy_process_group()
