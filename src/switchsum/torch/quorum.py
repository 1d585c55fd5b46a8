"""torchft's process group on a switch: `torchft.Manager(pg=ProcessGroupSwitchsum(), ...)`.

torchft forms the group anew for each quorum.  Where no controller is named (SWITCHSUM_CONTROLLER), the quorum's rank 0
starts one with a switch, as for any other group, and they end with it.
"""

from __future__ import annotations

import json
import secrets
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torchft.process_group import ProcessGroupWrapper

from switchsum.torch.group import SwitchGroup
from switchsum.torch.groups import form
from switchsum.torch.store import Meeting, fetch

_NAME: Final = "switchsum/quorum"


class ProcessGroupSwitchsum(ProcessGroupWrapper):
    """A group of torchft's replicas whose sums a switch makes.

    Example:
        >>> manager = torchft.Manager(pg=ProcessGroupSwitchsum(timeout=timedelta(seconds=30)), min_replica_size=2, ...)

    """

    _pg: Any
    _timeout: timedelta

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> SwitchGroup:
        """Form the group of a quorum in a store of its own: torchft's `configure` calls it, or its `reconfigure`."""
        return form(store, rank, world_size, self._timeout, self._name(store, rank, world_size))

    def _name(self, store: dist.Store, rank: int, world_size: int) -> str:
        """Return a name that no quorum has had before, the same on all ranks."""
        if rank == 0:
            store.set(_NAME, json.dumps(secrets.token_hex(8)))
        meeting = Meeting(store, rank, world_size, self._timeout.total_seconds())
        return str(fetch(meeting, _NAME, "names the quorum", 0))

    def getBackendName(self) -> str:
        """Return the name that torchft shows."""
        return "torchft-switchsum"

    def shutdown(self) -> None:
        """Leave the group."""
        group: SwitchGroup | None = self._pg
        self._pg = None
        if group is not None:
            group.shutdown()
