"""Ordinary traffic through the P4 program: forwarded, flooded, answered, lost; and forged frames among it."""

from __future__ import annotations

import pytest

from switchsum.testing.encapsulations import TAG, encapsulations
from switchsum.testing.rig import CPU_PORT, EPOCH, FIRST_SLOT, FLOOD_GROUP, FORWARDING, JOB, SWITCH, Rig, cookie, worker
from switchsum_protocol import wire
from switchsum_protocol.frame import AGGREGATION_PORT, Flag, Header, Kind, Reason
from switchsum_switch.wires import headers

from .rounds import run_round, some_lanes


def test_a_packet_out_leaves_by_its_port(rig: Rig) -> None:
    frame = bytes(range(60))
    assert rig.engine.process(CPU_PORT, (3 << 7).to_bytes(2) + frame) == [(3, frame)]


def ethernet(destination: int, source: int, ethertype: int, body: bytes) -> bytes:
    return destination.to_bytes(6) + source.to_bytes(6) + ethertype.to_bytes(2) + body


BROADCAST = (1 << 48) - 1


def test_ordinary_traffic_follows_its_entries_or_floods(rig: Rig) -> None:
    stations = f"{FORWARDING}.stations"
    frame = ethernet(worker(1).mac, worker(0).mac, 0x88B5, b"hello" * 12)
    assert rig.engine.process(1, frame) == []
    assert rig.events(Reason.UNKNOWN_DESTINATION) == 1
    rig.engine.insert(stations, (worker(1).mac,), f"{FORWARDING}.forward", (2,))
    assert rig.engine.process(1, frame) == [(2, frame)]
    rig.engine.set_default(stations, f"{FORWARDING}.flood", (FLOOD_GROUP,))
    frame = ethernet(BROADCAST, worker(0).mac, 0x88B5, b"hello" * 12)
    flooded = rig.engine.process(1, frame)
    assert sorted(flooded) == [(rank + 1, frame) for rank in range(1, rig.workers)]


def test_transit_frames_of_ours_pass_untouched(rig: Rig) -> None:
    rig.engine.insert(
        f"{FORWARDING}.stations",
        (worker(1).mac,),
        f"{FORWARDING}.forward",
        (2,),
    )
    header = Header(kind=Kind.CONTRIBUTION, job=1, flags=0)
    for payload in (b"", rig.padding, b"odd"):
        other = headers.Address(mac=worker(1).mac, ip=headers.parse_ip("10.9.9.9"), port=AGGREGATION_PORT)
        frame = wire.build_frame(worker(0), other, header, payload, checksum=True)
        assert rig.engine.process(1, frame) == [(2, frame)]


def test_nobody_else_may_bear_the_switchs_address(rig: Rig) -> None:
    rig.engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
    forged = wire.build_frame(SWITCH, worker(1), Header(kind=Kind.RESULT))
    assert rig.engine.process(1, forged) == []
    own_mac = ethernet(worker(1).mac, SWITCH.mac, 0x88B5, bytes(50))
    assert rig.engine.process(1, own_mac) == []
    assert rig.events(Reason.SPOOFED) == 2


STRANGER = headers.Address(mac=0x02_00_00_00_09_09, ip=headers.parse_ip("10.0.0.99"), port=AGGREGATION_PORT)


def result_from(source: headers.Address) -> bytes:
    header = Header(kind=Kind.RESULT, job=JOB, epoch=EPOCH, flags=Flag.PAYLOAD, cookie=cookie(0))
    return wire.build_frame(source, worker(0), header, bytes(512))


FORGED = {name: (frame, why) for name, frame, why in encapsulations(result_from(SWITCH), STRANGER, worker(0))}
ORDINARY = {name: frame for name, frame, _ in encapsulations(result_from(STRANGER), STRANGER, worker(0))}


def test_nobody_bears_the_switchs_ip_whatever_is_around_it(rig: Rig) -> None:
    rig.engine.insert(f"{FORWARDING}.stations", (worker(0).mac,), f"{FORWARDING}.forward", (1,))
    counted = dict.fromkeys((Reason.SPOOFED, Reason.SPOOFED_INSIDE, Reason.OPAQUE), 0)
    for name, (frame, reason) in FORGED.items():
        counted[reason] += 1
        assert rig.engine.process(3, frame) == [], name
        assert rig.events(reason) == counted[reason], name
    for name, frame in ORDINARY.items():
        hidden = FORGED[name][1] is Reason.OPAQUE
        assert rig.engine.process(3, frame) == ([] if hidden else [(1, frame)]), name
    assert rig.events(Reason.OPAQUE) == 2 * counted[Reason.OPAQUE]
    assert rig.events(Reason.TRUNCATED) == 0


