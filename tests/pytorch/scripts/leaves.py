"""Ranks that take themselves for several machines' start switches for one another and add over their tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist

from switchsum.torch import rendezvous
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MACHINES = [0, 0, 1, 1, 2]


def check_sums() -> None:
    """What is added is right, and the same everywhere."""
    values = torch.arange(100_000, dtype=torch.float32) * (RANK + 1)
    dist.all_reduce(values)
    assert torch.equal(values, torch.arange(100_000, dtype=torch.float32) * sum(range(1, SIZE + 1)))
    pair = dist.new_group([1, 2])
    if RANK in (1, 2):
        ones = torch.ones(5)
        dist.all_reduce(ones, group=pair)
        assert torch.equal(ones, torch.full((5,), 2.0))


def check_tree(leaves: int) -> None:
    """Ranks are at their machine's switch, each the root of a tree; without those, all are at rank 0's."""
    place = dist.group.WORLD.base.place
    with ControllerClient(place.controller) as client:
        job = client.show_job(rpc.JobRequest(job=place.job))
    at = [member.switch for member in job.members]
    names = {machine: at[MACHINES.index(machine)] for machine in MACHINES}
    assert at == [names[machine] for machine in MACHINES], at
    assert len(set(at)) == (3 if leaves else 1), at
    above = {tuple(pair[1:]) for pair in job.tree}
    assert above == ({(names[0],), (names[1], "1"), (names[2], "2")} if leaves else set()), job.tree


def check_explain() -> None:
    """`explain` without arguments finds the job on the machine of rank 0, though its controller wants certificates."""
    environment = {name: value for name, value in os.environ.items() if name != "SWITCHSUM_CONTROLLER"}
    command = [sys.executable, "-m", "switchsum", "explain", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    jobs = [one["job"] for one in reported] if isinstance(reported, list) else [reported["job"]]
    assert dist.group.WORLD.base.place.job in jobs, reported


if __name__ == "__main__":
    os.environ["SWITCHSUM_LEAF"] = sys.argv[1]
    rendezvous.this_machine = lambda: f"machine {MACHINES[RANK]}"
    dist.init_process_group("switchsum")
    check_sums()
    check_tree(int(sys.argv[1]))
    if RANK == 0:
        check_explain()
    dist.barrier()  # none ends before the others have asked
    print("sums over machines are right", flush=True)
    dist.destroy_process_group()
