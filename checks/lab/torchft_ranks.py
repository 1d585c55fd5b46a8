"""Ranks of torchft, each a thread of this process: torchft's own DiLoCo over its own group of gloo."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

OUTER_RATE: Final = 0.7
OUTER_MOMENTUM: Final = 0.9
"""As in `switchsum.torch.DiLoCo`."""


class Rank:
    """What torchft wants of a process: a store, a manager and a group; a lighthouse has all ranks meet."""

    def __init__(self, lighthouse: Any, rank: int, world_size: int, timeout_s: float) -> None:
        import torch.distributed as dist
        from torchft import Manager, ProcessGroupGloo

        timeout = timedelta(seconds=timeout_s)
        self._lighthouse = lighthouse
        self._store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self.world_size = world_size
        self.manager = Manager(
            pg=ProcessGroupGloo(timeout=timeout),
            load_state_dict=None,
            state_dict=None,
            min_replica_size=world_size,
            use_async_quorum=False,
            timeout=timeout,
            quorum_timeout=timeout,
            connect_timeout=timeout,
            rank=0,
            world_size=1,
            store_addr="localhost",
            store_port=self._store.port,
            lighthouse_addr=lighthouse.address(),
            replica_id=f"rank{rank}",
            init_sync=False,  # models have the same seed
        )

    def size(self) -> int:
        """Return the number of ranks."""
        return self.world_size

    def close(self) -> None:
        """Leave."""
        self.manager.shutdown(wait=False)


class DiLoCo:
    """torchft's DiLoCo with the outer optimizer of ours."""

    def __init__(self, model: Any, optimizer: Any, rank: Rank, every: int) -> None:
        import torch
        from torchft.local_sgd import DiLoCo as Torchfts

        outer = torch.optim.SGD(model.parameters(), OUTER_RATE, momentum=OUTER_MOMENTUM, nesterov=True)
        self._synchronised = Torchfts(rank.manager, [model], optimizer, outer, sync_every=every)
        self._synchronised.__enter__()

    def finish(self) -> None:
        """Have the inner optimizer step as before."""
        self._synchronised.__exit__(None, None, None)


def ranks(count: int, timeout_s: float) -> list[Rank]:
    """Return so many; raises ImportError without torchft."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(
        bind="[::]:0", min_replicas=count, join_timeout_ms=60_000, heartbeat_timeout_ms=60_000
    )
    return [Rank(lighthouse, rank, count, timeout_s) for rank in range(count)]
