"""Jobs whose dumps torch's `torchfrtrace` reads: `straggler`, `mismatch`, `fine`; the second word is their prefix."""

from __future__ import annotations

import os
import pickle
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from switchsum.torch import dump_flight_recorder
from switchsum_protocol.errors import RemoteError

LATE = 1
"""The rank that straggles, or does something else."""


def _begin(prefix: str) -> None:
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = prefix
    dist.init_process_group("switchsum", timeout=timedelta(seconds=float(sys.argv[3])))
    pair = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dist.broadcast(torch.ones(7), 0, group=pair)
    dist.all_reduce(torch.ones(10))
    dist.barrier()


def _await_dump(prefix: str) -> None:
    path = Path(f"{prefix}{dist.get_rank()}")
    while not path.exists():  # the test has the time limit
        time.sleep(0.05)


def _end_together(prefix: str) -> None:
    """Wait for the others: who waits for a rank that has left is told so, not that there is no progress."""
    folder = Path(prefix).parent
    (folder / f"ended {dist.get_rank()}").touch()
    while len(list(folder.glob("ended *"))) < dist.get_world_size():
        time.sleep(0.05)


def straggler(prefix: str) -> None:
    """One rank does not come to the third collective of all; the others give up, and have it write its dump, too."""
    _begin(prefix)
    if dist.get_rank() == LATE:
        _await_dump(prefix)
        _end_together(prefix)
        return
    try:
        dist.all_reduce(torch.ones(5000))
    except RemoteError as error:
        _await_dump(prefix)
        dump = pickle.loads(Path(f"{prefix}{dist.get_rank()}").read_bytes())
        (name,) = [name for name, one in dump["pg_config"].items() if one["desc"] == "default_pg"]
        missing = {tuple(one["missing_ranks"]) for one in dump["switchsum"][name]["waiting"]}
        print(f"waits for {sorted(missing)}: {error}", flush=True)
        _end_together(prefix)


def mismatch(prefix: str) -> None:
    """One rank adds fewer values than the others."""
    _begin(prefix)
    try:
        dist.all_reduce(torch.ones(4000 if dist.get_rank() == LATE else 5000))
    except RemoteError:
        _await_dump(prefix)


def fine(prefix: str) -> None:
    """Everything ends, over the switch and over gloo; the dump is asked for."""
    _begin(prefix)
    size = dist.get_world_size()
    whole, own = torch.ones(4 * size), torch.ones(4)
    dist.all_gather_into_tensor(whole, own)
    dist.all_gather(list(whole.chunk(size)), own)
    dist.reduce_scatter_tensor(own, whole)
    dist.reduce(own, 0)
    dist.all_to_all_single(torch.ones(size), torch.ones(size))
    dist.gather(own, [torch.ones(4) for _ in range(size)] if dist.get_rank() == 0 else None)
    dist.barrier()
    print(f"wrote {dump_flight_recorder(f'{prefix}{dist.get_rank()}')}", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
    dist.destroy_process_group()
