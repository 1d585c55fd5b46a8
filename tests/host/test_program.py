"""The worker engine over the real P4 program, and the reference switch held against it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from switchsum import p4src
from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import Impairment, LinkConditions
from switchsum_protocol.frame import (
    FIELDS,
    NO_BLOCK,
    WIDENED_FORMATS,
    Flag,
    Header,
    Kind,
    LaneFormat,
    Operator,
    Reason,
    narrow_bytes,
    padding_bytes,
    payload_bytes,
)
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, ReferenceSwitch, Replies
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry
from switchsum_switch.wires.headers import ETHERNET_BYTES, IPV4_BYTES, internet_checksum, udp_checksum

from .checks import check_sums

GROUP = 1
CPU_PORT = 255
PACKET_OUT = bytes(2)
UNLIMITED = 65535


def load(config: ClusterConfig, engine: EngineName) -> Pipeline:
    """Return the P4 program with the entries that a controller would write."""
    pipeline = Pipeline.load(p4src.load(config.lanes_per_frame).device_config, engine=engine)

    def insert(table: str, match: list[int], action: str, params: list[int]) -> None:
        entry = Entry(match=tuple(map(Exact, match)), action=action, params=tuple(params))
        pipeline.tables[table].insert(entry)

    switch = SWITCH_ADDRESS
    growth = UNLIMITED if config.growth_bytes is None else config.growth_bytes
    identity = (switch.mac, switch.ip, switch.port, growth)
    pipeline.tables["SwitchIngress.identity"].set_default("SwitchIngress.identify", identity)
    pipeline.multicast.set(GROUP, [(rank + 1, rank) for rank in range(config.workers)])
    for rank in range(config.workers):
        member = config.member(rank)
        address = member.address
        place = [address.mac, address.ip, address.port, member.cookie]
        insert("SwitchEgress.result_address", [member.job, rank], "SwitchEgress.address", place)
        insert(
            "SwitchIngress.validate.admission.admission",
            [member.job, 0, rank, member.epoch, address.ip, address.port, member.port],
            "SwitchIngress.validate.admission.admit",
            [member.bit, member.everybody, member.first_slot, member.slot_count, GROUP, member.cookie],
        )
    return pipeline


@pytest.mark.parametrize("lanes", [128, 256])
@pytest.mark.parametrize("growth", [None, 512])
def test_allreduce_through_the_program(lanes: int, growth: int | None) -> None:
    config = ClusterConfig(workers=3, lanes_per_frame=lanes, window_slots=4, growth_bytes=growth)
    bad = Impairment(loss=0.05, duplication=0.05, reordering=0.05)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), switch=load(config, "native"), seed=2)
    random = np.random.default_rng(2)
    for dtype in (np.float32, np.int32):
        arrays = [(random.standard_normal(20 * lanes - 7) * 1e6).astype(dtype) for _ in range(3)]
        for array in arrays:
            array[: -array.size % lanes + array.size].reshape(-1)[random.random(array.size) < 0.2] = 0
            array[lanes * 3 : lanes * 9] = 0
        outputs = [array.copy() for array in arrays]
        cluster.allreduce(outputs)
        check_sums(arrays, outputs, lanes)
    arrays = [random.standard_normal(20 * lanes - 7).astype(np.float32) for _ in range(3)]
    outputs = [array.copy() for array in arrays]
    cluster.allreduce(outputs, lanes="int8")
    assert len({output.tobytes() for output in outputs}) == 1
    assert np.abs(outputs[0] - np.sum(arrays, axis=0)).max() <= 3 * 2**3 / 127
    few = [random.integers(-8, 8, 100 * lanes - 7, np.int8) for _ in range(3)]
    outputs = [array.copy() for array in few]
    cluster.allreduce(outputs, lanes="int4")
    check_sums(few, outputs, lanes)


def random_frame(random: np.random.Generator, config: ClusterConfig, base: int) -> tuple[int, bytes]:
    """Return a contribution with now and then something wrong, and the port that it comes in at."""
    rank = int(random.integers(config.workers))
    payload = b""
    flags = Flag(0)
    lane_format = LaneFormat(int(random.choice([LaneFormat.INT32] * 2 + list(LaneFormat))))
    if lane_format in WIDENED_FORMATS and random.random() < 0.7:
        flags = Flag.PAYLOAD
        payload = random.bytes(narrow_bytes(config.lanes_per_frame))
    elif random.random() < 0.7:
        flags = Flag.PAYLOAD
        limit = int(random.choice([1 << 20, 1 << 31]))
        payload = random.integers(-limit, limit, config.lanes_per_frame).astype(">i4").tobytes()
    elif random.random() < 0.8:
        payload = bytes(padding_bytes(config.lanes_per_frame, config.growth_bytes))
    header = Header(
        kind=Kind.CONTRIBUTION,
        flags=flags | (Flag.REPEAT if random.random() < 0.1 else 0) | (Flag.MARK if random.random() < 0.02 else 0),
        job=config.job,
        epoch=config.epoch,
        rank=rank,
        cookie=config.cookie(rank),
        slot=config.first_slot + int(random.integers(2)),
        number=(base + int(random.integers(-1, 3))) & 0xFFFF_FFFF,
        block=3,
        next_block=int(random.choice([5, 9, NO_BLOCK])),
        next_exponent=int(random.integers(256)),
        exponent=100,
        digest=77,
        format=lane_format,
        operator=Operator(int(random.choice([Operator.SUM] * 2 + list(Operator)))),
    )
    if random.random() < 0.15:
        wrong = {
            "kind": Kind.RESULT,
            "version": 1,
            "operator": max(Operator) + 1,
            "format": max(LaneFormat) + 1,
            "job": 8,
            "epoch": 2,
            "rank": 30,
            "tree": 1,
            "cookie": 0,
            "slot": 1024,
            "block": 4,
            "digest": 78,
            "flags": int(flags) ^ Flag.PAYLOAD,
        }
        field = str(random.choice(list(wrong)))
        header = replace(header, **{field: wrong[field]})
    source = config.address(rank)
    if random.random() < 0.03:
        source = replace(source, port=source.port + 1)
    frame = build_frame(source, SWITCH_ADDRESS, header, payload, checksum=bool(random.random() < 0.3))
    if random.random() < 0.02:
        frame = with_congestion(frame)
    if random.random() < 0.03:
        broken = bytearray(frame)
        broken[int(random.integers(42, len(frame)))] ^= 0x40
        frame = bytes(broken)
        assert udp_checksum(frame)
    return rank + 1 if random.random() < 0.98 else 7, frame


def with_congestion(frame: bytes) -> bytes:
    """Return a frame as a congested queue leaves it: ECN "congestion experienced", and IPv4's checksum after it."""
    ip = bytearray(frame[ETHERNET_BYTES : ETHERNET_BYTES + IPV4_BYTES])
    ip[1] |= 3
    ip[10:12] = bytes(2)
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    return frame[:ETHERNET_BYTES] + ip + frame[ETHERNET_BYTES + IPV4_BYTES :]


