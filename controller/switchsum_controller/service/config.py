"""The configuration of a controller."""

from __future__ import annotations

from dataclasses import dataclass, field

from switchsum_switch.wires.headers import Address

from ..switches.switch_session import Build, Limits
from ..trees.fabric import Fabric, fabric_of_one


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a controller."""

    program: Build
    switch_address: str
    """Address of the switch's P4Runtime server, host:port or unix:path."""
    address: Address
    """The switch's own Ethernet and IPv4 address and UDP port, to which hosts send."""
    growth_bytes: int | None = None
    """Most bytes by which a frame may grow in the switch; 65535: no limit; None: as `Session.find_limits` finds."""
    port_frames: int | None = None
    """Frames that each port holds before it drops any; None: as `Session.find_limits` finds."""
    stations: dict[int, int] = field(default_factory=dict)
    """Port of each Ethernet address that is known from the start."""
    flood_ports: frozenset[int] = frozenset()
    """Ports to which broadcasts go, beside those of stations and members."""
    fabric: Fabric | None = None
    """Several switches and the tree that they make; None: the one at `switch_address`."""
    device_id: int = 0
    """P4Runtime's device id."""
    election_id: int | None = None
    """P4Runtime's election id, 1 to 2^128 - 1; None: one that is high enough, unless another client is primary."""
    package_version: str = ""
    """Version of switchsum, for messages."""

    @property
    def switches(self) -> Fabric:
        """The switches that this controller keeps."""
        return self.fabric or fabric_of_one(self.switch_address)

    def limits(self, found: Limits) -> Limits:
        """Return the limits of the switch: those that are configured, else those that were found."""
        return Limits(
            growth_bytes=found.growth_bytes if self.growth_bytes is None else self.growth_bytes,
            port_frames=found.port_frames if self.port_frames is None else self.port_frames,
        )
