"""What torch's Flight Recorder has of a few collectives, on the backend that is named."""

from __future__ import annotations

import pickle
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

if __name__ == "__main__":
    dist.init_process_group(sys.argv[1])
    attached = dist.group.WORLD in c10d._world.pg_flight_recorder_hooks
    for _ in range(5):
        dist.all_reduce(torch.ones(10))
    dump = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    print(f"recorder attached {attached}, entries {len(dump.get('entries', []))}", flush=True)
    dist.destroy_process_group()
