"""Public v1model programs for the benchmark, whose compiled forms lie in a folder of the user's.

None of them is part of this repository: here are the entries that their tables get, and frames for their parsers.
`NAME.json` and `NAME.p4info.txtpb` are what p4c makes of

- tutorials.basic, .load_balance, .source_routing and .calc: the solutions of github.com/p4lang/tutorials;
- onos.basic: `pipelines/basic` of github.com/opennetworkinglab/onos;
- sai.middleblock: `sai_p4/instantiations/google` of github.com/sonic-net/sonic-pins, with PLATFORM_BMV2.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from checks.bench.program_cases import (
    DISTINCT,
    FRAME_BYTES,
    MACS,
    PORTS,
    ROUTES,
    RULES,
    Program,
    Target,
    filtered_frames,
    frame,
    no_entries,
    routes,
    rules,
)
from switchsum_switch.messages.matches import Exact, Lpm, Match, Ternary

SAI_ROUTES: Final = 10_000
_HEAD: Final = MACS[0].to_bytes(6) + MACS[1].to_bytes(6)
_OF_OTHERS: Final = b"\x12\x34"
"""The EtherType of calc and source_routing."""
_IPV4: Final = 14
_UDP, _TCP = 17, 6


def unicast(rng: random.Random) -> int:
    """Return an address that a router forwards: neither loopback nor multicast."""
    first: int = rng.choice((*range(1, 127), *range(128, 224)))
    return first << 24 | rng.getrandbits(24)


def public_routes(count: int) -> list[Lpm]:
    """Return routes to unicast addresses."""
    return [route for route in routes(2 * count) if route.value >> 24 in {*range(1, 127), *range(128, 224)}][:count]


def routed(count: int, rng: random.Random) -> list[bytes]:
    """Return frames to addresses behind such routes."""
    return [
        frame(unicast(rng), chosen.value | rng.getrandbits(32) & (1 << 32) - 1 >> chosen.prefix_len, (1, 2))
        for chosen in rng.choices(public_routes(count), k=DISTINCT)
    ]


def fill_basic(target: Target) -> None:
    """Write routes."""
    for number, route in enumerate(public_routes(ROUTES)):
        params = (MACS[number % 64], 1 + number % PORTS)
        target.insert("MyIngress.ipv4_lpm", (route,), 0, "MyIngress.ipv4_forward", params)


def fill_load_balance(target: Target) -> None:
    """Write one virtual address with two servers."""
    virtual = (Lpm(0x0A00_0001, 32),)
    target.insert("MyIngress.ecmp_group", virtual, 0, "MyIngress.set_ecmp_select", (0, 2))
    for number in range(2):
        server = (MACS[number], 0x0A00_0202 + number, 2 + number)
        target.insert("MyIngress.ecmp_nhop", (Exact(number),), 0, "MyIngress.set_nhop", server)
    for port in range(1, PORTS + 1):
        target.insert("MyEgress.send_frame", (Exact(port),), 0, "MyEgress.rewrite_mac", (MACS[port],))


def balanced(rng: random.Random) -> list[bytes]:
    """Return TCP frames of many flows to the virtual address."""
    made = []
    for _ in range(DISTINCT):
        udp = frame(rng.getrandbits(32), 0x0A00_0001, (rng.getrandbits(16), 80))
        made.append(udp[: _IPV4 + 9] + bytes([_TCP]) + udp[_IPV4 + 10 :])
    return made


def source_routed(rng: random.Random) -> list[bytes]:
    """Return frames that name three ports on their way; 15 bits each, behind a bit that marks the last."""
    made = []
    for _ in range(DISTINCT):
        ways = [rng.randrange(1, PORTS + 1) for _ in range(3)]
        ways[-1] |= 1 << 15
        stack = b"".join(way.to_bytes(2) for way in ways)
        made.append((_HEAD + _OF_OTHERS + stack + frame(rng.getrandbits(32), 1, (1, 2))[14:])[:FRAME_BYTES])
    return made


def calculations(rng: random.Random) -> list[bytes]:
    """Return questions: "P4", version 1, an operator and two operands."""
    return [
        (_HEAD + _OF_OTHERS + b"P4\1" + rng.choice(b"+-&|^").to_bytes() + rng.randbytes(8)).ljust(FRAME_BYTES, b"\0")
        for _ in range(DISTINCT)
    ]


def fill_table0(target: Target) -> None:
    """Write an access list of 32 masks, and a rule that lets all else through."""
    any_port, any_mac, ipv4 = Ternary(0, 0), Ternary(0, 0), Ternary(0x0800, 0xFFFF)
    for number, match in enumerate(rules(RULES, 32)):
        key: tuple[Match, ...] = (any_port, any_mac, any_mac, ipv4, *match)
        target.insert(_TABLE0, key, 2 + number, _TO_PORT, (1 + number % PORTS,))
    target.insert(_TABLE0, (Ternary(0, 0),) * 9, 1, _TO_PORT, (2,))


_TABLE0: Final = "ingress.table0_control.table0"
_TO_PORT: Final = "ingress.table0_control.set_egress_port"


def fill_sai(target: Target) -> None:
    """Write routes, next hops, interfaces and neighbours."""
    resolution = "ingress.routing_resolution"
    for number in range(16):
        interface, neighbour = number + 1, 0xFE80 << 112 | number + 1
        hop = (interface, neighbour)
        target.insert(f"{resolution}.nexthop_table", (Exact(interface),), 0, f"{resolution}.set_ip_nexthop", hop)
        left = (1 + number % PORTS, MACS[number])
        action = f"{resolution}.unicast_set_port_and_src_mac"
        target.insert(f"{resolution}.router_interface_table", (Exact(interface),), 0, action, left)
        both = (Exact(interface), Exact(neighbour))
        target.insert(f"{resolution}.neighbor_table", both, 0, f"{resolution}.set_dst_mac", (MACS[number + 16],))
    for number, route in enumerate(public_routes(SAI_ROUTES)):
        key = (Exact(0), route)
        target.insert("ingress.routing_lookup.ipv4_table", key, 0, "set_nexthop_id", (1 + number % 16,))


def public_programs(folders: tuple[Path, ...]) -> Iterator[Program]:
    """Yield the programs that lie in the folders."""
    for folder in folders:
        for program in (
            Program(
                name="tutorials.basic",
                what=f"{ROUTES:,} routes",
                fill=fill_basic,
                frames=lambda rng: routed(ROUTES, rng),
                folder=folder,
            ),
            Program(
                name="tutorials.load_balance", what="2 servers", fill=fill_load_balance, frames=balanced, folder=folder
            ),
            Program(
                name="tutorials.source_routing", what="3 hops", fill=no_entries, frames=source_routed, folder=folder
            ),
            Program(name="tutorials.calc", what="5 operators", fill=no_entries, frames=calculations, folder=folder),
            Program(
                name="onos.basic",
                what=f"{RULES} rules of 32 masks",
                fill=fill_table0,
                frames=filtered_frames,
                folder=folder,
            ),
            Program(
                name="sai.middleblock",
                what=f"{SAI_ROUTES:,} routes",
                fill=fill_sai,
                frames=lambda rng: routed(SAI_ROUTES, rng),
                folder=folder,
                fill_s=8,
            ),
        ):
            if (folder / f"{program.name}.json").is_file():
                yield program
