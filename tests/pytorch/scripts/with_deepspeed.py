"""DeepSpeed on processors, with ZeRO's first stage: the parameters are those of one process with all the data."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

os.environ["DS_ACCELERATOR"] = "cpu"
dist.init_process_group("switchsum")  # before DeepSpeed looks for a group, which it then keeps
import deepspeed  # noqa: E402

import switchsum.torch  # noqa: E402

STEPS, RATE = 4, 0.05
CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
}


def model() -> torch.nn.Module:
    """Return the same model every time."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))


def data(step: int, rank: int) -> torch.Tensor:
    """Return a rank's data of a step."""
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(10 * step + rank))


def main() -> None:
    """Train, and train the same in this process alone."""
    own, alone = model(), model()
    engine, *_ = deepspeed.initialize(
        model=own, optimizer=torch.optim.SGD(own.parameters(), RATE), config=CONFIG, dist_init_required=False
    )
    plain = torch.optim.SGD(alone.parameters(), RATE)
    for step in range(STEPS):
        engine.backward(engine(data(step, dist.get_rank())).square().mean())
        engine.step()
        plain.zero_grad()
        losses = [alone(data(step, rank)).square().mean() for rank in range(dist.get_world_size())]
        (sum(losses) / len(losses)).backward()
        plain.step()
    for one, other in zip(own.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)
    # DeepSpeed makes groups of its own, of the same ranks.
    found = [switchsum.torch.statistics(group).switch for group in dist.distributed_c10d._world.pg_map]
    assert sum(one.collectives for one in found if one is not None) > STEPS
    print(f"the same parameters on rank {dist.get_rank()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
