"""A bulk stream as TCP has it: it fills its link, halves its window at losses and marks, and shares with another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from switchsum_lab.options import SimulateOptions
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.placement import host_address
from switchsum_lab.simulation.scenario import simulate
from switchsum_lab.simulation.streams import Receiver, Sender
from switchsum_switch.api.switch import Switch

from .rig import FORWARDER

SLOW = CableConditions(rate_bps=100e6, delay_s=1e-4, overhead_bytes=0, queue_frames=50)
QUICK = CableConditions(rate_bps=1e9, delay_s=1e-4, overhead_bytes=0)


def streams(link: CableConditions, *obeys: bool) -> tuple[Network, list[Sender]]:
    """Let streams share a link from one switch to another."""
    network = Network(seed=1)
    for name in ("s1", "s2"):
        network.switch(name, Switch.from_file(FORWARDER))
    network.link("s1", "s2", link, port=100, other_port=100, back=QUICK)
    senders = []
    for number, obeying in enumerate(obeys):
        near, far = host_address(2 * number), host_address(2 * number + 1)
        senders.append(Sender(near, far, obeys=obeying))
        for host, switch, end in ((f"h{number}", "s1", senders[-1]), (f"r{number}", "s2", Receiver(far, near))):
            node = network.native_host(host, end)
            network.link(host, switch, QUICK, port=number + 1)
            network.world.wake(node, 0.0)
        for name, ports in (("s1", (number + 1, 100)), ("s2", (100, number + 1))):
            for address, port in zip((near, far), ports, strict=True):
                network.switches[name].tables["stations"].insert(
                    {"hdr.ethernet.destination": address.mac}, "forward", port=port
                )
    return network, senders


def test_a_stream_fills_its_link_and_losses_halve_its_window() -> None:
    network, [sender] = streams(SLOW, False)
    network.run(1.0)
    assert sender.bytes > 0.95 * 100e6 / 8
    assert sender.cuts >= 3
    assert sender.repeats >= network.links["s1->s2"].dropped > 0
    assert network.links["s1->s2"].marked == 0, "its frames do not ask for marks"


def test_a_stream_that_obeys_marks_loses_nothing() -> None:
    network, [sender] = streams(replace(SLOW, queue_frames=200, mark_bytes=30_000), True)
    network.run(1.0)
    assert sender.bytes > 0.95 * 100e6 / 8
    assert network.links["s1->s2"].marked > 0
    assert (network.links["s1->s2"].dropped, sender.repeats) == (0, 0)
    assert network.links["s1->s2"].most_queued < 100


def test_a_lost_tail_is_repeated_after_the_time_out() -> None:
    network, [sender] = streams(replace(SLOW, lost_frames=tuple(range(10))), False)
    network.run(0.19)
    assert sender.bytes == 0
    network.run(0.5)
    assert sender.bytes > 0


def test_a_stream_does_not_wait_on_its_own_link() -> None:
    """Else its window would grow by frames that have not left yet, and a loss would not slow it down."""
    network, [sender] = streams(replace(SLOW, rate_bps=QUICK.rate_bps), False)
    network.run(0.5)
    assert sender.bytes > 0.95 * 0.5 * QUICK.rate_bps / 8
    assert network.links["h0->s1"].most_queued <= 3


@pytest.mark.parametrize(("way", "shape"), [("two-level-ring", "leaf-spine,4,2,4"), ("ring", "leaf-spine,2,1,8")])
def test_hosts_end_beside_streams_that_fill_short_queues(way: str, shape: str) -> None:
    """Streams used to keep full ports full, so that every frame of the others was dropped there."""
    options = SimulateOptions(topology=shape, size="1MB", workers=8, queue="8f", rate="10gbit", against="")
    wanted = replace(options.scenario(), background=3 if way == "two-level-ring" else 2)
    [found] = simulate(wanted, ways=[way])
    assert found.is_complete
    assert found.simulated_s < 0.1


def test_what_does_not_end_beside_streams_is_ended() -> None:
    options = SimulateOptions(topology="star,8", size="1kB", workers=4, queue="8f", rate="100mbit", against="")
    wanted = replace(options.scenario(), background=2)
    assert wanted.ends_s is not None
    assert replace(wanted, background=None).ends_s is None
    assert replace(wanted, until_s=1e-6).ends_s == 1e-6
    [found] = simulate(replace(wanted, until_s=1e-6), ways=["ring"])
    assert not found.is_complete


@pytest.mark.parametrize("obeys", [False, True])
def test_two_streams_share_a_link(obeys: bool) -> None:
    network, senders = streams(replace(SLOW, mark_bytes=30_000), obeys, obeys)
    network.run(3.0)
    first, second = (sender.bytes for sender in senders)
    assert first + second > 0.9 * 3.0 * 100e6 / 8
    assert 0.5 < first / second < 2.0
