"""Three replicas of torchft, of which one goes after the first quorum."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch.distributed import ReduceOp
from torch.distributed.distributed_c10d import AllreduceOptions

from switchsum.torch.quorum import ProcessGroupSwitchsum


def main() -> None:
    """Sum in a quorum of three, and in one of the two that are left."""
    rank = int(os.environ["RANK"])
    group = ProcessGroupSwitchsum(timeout=timedelta(seconds=100))
    address = f"127.0.0.1:{os.environ['MASTER_PORT']}/quorum"
    for quorum, size in enumerate((3, 2)):
        if rank >= size:
            break
        group.configure(f"{address}/{quorum}", f"replica {rank}", rank, size, quorum)
        options = AllreduceOptions()
        options.reduceOp = ReduceOp.SUM
        tensor = torch.full((1000,), rank + 1.0)
        group.allreduce([tensor], options).wait()
        assert torch.equal(tensor, torch.full((1000,), size * (size + 1) / 2)), tensor
    group.shutdown()
    print(f"{quorum + 1} quorums of {group.getBackendName()}", flush=True)


if __name__ == "__main__":
    main()
