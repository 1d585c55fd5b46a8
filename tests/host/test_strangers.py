"""Frames from strangers, and from members that claim what is not theirs, while a job runs through the P4 program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.encapsulations import encapsulations
from switchsum.testing.network import LinkConditions
from switchsum.testing.rig import FORWARDING
from switchsum_host.engine.state import Count
from switchsum_protocol.frame import Flag, Header, Kind, Reason, payload_bytes
from switchsum_protocol.slot_rules import SWITCH_ADDRESS
from switchsum_protocol.wire import build_frame
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry
from switchsum_switch.wires.headers import Address

from .checks import check_sums
from .test_program import load

LANES = 128
STRANGER = Address(mac=0x02_00_00_00_09_09, ip=0x0A_00_00_63, port=666)
STRANGERS_PORT = 9
CONFIG = ClusterConfig(workers=3, lanes_per_frame=LANES, window_slots=4)
LANES_OF_EVIL = b"\x7f" * payload_bytes(LANES)


def evil_frames(random: np.random.Generator) -> Iterator[tuple[int, bytes]]:
    """Yield frames that would do harm if anybody believed them, and the port that each comes in at.

    Those that claim to be the victim's from where it is not know its cookie; those from where it is do not.
    """
    victim = CONFIG.address(0)
    claim = Header(
        kind=Kind.CONTRIBUTION,
        flags=Flag.PAYLOAD,
        job=CONFIG.job,
        epoch=CONFIG.epoch,
        rank=0,
        cookie=CONFIG.cookie(0),
        slot=CONFIG.first_slot + int(random.integers(4)),
        number=int(random.integers(1, 60)),
        exponent=int(random.integers(256)),
        block=int(random.integers(40)),
    )
    far = replace(claim, number=claim.number + 0x4000_0000)
    for header in (claim, far, replace(claim, flags=Flag(0))):
        payload = LANES_OF_EVIL if header.flags else b""
        # A stranger under his own address, under the victim's, from the victim's port; another member as the victim.
        yield STRANGERS_PORT, build_frame(STRANGER, SWITCH_ADDRESS, header, payload)
        yield STRANGERS_PORT, build_frame(victim, SWITCH_ADDRESS, header, payload)
        yield 1, build_frame(STRANGER, SWITCH_ADDRESS, header, payload)
        yield 1, build_frame(replace(victim, port=victim.port + 1), SWITCH_ADDRESS, header, payload)
        yield 2, build_frame(CONFIG.address(1), SWITCH_ADDRESS, header, payload)
        # The victim itself, but for the cookie.
        for cookie in (0, CONFIG.cookie(1), CONFIG.cookie(0) ^ 1 << int(random.integers(64))):
            yield 1, build_frame(victim, SWITCH_ADDRESS, replace(header, cookie=cookie), payload)
        # The victim under another job, an older or a newer epoch, in another tree, outside its slots.
        for wrong in ({"job": 8}, {"epoch": 0}, {"epoch": 2}, {"tree": 1}, {"slot": 1024}, {"slot": 0}, {"rank": 31}):
            yield 1, build_frame(victim, SWITCH_ADDRESS, replace(header, **wrong), payload)
    # Results and commands that only the switch and the controller may send.
    result = replace(claim, kind=Kind.RESULT, bitmap=7)
    for source in (STRANGER, SWITCH_ADDRESS, CONFIG.address(1)):
        for destination in (victim, SWITCH_ADDRESS):
            yield STRANGERS_PORT, build_frame(source, destination, result, LANES_OF_EVIL)
    # What a receiver unpacks by itself.
    for _, frame, _ in encapsulations(build_frame(SWITCH_ADDRESS, victim, result, LANES_OF_EVIL), STRANGER, victim):
        yield STRANGERS_PORT, frame
    for kind in (Kind.QUERY, Kind.SET, Kind.STATE, Kind.HELD, Kind.REJECT):
        yield STRANGERS_PORT, build_frame(STRANGER, SWITCH_ADDRESS, replace(far, kind=kind, flags=Flag(0)))


def test_no_stranger_changes_a_sum_or_stops_a_slot() -> None:
    pipeline = load(CONFIG, "native")
    stations = pipeline.tables[f"{FORWARDING}.stations"]
    stations.insert(Entry(match=(Exact(CONFIG.address(0).mac),), action=f"{FORWARDING}.forward", params=(1,)))
    cluster = Cluster(CONFIG, switch=pipeline, seed=4)
    came: list[bytes] = []
    cluster.network.connect(STRANGERS_PORT, LinkConditions(), came.append)
    random = np.random.default_rng(4)
    inputs = [[random.integers(-1000, 1000, 40 * LANES).astype(kind) for _ in range(3)] for kind in (np.int32, "f4")]
    outputs = [[array.copy() for array in arrays] for arrays in inputs]
    for arrays in outputs:
        for rank, array in enumerate(arrays):
            cluster.submit(rank, array)
    attacks = 0

    def done() -> bool:
        nonlocal attacks
        if cluster.clock.now_s >= attacks * 50e-6:
            attacks += 1
            for port, frame in evil_frames(random):
                cluster.network.send(port, frame)
            # And on the last wire, where no switch looks: only frames from the switch's addresses are taken, and of
            # those only what bears the cookie.
            header = Header(kind=Kind.RESULT, job=CONFIG.job, epoch=CONFIG.epoch, flags=Flag.PAYLOAD, bitmap=7)
            for number in range(60):
                known = replace(header, number=number, slot=CONFIG.first_slot + number % 4, cookie=CONFIG.cookie(0))
                for wrong in ({"ip": STRANGER.ip}, {"mac": STRANGER.mac}):
                    forged = replace(SWITCH_ADDRESS, **wrong)
                    cluster.workers[0].take(build_frame(forged, CONFIG.address(0), known, LANES_OF_EVIL))
                for kind in (Kind.RESULT, Kind.HELD, Kind.REJECT):
                    guess = replace(known, kind=kind, cookie=CONFIG.cookie(1))
                    payload = LANES_OF_EVIL if kind is Kind.RESULT else b""
                    cluster.workers[0].take(build_frame(SWITCH_ADDRESS, CONFIG.address(0), guess, payload))
        return all(len(worker.finished) == 2 for worker in cluster.workers)

    cluster.run(done)
    assert attacks > 10
    for arrays, results in zip(inputs, outputs, strict=True):
        check_sums(arrays, results, LANES)
    events = pipeline.counters["SwitchIngress.reply.events"]
    spoofed = Reason.SPOOFED, Reason.SPOOFED_INSIDE, Reason.OPAQUE
    for reason in (Reason.NOT_ADMITTED, Reason.COOKIE, Reason.SLOT, Reason.KIND, *spoofed):
        assert events.read(reason)[0] > 10, reason
    assert events.read(Reason.MISMATCH)[0] == 0
    assert cluster.workers[0].engine.counts[Count.FOREIGN] > 100
    assert cluster.workers[0].engine.counts[Count.FORGED] >= 180 * (attacks - 1)
    assert all(worker.engine.counts[Count.UNEXPECTED] == 0 for worker in cluster.workers)
    # What strangers are told goes back to where they are, whoever they claim to be, and is no result.
    assert came
    assert b"\x7f" * 64 not in b"".join(came)
