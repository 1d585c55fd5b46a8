"""What a controller is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from switchsum.controller.switch import Limits, Program
from switchsum.protocol.wire import Address


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a controller is started with."""

    program: Program
    switch_address: str
    """P4Runtime server, host:port."""
    address: Address
    """The switch's own Ethernet and IPv4 address and UDP port, as hosts see it."""
    growth_bytes: int | None = None
    """By how much the switch's frames may grow; 65535: no limit; None: what `Switch.find_limits` finds."""
    port_frames: int | None = None
    """How many frames each port holds before it drops any; None: what `Switch.find_limits` finds."""
    stations: dict[int, int] = field(default_factory=dict)
    """Port of each Ethernet address that is known beforehand."""
    flood_ports: frozenset[int] = frozenset()
    """Where broadcasts go, besides the stations' and members' ports."""
    device_id: int = 0
    """P4Runtime's."""
    election_id: int | None = None
    """P4Runtime's, 1 to 2^128 - 1; None: one that is high enough, unless another client is primary."""
    package_version: str = ""
    """For messages."""

    def limits(self, found: Limits) -> Limits:
        """Return what the switch cannot do: what is given, else what was found."""
        return Limits(
            growth_bytes=found.growth_bytes if self.growth_bytes is None else self.growth_bytes,
            port_frames=found.port_frames if self.port_frames is None else self.port_frames,
        )
