"""Queues behave as theory says: random arrivals wait as M/D/1 has it, and a bottleneck passes its rate.

`python -m checks.lab.queueing` has the same for more loads, with up to 20 million frames.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.records import Stop
from switchsum_lab.simulation.traffic import Traffic
from switchsum_protocol.errors import UsageError
from switchsum_switch.api.switch import Switch

from .rig import FAR, FORWARDER, NEAR, QUICK, frame
from .test_switch_queues import QUEUEING

SERVICE_S = 1e-6
"""Of a frame of 125 bytes."""
INSTANT = CableConditions(rate_bps=1e14, delay_s=0.0, overhead_bytes=0)


def network_of(link: CableConditions, source: Traffic, *, waits: bool) -> tuple[Network, Traffic]:
    """Return a network of a source, a switch, a link and a sink; packets wait before egress or behind it."""
    network = Network(seed=1)
    switch = network.switch("s1", Switch.from_file(QUEUEING if waits else FORWARDER))
    network.traffic("h1", source)
    sink = network.traffic("h2", Traffic())
    network.link("h1", "s1", INSTANT, port=1)
    network.link("s1", "h2", link, port=3)
    if not waits:
        for port, address in ((1, NEAR), (3, FAR)):
            switch.tables["stations"].insert({"hdr.ethernet.destination": address}, "forward", port=port)
    return network, sink


@pytest.mark.parametrize(("load", "frames", "waits"), [(0.3, 100_000, False), (0.6, 200_000, True)])
def test_waiting_at_random_arrivals_follows_the_formula(load: float, frames: int, waits: bool) -> None:
    # The program of the queueing switch takes the first byte as a priority.
    data = bytes(125) if waits else frame()
    source = Traffic(data, gap_s=SERVICE_S / load, frames=frames, is_random=True, seed=3)
    network, sink = network_of(QUICK, source, waits=waits)
    assert network.run() is Stop.IDLE
    assert sink.frames == frames - waits  # the program drops the frame that comes at 99 us
    assert network.links["s1->h2"].mean_wait_s == pytest.approx(SERVICE_S * load / (2 * (1 - load)), rel=0.02)


@pytest.mark.parametrize("waits", [False, True])
def test_a_bulk_flow_gets_the_rate_of_its_bottleneck(waits: bool) -> None:
    source = Traffic(bytes(125) if waits else frame(), gap_s=SERVICE_S / 2, frames=20_000)  # twice as much as passes
    network, sink = network_of(replace(QUICK, queue_frames=64, mark_bytes=4000), source, waits=waits)
    network.run(until=9e-3)
    assert sink.rate_bps == pytest.approx(1e9, rel=0.001)
    link = network.links["s1->h2"]
    assert (link.queued, link.most_queued) == (64, 64)
    assert link.dropped > 8000
    assert (sink.marked > 8000) == (link.marked > 8000) == (not waits)  # the queueing switch's frames are not IPv4


def test_what_is_no_source_is_refused() -> None:
    for frame_of, gap_s in ((b"", 1e-6), (b"x", 0.0), (b"x", -1.0)):
        with pytest.raises(UsageError, match="a source needs a frame"):
            Traffic(frame_of, gap_s=gap_s, frames=1)
