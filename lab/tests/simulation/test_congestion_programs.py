"""Programs of our own to the statements of two exercises of p4lang's tutorials: ECN, and multi-hop route inspection.

Both have the exercises' network and answer.  Two hosts behind `s1` send over a slow link to two hosts behind `s2`: one
a little, the other more than the link takes.  What the first one sends tells of the queue: it leaves with the mark of
congestion, or with the depth that each switch has written into it, while the other one sends, and not before or after.

    h1 --+              +-- h2
         s1 --(slow)-- s2
    h11 -+              +-- h22
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.network import Network
from switchsum_switch.api.switch import Switch
from switchsum_switch.wires.headers import internet_checksum

PROGRAMS = Path(__file__).resolve().parents[3] / "switch" / "tests" / "programs"
ADDRESSES = {"h1": 0x0A000101, "h11": 0x0A00010B, "h2": 0x0A000202, "h22": 0x0A000216}
SLOW = CableConditions(rate_bps=512e3, delay_s=1e-3)
PROBE_S = 0.1
BULK_S = (1.0, 3.0)
LONG_QUEUE = 10


def exercise(program: str) -> Network:
    network = Network(seed=1)
    for name in ("s1", "s2"):
        network.switch(name, Switch.from_file(PROGRAMS / f"{program}.json"))
    for name in ADDRESSES:
        network.host(name)
    for near, hosts in (("s1", ("h1", "h11")), ("s2", ("h2", "h22"))):
        for port, host in enumerate(hosts, 1):
            network.link(host, near, CableConditions(rate_bps=100e6), port=port)
    network.link("s1", "s2", SLOW, port=3, other_port=3)
    for switch, own, others in (("s1", ("h1", "h11"), "10.0.2.0/24"), ("s2", ("h2", "h22"), "10.0.1.0/24")):
        routes = network.switches[switch].tables["routes"]
        routes.insert({"h.ipv4.destination": others}, "forward", port=3)
        for port, host in enumerate(own, 1):
            routes.insert({"h.ipv4.destination": f"{IPv4Address(ADDRESSES[host])}/32"}, "forward", port=port)
    return network


def packet(source: str, target: str, *, tos: int = 0, options: bytes = b"", size: int = 0) -> bytes:
    ip = bytearray([0x45 + len(options) // 4, tos]) + (20 + len(options) + size).to_bytes(2) + bytes(4)
    ip += bytes([64, 17, 0, 0]) + ADDRESSES[source].to_bytes(4) + ADDRESSES[target].to_bytes(4) + options
    ip[10:12] = internet_checksum(bytes(ip)).to_bytes(2)
    return bytes(12) + b"\x08\x00" + bytes(ip) + bytes(size)


def run(network: Network, probe: bytes) -> list[tuple[float, bytes]]:
    """Send a probe each tenth of a second from h1, and bulk from h11 for a while; return what h2 received."""
    for number in range(50):
        network.hosts["h1"].send(probe, at=number * PROBE_S)
    bulk, every = packet("h11", "h22", size=1000), 8e-3  # about 1 Mbit/s
    for number in range(int((BULK_S[1] - BULK_S[0]) / every)):
        network.hosts["h11"].send(bulk, at=BULK_S[0] + number * every)
    network.run()
    return network.hosts["h2"].received


def test_a_packet_that_finds_a_long_queue_is_marked() -> None:
    network = exercise("marking")
    network.links["s1->s2"].watch()
    received = run(network, packet("h1", "h2", tos=1, size=50))
    assert len(received) == 50
    assert all(internet_checksum(data[14:34]) == 0 and data[22] == 62 for _, data in received)
    marks = [data[15] for _, data in received]
    first, last = marks.index(3), len(marks) - marks[::-1].index(3)
    assert marks == [1] * first + [3] * (last - first) + [1] * (50 - last)
    # The queue grows by half a packet each 8 ms while the bulk is sent, and is empty as long after it.
    assert BULK_S[0] + LONG_QUEUE * 8e-3 < first * PROBE_S < BULK_S[0] + 0.5
    assert BULK_S[1] < last * PROBE_S < 2 * BULK_S[1]


def test_a_packet_whose_sender_does_not_understand_marks_has_none() -> None:
    assert {data[15] for _, data in run(exercise("marking"), packet("h1", "h2", tos=0, size=50))} == {0}


def test_each_switch_writes_its_number_and_its_queue_into_a_packet() -> None:
    network = exercise("route_inspection")
    for number, name in enumerate(("s1", "s2"), 1):
        network.switches[name].tables["stations"].set_default("inspect", station=number)
    received = run(network, packet("h1", "h2", options=bytes([31, 4, 0, 0]), size=50))
    assert len(received) == 50
    depths = []
    for _, data in received:
        assert (data[14], data[35], data[36:38]) == (0x4A, 20, b"\0\2")
        assert internet_checksum(data[14:54]) == 0
        far, near = (data[at : at + 8] for at in (38, 46))
        assert (far, near[:4]) == (b"\0\0\0\2" + bytes(4), b"\0\0\0\1")  # s2 was the last; nothing waits there
        depths.append(int.from_bytes(near[4:]))
    assert depths[:10] == [0] * 10
    assert max(depths) > 50
    assert depths[-1] == 0
    peak = depths.index(max(depths))
    assert depths[10:peak] == sorted(depths[10:peak])
