"""Queues behave as theory says: random arrivals wait as M/D/1 has it, and a bottleneck passes its rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from .rig import QUICK, frame, pair

SERVICE_S = 1e-6
FRAMES = 8_000
LOAD = 0.5


def test_waiting_at_random_arrivals_follows_the_formula() -> None:
    network, first, _ = pair(QUICK)
    link = network.links["s1->h2"]
    link.watch()
    gaps = np.random.default_rng(7).exponential(SERVICE_S / LOAD, FRAMES)
    data = frame()
    for at in np.cumsum(gaps).tolist():
        first.send(data, at=at)
    network.run()
    waits = [one.departs_s - SERVICE_S - one.at_s for one in link.sent]
    assert len(waits) == FRAMES
    assert np.mean(waits) == pytest.approx(SERVICE_S * LOAD / (2 * (1 - LOAD)), rel=0.06)


def test_a_bulk_flow_gets_the_rate_of_its_bottleneck() -> None:
    network, first, second = pair(replace(QUICK, queue_frames=64))
    for number in range(3000):
        first.send(frame(number), at=number * SERVICE_S / 2)  # twice as much as passes
    network.run(until=1200e-6)
    times = [at_s for at_s, _ in second.received]
    assert (len(times) - 1) * 1000 / (times[-1] - times[0]) == pytest.approx(1e9, rel=0.01)
    assert network.links["s1->h2"].dropped > 1000
