"""Two hosts and a switch that forwards, and frames for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from switchsum_lab.simulation.conditions import CableConditions, SwitchTiming
from switchsum_lab.simulation.network import Host, Network
from switchsum_switch.api.switch import Switch
from switchsum_switch.wires.headers import internet_checksum

FORWARDER = Path(__file__).resolve().parents[3] / "exercises" / "switchsum_exercises" / "forwarder" / "solution.json"
QUICK = CableConditions(rate_bps=1e9, delay_s=1e-6, overhead_bytes=0)
"""A frame of 125 bytes takes 1 us to send and 1 us to arrive."""
NEAR, FAR = 0x02_00_00_00_00_01, 0x02_00_00_00_00_02


def pair(
    conditions: CableConditions, *, seed: int = 0, timing: SwitchTiming | None = None
) -> tuple[Network, Host, Host]:
    """Return h1 -> s1 -> h2, where `conditions` are those of the second link; the first one is quick."""
    network = Network(seed=seed)
    switch = network.switch("s1", Switch.from_file(FORWARDER), timing or SwitchTiming())
    first, second = network.host("h1"), network.host("h2")
    network.link("h1", "s1", replace(QUICK, rate_bps=1e12), port=1)
    network.link("s1", "h2", conditions, port=2)
    for port, address in ((1, NEAR), (2, FAR)):
        switch.tables["stations"].insert({"hdr.ethernet.destination": address}, "forward", port=port)
    return network, first, second


def frame(number: int = 0, size: int = 125) -> bytes:
    """Return an IPv4 frame to the second host whose sender understands ECN; its last bytes are a number."""
    ethernet = FAR.to_bytes(6) + NEAR.to_bytes(6) + b"\x08\x00"
    ip = bytearray(
        b"\x45\x02" + (size - 14).to_bytes(2) + bytes(4) + b"\x40\xfd\0\0" + bytes([10, 0, 0, 1, 10, 0, 0, 2])
    )
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    return ethernet + bytes(ip) + bytes(size - 34 - 4) + number.to_bytes(4)


def numbers(host: Host) -> list[int]:
    """Return the numbers of the frames that a host has received."""
    return [int.from_bytes(one[-4:]) for _, one in host.received]
