"""Our own program on both engines of the switch: thousands of random frames of each build, well-formed and broken."""

from __future__ import annotations

import numpy as np
import pytest

from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import FLOOD_GROUP, FORWARDING, Rig, worker
from switchsum_protocol.frame import LANE_BUILDS, Reason

from .traffic import WORKERS, Traffic, share_slots

FRAMES = {128: 10_000, 256: 3_000, 2048: 3_000}
"""By lanes: builds differ in the number of lanes alone, and the interpreter takes its time for each of these."""


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_both_engines_do_the_same_with_random_frames(lanes: int) -> None:
    engines = [Embedded(lanes, "interpreter"), Embedded(lanes, "native")]
    rigs = [Rig(engine, workers=WORKERS, lanes_per_frame=lanes) for engine in engines]
    for engine in engines:
        share_slots(engine)
        stations = f"{FORWARDING}.stations"
        engine.insert(stations, (worker(1).mac,), f"{FORWARDING}.forward", (2,))
        engine.insert(stations, (worker(2).mac,), f"{FORWARDING}.flood", (FLOOD_GROUP,))
        engine.insert("SwitchIngress.ingress_loss.probability", (3,), "SwitchIngress.ingress_loss.lose", (1 << 28,))
        engine.insert("SwitchEgress.egress_loss.probability", (2,), "SwitchEgress.egress_loss.lose", (1 << 29,))
    traffic = Traffic(rigs[0], lanes)
    for number in range(FRAMES[lanes]):
        port, frame = traffic.frame()
        for engine in engines:
            engine.now_us = traffic.now_us
        expected, got = (engine.process(port, frame) for engine in engines)
        assert got == expected, f"frame {number} on port {port}: {frame[:120].hex()}"
    reference, native = (engine.pipeline.state for engine in engines)
    for name, register in reference.registers.items():
        np.testing.assert_array_equal(native.registers[name].memory, register.memory, name)
    for name, counter in reference.counters.items():
        np.testing.assert_array_equal(native.counters[name].counts, counter.counts, name)
    assert native.random[0] == reference.random[0]
    counts = [reference.counters[f"Switch{part}.events"].counts[:, 0] for part in ("Ingress.reply", "Egress")]
    unseen = {reason for reason in Reason if not any(count[reason] for count in counts)}
    assert unseen <= {Reason.PADDING}, "the traffic leaves paths out"
