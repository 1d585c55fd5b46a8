"""The preset of BMv2's queues beside the real one: which packets of a burst come through, at what depth, how late.

A queue sends a packet each 20 ms, which is much longer than what else takes time.  A burst fills it: 64 packets wait,
one has gone, and the rest is dropped.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest

from switchsum_lab.simulation.conditions import BMV2, CableConditions, HostCost
from switchsum_lab.simulation.network import Network
from switchsum_switch.api.switch import Switch

from .test_switch_queues import QUEUEING, packet, reports

BURST, LENGTH, APART_S = 150, 64, 20e-3


def simulated() -> list[tuple[int, ...]]:
    """Return what the program was told of each packet of the burst that came through."""
    network = Network()
    timing = replace(BMV2, cost=HostCost(frame_s=3e-6), egress_s=APART_S)
    network.switch("s1", Switch.from_file(QUEUEING), timing)
    first, second = network.host("h1"), network.host("h2")
    network.link("h1", "s1", CableConditions(rate_bps=1e10), port=1)
    network.link("s1", "h2", CableConditions(rate_bps=1e10), port=3)
    for number in range(BURST):
        first.send(packet(number))
    network.run()
    return reports(second)


def test_the_preset_has_queues_of_64_packets() -> None:
    told = simulated()
    assert [one[1] for one in told] == [0, *range(LENGTH)]  # the first one goes at once
    assert [one[2] for one in told] == [0, *reversed(range(LENGTH))]
    assert [round(one[4] / 1e6 / APART_S) for one in told] == [*range(LENGTH + 1)]


@pytest.mark.bmv2
@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_the_preset_waits_as_bmv2_does() -> None:
    from switchsum.testing.bmv2 import Bmv2Program

    text = QUEUEING.with_suffix(".p4info.txtpb").read_text()
    with Bmv2Program(QUEUEING.read_bytes(), text) as real:
        real.pace_queues(round(1 / APART_S))
        real.send(1, packet(0))
        came = real.collect(bool, 1.0)  # the first one goes at once, if nothing else has come
        for number in range(1, BURST):
            if number == BURST // 2:
                time.sleep(1e-2)  # its receive ring holds 90, and half of the burst fills the queue
            real.send(1, packet(number))
        came += real.collect(lambda frames: False, 2 * LENGTH * APART_S)
    told = [
        (data[0], *(int.from_bytes(data[at : at + size]) for at, size in ((1, 3), (4, 3), (7, 4), (11, 4))))
        for _, data in came
    ]
    expected = simulated()
    # While the burst lasts, packets leave the real queue, and others take their places.
    lasted_s = (max(one[3] for one in told) - min(one[3] for one in told)) / 1e6
    assert 0 <= len(told) - len(expected) <= lasted_s / APART_S + 2
    assert max(one[1] for one in told) == max(one[1] for one in expected)
    assert max(one[4] for one in told) == pytest.approx(max(one[4] for one in expected), rel=0.15)
    assert [one[2] for one in told[-LENGTH:]] == [one[2] for one in expected[-LENGTH:]]