def test_nobody_bears_the_switchs_mac_whatever_is_around_it(rig: Rig) -> None:
    rig.engine.set_default(f"{FORWARDING}.stations", f"{FORWARDING}.flood", (FLOOD_GROUP,))
    for name, frame in ORDINARY.items():
        forged = frame[:6] + SWITCH.mac.to_bytes(6) + frame[12:]
        assert rig.engine.process(3, forged) == [], name
    in_gre = ORDINARY["a frame in GRE"]
    at = in_gre.rindex(STRANGER.mac.to_bytes(6))
    assert rig.engine.process(3, in_gre[:at] + SWITCH.mac.to_bytes(6) + in_gre[at + 6 :]) == []


def test_nobody_says_in_arp_that_the_switchs_ip_is_his(rig: Rig) -> None:
    rig.engine.insert(f"{FORWARDING}.stations", (worker(0).mac,), f"{FORWARDING}.forward", (1,))
    reply = bytes.fromhex("0001080006040002") + STRANGER.mac.to_bytes(6)
    target = worker(0).mac.to_bytes(6) + worker(0).ip.to_bytes(4)
    for reason, tags in ((Reason.SPOOFED, b""), (Reason.SPOOFED_INSIDE, TAG), (Reason.SPOOFED_INSIDE, 2 * TAG)):
        before = rig.events(reason)
        macs = worker(0).mac.to_bytes(6) + STRANGER.mac.to_bytes(6)
        for sender in (SWITCH.ip, STRANGER.ip):
            frame = macs + tags + b"\x08\x06" + reply + sender.to_bytes(4) + target
            assert rig.engine.process(4, frame) == ([] if sender == SWITCH.ip else [(1, frame)])
        assert rig.events(reason) == before + 1


def test_what_has_a_tag_is_ordinary_traffic_though_it_is_addressed_to_the_switch(rig: Rig) -> None:
    frame = rig.contribution(0, 1, some_lanes(rig))
    for tags in (TAG, 2 * TAG):
        assert rig.engine.process(1, frame[:12] + tags + frame[12:]) == []
    ask = bytes.fromhex("0001080006040001") + worker(0).mac.to_bytes(6) + worker(0).ip.to_bytes(4) + bytes(6)
    macs = bytes.fromhex("ffffffffffff") + worker(0).mac.to_bytes(6)
    assert rig.engine.process(1, macs + TAG + b"\x08\x06" + ask + SWITCH.ip.to_bytes(4)) == []
    assert rig.query(FIRST_SLOT, 1).bitmap == 0
    assert rig.events(Reason.UNKNOWN_DESTINATION) == 3
    run_round(rig, 1)


def test_the_switch_answers_arp_and_ping(rig: Rig) -> None:
    from scapy.layers.inet import ICMP, IP
    from scapy.layers.l2 import ARP, Ether

    me, it = headers.format_mac(worker(0).mac), headers.format_mac(SWITCH.mac)
    my_ip, its_ip = headers.format_ip(worker(0).ip), headers.format_ip(SWITCH.ip)
    request = Ether(src=me, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=me, psrc=my_ip, pdst=its_ip)
    [(port, frame)] = rig.engine.process(1, bytes(request))
    reply = Ether(frame)
    assert port == 1
    assert (reply[ARP].op, reply[ARP].hwsrc, reply[ARP].psrc, reply[ARP].hwdst, reply.dst) == (2, it, its_ip, me, me)

    for sequence in range(64):  # every kind of carry in the checksum
        ping = Ether(src=me, dst=it) / IP(src=my_ip, dst=its_ip) / ICMP(id=0xF7F0, seq=sequence * 1021) / b"data"
        [(port, frame)] = rig.engine.process(1, bytes(ping))
        pong = Ether(frame)
        assert (pong[ICMP].type, pong[IP].src, pong[IP].dst, pong.dst) == (0, its_ip, my_ip, me)
        assert bytes(pong[ICMP].payload)[:4] == b"data"
        assert headers.internet_checksum(bytes(pong[ICMP])[:12]) == 0


@pytest.mark.parametrize(("direction", "reason"), [("Ingress", Reason.LOST_INGRESS), ("Egress", Reason.LOST_EGRESS)])
def test_the_drop_simulator_loses_its_share(rig: Rig, direction: str, reason: Reason) -> None:
    share = 0.25
    rig.engine.insert(
        f"Switch{direction}.{direction.lower()}_loss.probability",
        (1,),
        f"Switch{direction}.{direction.lower()}_loss.lose",
        (int(share * 2**32),),
    )
    ask = bytes.fromhex("ffffffffffff") + worker(0).mac.to_bytes(6) + bytes.fromhex("0806000108000604000102")
    ask += bytes(5) + worker(0).ip.to_bytes(4) + bytes(6) + SWITCH.ip.to_bytes(4)
    tries = 120
    answered = sum(len(rig.engine.process(1, ask)) for _ in range(tries))
    assert rig.events(reason) == tries - answered
    assert abs(answered / tries - (1 - share)) < 0.16
    assert rig.engine.process(2, ask.replace(worker(0).ip.to_bytes(4), worker(1).ip.to_bytes(4))) != []
