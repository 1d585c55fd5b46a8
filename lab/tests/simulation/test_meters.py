"""Meters (RFC 2698) in virtual time: tokens come as the network's clock goes, and not the machine's."""

from __future__ import annotations

from pathlib import Path

from switchsum_lab.simulation.network import Network
from switchsum_switch.api.switch import Switch
from switchsum_switch.state.meters import GREEN, RED, YELLOW, MeterRates

from .rig import QUICK

METERING = Path(__file__).resolve().parents[3] / "switch" / "tests" / "programs" / "metering.json"
CELL = 3


def test_a_burst_is_green_then_yellow_then_red_and_comes_back_with_virtual_time() -> None:
    network = Network()
    switch = network.switch("s1", Switch.from_file(METERING))
    host = network.host("h1")
    network.link("h1", "s1", QUICK, port=1)
    rates = MeterRates(committed=10_000, committed_burst=2, peak=20_000, peak_burst=5)  # one in 100 us, one in 50 us
    switch.meters["packets"].configure(CELL, rates)

    def colours(*at_us: int) -> list[int]:
        before = len(host.received)
        for at in at_us:
            host.send(bytes([0, CELL]).ljust(125, b"\0"), at=1e-3 + at * 1e-6)
        network.run()
        return [frame[2] for _, frame in host.received[before:]]

    assert colours(*range(7)) == [GREEN] * 2 + [YELLOW] * 3 + [RED] * 2
    assert colours(49, 50, 99, 100) == [RED, YELLOW, RED, GREEN]
    assert colours(1_000_000) == [GREEN]
    switch.meters["packets"].configure(CELL, None)
    assert colours(1_000_100, 1_000_101, 1_000_102) == [GREEN] * 3
