"""Which build of the P4 program links carry."""

from __future__ import annotations

from switchsum_switch.wires.headers import ETHERNET_BYTES

from .errors import UsageError
from .frame import FRAME_BYTES, LANE_BUILDS, payload_bytes


def largest_build(mtu: int) -> int:
    """Return the lanes of the largest build whose frames fit links with this MTU; raises UsageError if none do."""
    fitting = [lanes for lanes in LANE_BUILDS if FRAME_BYTES + payload_bytes(lanes) <= mtu + ETHERNET_BYTES]
    if not fitting:
        least = FRAME_BYTES + payload_bytes(min(LANE_BUILDS)) - ETHERNET_BYTES
        raise UsageError(f"frames of {min(LANE_BUILDS)} lanes need an MTU of at least {least}, not {mtu}")
    return max(fitting)