def random_request(random: np.random.Generator, config: ClusterConfig, base: int) -> Header:
    """Return the controller's question about a cell, now and then one that changes it."""
    return Header(
        kind=Kind.SET if random.random() < 0.1 else Kind.QUERY,
        job=int(random.integers(1 << 16)),
        epoch=int(random.integers(1 << 16)),
        tree=int(random.integers(2)),
        slot=config.first_slot + int(random.integers(3)),
        number=(base + int(random.integers(-1, 3))) & 0xFFFF_FFFF,
        bitmap=int(random.integers(8)),
    )


@pytest.mark.parametrize("growth", [None, 512])
@pytest.mark.parametrize("lanes", [128, 256])
def test_the_reference_switch_does_what_the_program_does(lanes: int, growth: int | None) -> None:
    config = ClusterConfig(workers=3, lanes_per_frame=lanes, growth_bytes=growth)
    program = load(config, "native")
    reference = ReferenceSwitch(lanes_per_frame=lanes, growth_bytes=growth)
    for rank in range(3):
        reference.admit(config.member(rank))
    random = np.random.default_rng(lanes)
    base = 0xFFFF_FF00
    for step in range(6000):
        base = (base + (step % 7 == 0)) & 0xFFFF_FFFF
        port, frame = random_frame(random, config, base)
        assert sorted(reference.process(port, frame)) == sorted(program.process(port, frame)), frame[:90].hex()
        if random.random() < 0.05:
            request = random_request(random, config, base)
            [(_, answer)] = program.process(CPU_PORT, PACKET_OUT + build_frame(SWITCH_ADDRESS, SWITCH_ADDRESS, request))
            packet = parse_frame(answer[len(PACKET_OUT) :])
            assert packet is not None
            assert packet.header == reference.answer_request(request)
    counter = program.counters["SwitchIngress.reply.events"]
    counted = {reason: counter.read(reason)[0] for reason in Reason}
    assert counted == {reason: reference.events[reason] for reason in Reason}
    seen = {reason for reason, count in counted.items() if count}
    assert seen >= {
        Reason.LENGTH,
        Reason.CHECKSUM,
        Reason.VERSION,
        Reason.KIND,
        Reason.OPERATOR,
        Reason.FORMAT,
        Reason.NOT_ADMITTED,
        Reason.SLOT,
        Reason.STALE,
        Reason.HELD,
        Reason.REPEATED,
        Reason.MISMATCH,
        Reason.OVERFLOW,
        Reason.CONTRIBUTED,
        Reason.COMPLETED,
    }
    assert payload_bytes(lanes) <= (growth or UNLIMITED) or Reason.PADDING in seen


class Listener(ReferenceSwitch):
    """A switch that keeps the headers of all frames that it gets and sends."""

    def __init__(self, *, lanes_per_frame: int) -> None:
        super().__init__(lanes_per_frame=lanes_per_frame)
        self.heard: list[Header] = []

    def process(self, port: int, frame: bytes) -> Replies:
        replies = super().process(port, frame)
        for each in (frame, *(reply for _, reply in replies)):
            packet = parse_frame(each)
            assert packet is not None
            self.heard.append(packet.header)
        return replies


def test_a_field_has_its_default_where_the_table_says_that_it_means_nothing() -> None:
    bad = Impairment(loss=0.1, duplication=0.1)
    config = ClusterConfig(workers=3, window_slots=4)
    switch = Listener(lanes_per_frame=config.lanes_per_frame)
    cluster = Cluster(config, links=LinkConditions(up=bad, down=bad), switch=switch, seed=5)
    random = np.random.default_rng(5)
    for dtype in (np.float32, np.uint16, np.int32):
        cluster.allreduce([(random.standard_normal(40 * config.lanes_per_frame) * 1e4).astype(dtype) for _ in range(3)])
    refused = Header(kind=Kind.CONTRIBUTION, job=config.job, epoch=config.epoch, slot=999, cookie=config.cookie(0))
    switch.process(1, build_frame(config.address(0), SWITCH_ADDRESS, refused))
    assert {header.kind for header in switch.heard} == {Kind.CONTRIBUTION, Kind.RESULT, Kind.HELD, Kind.REJECT}
    for header in switch.heard:
        for name, field in FIELDS.items():
            assert header.kind in field.wire.kinds or getattr(header, name) == field.default, (name, header)
