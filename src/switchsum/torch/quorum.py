"""torchft's process group on a switch: `torchft.Manager(pg=ProcessGroupSwitchsum(), ...)`.

torchft forms the group anew for each quorum.  Where no controller is named (SWITCHSUM_CONTROLLER), the quorum's rank 0
starts one with a switch, as for any other group, and they end with it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from switchsum.torch.group import SwitchGroup
from switchsum.torch.groups import form


class ProcessGroupSwitchsum(ProcessGroupWrapper):
    """A group of torchft's replicas whose sums a switch makes.

    Example:
        >>> manager = torchft.Manager(pg=ProcessGroupSwitchsum(timeout=timedelta(seconds=30)), min_replica_size=2, ...)

    """

    _pg: Any
    _timeout: timedelta

    def configure(self, store_addr: str, *arguments: Any, **options: Any) -> None:
        """Form the group of a quorum; `store_addr` is one that no quorum has had before."""
        self._name = store_addr
        super().configure(store_addr, *arguments, **options)

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> SwitchGroup:
        return form(store, rank, world_size, self._timeout, self._name)

    def getBackendName(self) -> str:
        """Return the name that torchft shows."""
        return "torchft-switchsum"

    def shutdown(self) -> None:
        """Leave the group."""
        group: SwitchGroup | None = self._pg
        self._pg = None
        if group is not None:
            group.shutdown()
