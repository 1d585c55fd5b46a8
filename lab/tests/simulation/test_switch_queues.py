"""Queues between ingress and egress: what a program is told of them, who is dropped, who goes first, and when."""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum_lab.simulation.conditions import CableConditions, HostCost, SwitchTiming
from switchsum_lab.simulation.network import Discarded, Host, Network
from switchsum_lab.simulation.world import Storm
from switchsum_protocol.errors import UsageError
from switchsum_switch.api.switch import Switch

from .rig import QUICK, frame, numbers, pair

QUEUEING = Path(__file__).resolve().parents[3] / "switch" / "tests" / "programs" / "queueing.json"
REPORT = struct.Struct("!B3s3sII6s6s")
"""Priority, then what the program was told: depths, time of enqueueing, waiting, time of arrival and of egress."""
BEHIND = "s1->h2"
FIRST_HOP_S = 125 * 8 / 1e12 + 1e-6


def rig(
    link: CableConditions = QUICK, *, queues: int = 1, timing: SwitchTiming | None = None, **options: Any
) -> tuple[Network, Host, Host]:
    """Return h1 -> s1 -> h2 with a program that reports what it is told."""
    network = Network(**options)
    network.switch("s1", Switch.from_file(QUEUEING, priority_queues=queues), timing or SwitchTiming())
    hosts = network.host("h1"), network.host("h2")
    network.link("h1", "s1", replace(QUICK, rate_bps=1e12), port=1)
    network.link("s1", "h2", link, port=3)
    return network, *hosts


def packet(number: int = 0, *, priority: int = 0) -> bytes:
    """Return 125 bytes, which take 1 us to send."""
    return bytes([priority]).ljust(121, b"\0") + number.to_bytes(4)


def reports(host: Host) -> list[tuple[int, ...]]:
    """Return what the program was told of each packet."""
    fields = [REPORT.unpack(data[: REPORT.size]) for _, data in host.received]
    return [tuple(int.from_bytes(x) if isinstance(x, bytes) else x for x in one) for one in fields]


def test_a_program_is_told_the_depths_and_times_of_its_queue() -> None:
    network, first, second = rig()
    for number in range(5):
        first.send(packet(number), at=100e-6)
    network.run(until=100e-6 + FIRST_HOP_S + 1.5e-6)
    link = network.links[BEHIND]
    assert (link.queued, link.queue().frames, link.queue().bytes) == (4, 3, 375)  # one of the four is being sent
    network.run()
    told = reports(second)
    assert [one[1] for one in told] == [0, 0, 1, 2, 3]
    assert [one[2] for one in told] == [0, 3, 2, 1, 0]
    assert [one[3] for one in told] == [101] * 5
    assert [one[4] for one in told] == [0, 1, 2, 3, 4]
    assert [one[6] - one[5] for one in told] == [0, 1, 2, 3, 4]
    assert (link.queued, link.most_queued, link.queue().frames) == (0, 5, 0)
    assert link.mean_wait_s == pytest.approx(2e-6, abs=5e-9)


def test_both_ways_of_waiting_give_the_same_times() -> None:
    """A program that does not look at its queues runs at once; with queues before egress it sends at the same times."""
    runs: list[list[object]] = []
    for has_queues in (False, True):
        network, first, second = pair(replace(QUICK, queue_frames=6, mark_bytes=400))
        if has_queues:
            network.switches["s1"].queue(2).depth_frames = 1000
        network.links[BEHIND].watch()
        for number, at in enumerate(np.cumsum(np.random.default_rng(3).exponential(1.1e-6, 400)).tolist()):
            first.send(frame(number), at=at)
        network.run(until=200e-6)
        link = network.links[BEHIND]
        runs.append([link.queued, link.queued_bytes])
        network.run()
        assert (link.queue().dropped > 0) == has_queues
        runs[-1] += [link.dropped, link.marked, link.most_queued, link.mean_wait_s, network.digest]
        runs[-1] += [link.depth(), second.received]
        assert link.dropped > 10
    assert runs[0] == runs[1]


def test_a_higher_priority_goes_first_and_has_a_queue_of_its_own() -> None:
    network, first, second = rig(replace(QUICK, queue_frames=4), queues=2)
    for number in range(8):
        first.send(packet(number), at=0.0)
    first.send(packet(99, priority=1), at=1e-9)
    network.run()
    assert numbers(second) == [0, 99, 1, 2, 3]
    assert [network.links[BEHIND].queue(number).dropped for number in (0, 1)] == [4, 0]
    with pytest.raises(UsageError, match="there is no queue 2: a port has 2"):
        network.links[BEHIND].queue(2)


