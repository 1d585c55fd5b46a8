"""A ring of hosts over TCP with Reno's window; the switch only forwards."""

from __future__ import annotations

from typing import Final

from switchsum_lab.protocols import forwarding
from switchsum_lab.protocols.seam import HostLink, World
from switchsum_lab.protocols.tcp import Reno
from switchsum_lab.protocols.tcp_ring import Worker

LANES: Final = 362
"""A full frame at an MTU of 1,500."""
ANY_LANES: Final = True
ANY_JOBS: Final = True
LEVELS: Final = 2
PROGRAM: Final = forwarding.FORWARDING
entries: Final = forwarding.entries


def peer(world: World, link: HostLink) -> Worker:
    """Return a worker."""
    return Worker(world, link, Reno())
