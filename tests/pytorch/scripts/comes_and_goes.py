"""Three ranks train; one is killed, and a fourth process comes: `comes_and_goes.py VICTIM comes|builds|vanishes`.

One that `builds` makes its group, and its model when the others have taken many outer steps more.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import mse_loss

from switchsum.torch import DiLoCo, ElasticGroup
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import UnknownJob

FIRST, DEATH, MORE = 3, 10, 21
EVERY = 4
BUILT_AFTER = 5 * EVERY


def enter(rank: int, victim: int, does_vanish: bool) -> ElasticGroup:
    """Return the group, for the fourth process once somebody has died."""
    own: dict[str, Any] = {"job": f"comes-and-goes-{os.environ['MASTER_PORT']}", "patience_s": float(sys.argv[3])}
    with ControllerClient(os.environ["SWITCHSUM_CONTROLLER"]) as client:
        if rank == 0:
            client.create_job(rpc.CreateJobRequest(job=own["job"], workers=FIRST, slots=16, timeout_s=100.0))
        while True:
            try:
                job = client.show_job(rpc.JobRequest(job=own["job"]))
                if rank < FIRST or job.workers == FIRST - 1:
                    break
            except UnknownJob:
                pass
            time.sleep(0.05)
    if rank < FIRST:
        return ElasticGroup(**own, rank=rank, world_size=FIRST)
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    if does_vanish:
        ElasticGroup._join_after = lambda *_: os._exit(0)  # type: ignore[method-assign]
    return ElasticGroup(**own)


def steps_of_others() -> Path:
    """Return the file in which rank 0 says how far it is."""
    return Path(tempfile.gettempdir()) / f"comes-and-goes-{os.environ['MASTER_PORT']}"


def build_slowly() -> None:
    """Return when the others have gone on for a while, which they do if they need not wait for this process."""
    path = steps_of_others()
    first = int(path.read_text() or 0)
    while int(path.read_text() or 0) < first + BUILT_AFTER:
        time.sleep(0.05)


def main() -> None:
    """Train until some time after the fourth process has come, or has not."""
    rank, victim, does_vanish = int(os.environ["RANK"]), int(sys.argv[1]), sys.argv[2] == "vanishes"
    group = enter(rank, victim, does_vanish)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 500), nn.Tanh(), nn.Linear(500, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    assert group.is_in == (rank < FIRST)
    sizes, taken_in = [group.world_size] if group.is_in else [], []
    if rank == FIRST and sys.argv[2] == "builds":
        build_slowly()
    diloco = DiLoCo(model, optimizer, every=EVERY, fragments=2, delay=1, how="topk:0.3", group=group)
    sizes = sizes or [group.world_size]
    if rank == FIRST:
        taken_in.append(diloco.step)
    take_in = group.take_in

    def noted() -> None:
        take_in()
        taken_in.append(diloco.step)

    group.take_in = noted  # type: ignore[method-assign]
    generator = torch.Generator().manual_seed(rank)
    while not taken_in or diloco.step < taken_in[0] + MORE:
        given = torch.randn(8, 6, generator=generator)
        optimizer.zero_grad()
        mse_loss(model(given), given[:, :2]).backward()
        if rank == victim and diloco.step == DEATH:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        if rank == 0:
            steps_of_others().write_text(str(diloco.step))
        if group.world_size != sizes[-1]:
            sizes.append(group.world_size)
        time.sleep(0.01)
    diloco.finish()
    whole = b"".join(one.detach().numpy().tobytes() for one in model.state_dict().values())
    print(
        f"sizes {sizes}, after {diloco.step - taken_in[0]} more steps {hashlib.sha256(whole).hexdigest()}", flush=True
    )
    if rank == 0:
        steps_of_others().unlink()
    group.close()


if __name__ == "__main__":
    main()