def test_rates_and_lengths_are_those_that_the_switch_was_given() -> None:
    network, first, second = rig(queues=2)
    switch = network.switches["s1"]
    switch.queue(3).rate_pps = 100_000
    switch.queue(3, 1).rate_bps = 1e8 / 2
    switch.queue(3).depth_frames = 3
    for number in range(6):
        first.send(packet(number), at=0.0)
    network.run()
    gaps = [later - sooner for (sooner, _), (later, _) in itertools.pairwise(second.received)]
    assert numbers(second) == [0, 1, 2, 3]
    assert gaps == pytest.approx([10e-6] * 3, abs=1e-9)
    for number in range(3):
        first.send(packet(number, priority=1))
    network.run()
    late = [at_s for at_s, _ in second.received[4:]]
    assert [later - sooner for sooner, later in itertools.pairwise(late)] == pytest.approx([20e-6] * 2, abs=1e-9)
    assert network.links[BEHIND].dropped == 2


@pytest.mark.parametrize("waits", [False, True])
def test_frames_are_in_a_switch_for_its_processing_delay(waits: bool) -> None:
    timing = SwitchTiming(processing_s=3e-6)
    if waits:
        network, first, second = rig(timing=timing)
        first.send(packet())
    else:
        network, first, second = pair(QUICK, timing=timing)
        first.send(frame())
    network.run(until=FIRST_HOP_S + 2.9e-6)
    assert network.links[BEHIND].queued == 0
    network.run()
    [(at_s, _)] = second.received
    assert at_s == pytest.approx(FIRST_HOP_S + 3e-6 + 2e-6, abs=2e-12)
    if waits:
        assert reports(second)[0][3:] == (4, 0, 1, 4)  # enqueued at 4 us, arrived at 1 us, in egress at 4 us


def test_a_switch_with_one_processor_takes_one_frame_after_the_other() -> None:
    timing = SwitchTiming(cost=HostCost(frame_s=10e-6), waiting_frames=3)
    network, first, second = rig(timing=timing)
    for number in range(5):
        first.send(packet(number), at=0.0)
    network.run()
    assert numbers(second) == [0, 1, 2]
    assert [round(at_s * 1e6) for at_s, _ in second.received] == [13, 23, 33]
    assert network.discarded("s1") == Discarded(no_link=0, too_long=0, processor=2)


def test_packets_that_wait_find_memory_or_end_with_the_reason() -> None:
    network, first, second = rig(frame_bytes=256)
    for number in range(2000):
        first.send(packet(number), at=0.0)
    network.run()
    assert numbers(second) == [*range(2000)]
    network, first, _ = rig(replace(QUICK, rate_bps=1e6), frame_bytes=2048, most_bytes=10 << 20)

    def fill() -> None:
        for _ in range(9):
            for number in range(500):
                first.send(packet(number))
            network.run(until=network.now + 10e-6)

    with pytest.raises(Storm, match="memory is limited"):
        fill()


def test_a_frame_that_outgrows_the_network_is_counted() -> None:
    network = Network(frame_bytes=64)
    switch = network.switch("s1", Switch.from_file(QUEUEING.with_name("route_inspection.json")))
    switch.tables["routes"].set_default("forward", port=2)
    switch.tables["stations"].set_default("inspect", station=1)
    first, second = network.host("h1"), network.host("h2")
    network.link("h1", "s1", port=1)
    network.link("h2", "s1", port=2)
    header = bytes(12) + b"\x08\x00" + b"\x46" + bytes(7) + b"\x40" + bytes(11) + b"\x1f\x04\0\0"
    for size in (56, 57):  # each grows by 8 bytes
        first.send(header.ljust(size, b"\0"))
    network.run()
    assert [len(data) for _, data in second.received] == [64]
    assert network.discarded("s1") == Discarded(no_link=0, too_long=1, processor=0)


def test_links_and_nodes_fill_lines_of_a_cache() -> None:
    world = rig()[0].world
    assert [(array.itemsize % 64, array.ctypes.data % 64) for array in (world.links, world.nodes)] == [(0, 0)] * 2
