"""One of three replicas of torchft: it trains with a Manager until one that was killed has been back for some steps.

Arguments: the replica's number, the lighthouse's address, the step from which on one of them is killed, and `dies` for
that one.  It prints each step that is committed, with the parameters' digest.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from datetime import timedelta
from typing import Any

import torch
import torchft

from switchsum.torch.quorum import ProcessGroupSwitchsum

REPLICAS, TOGETHER = 3, 3
TIMEOUT = timedelta(seconds=float(os.environ.get("TIMEOUT_S", "60")))


def digest(model: torch.nn.Module) -> str:
    """Return a few digits of all parameters' bits."""
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()[:12]


def main() -> None:
    """Train."""
    number, lighthouse, killed_at, dies = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ["dies"]
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse
    torch.manual_seed(number)  # the first quorum gives all replicas the parameters of one
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=ProcessGroupSwitchsum(timeout=TIMEOUT),
        min_replica_size=2,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=f"replica_{number}",
        timeout=TIMEOUT,
        quorum_timeout=2 * TIMEOUT,
        connect_timeout=TIMEOUT,
        store_addr="127.0.0.1",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    together = 0
    while together < TOGETHER:
        if dies and manager.current_step() >= killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        manager.start_quorum()
        optimizer.zero_grad()
        inputs = torch.full((2, 4), number + manager.current_step() / 10)
        model(inputs).square().mean().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            manager.allreduce(parameter.grad).wait()
        if manager.should_commit():
            optimizer.step()
            step, size = manager.current_step(), manager.num_participants()
            together = together + 1 if step > killed_at and size == REPLICAS else 0
            print(f"replica {number} step {step} of {size} model {digest(model)}", flush=True)
    manager.shutdown()
    sys.stdout.flush()
    os._exit(0)  # torchft's own threads may still wait for the lighthouse


if __name__ == "__main__":
    main()
