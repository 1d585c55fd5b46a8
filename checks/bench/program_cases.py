"""The P4 programs of the benchmark: their entries, and the frames that go through them.

Those of our own lie in `checks/bench/p4`; `python tools/compile_test_programs.py` compiles them.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact, Lpm, Match, Ternary
from switchsum_switch.stf import Embedded
from switchsum_switch.wires.headers import internet_checksum

SOURCES: Final = Path(__file__).parent / "p4"
PORTS: Final = 4
ENTERS: Final = 1
FRAME_BYTES: Final = 128
DISTINCT: Final = 5_000
"""Frames of a file that differ."""
ROUTES: Final = 1_000
RULES: Final = 500
MACS: Final = [0x02_00_00_00_10_00 + number for number in range(64)]


class Target(Protocol):
    """A switch that takes a program's entries."""

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> Any:
        """Add an entry."""

    def insert_group(self, table: str, match: tuple[Match, ...], members: Sequence[tuple[str, tuple[int, ...]]]) -> Any:
        """Add an entry whose action a selector chooses among members."""

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, its entries and its traffic."""

    name: str
    what: str
    fill: Callable[[Target], None]
    frames: Callable[[random.Random], list[bytes]]
    folder: Path = SOURCES
    """Where what p4c made of it lies."""
    fill_s: int = 2
    """From BMv2's start until it reads its files; its entries are written in that time."""
    has_registers: bool = False
    """`fill` writes registers, which BMv2's P4Runtime server cannot do."""

    def load(self, engine: EngineName) -> Pipeline:
        """Load it on our switch, with its entries."""
        switch = Embedded(self.text, engine)
        self.fill(switch)
        return switch.pipeline

    @property
    def text(self) -> bytes:
        """What p4c made of it."""
        return (self.folder / f"{self.name}.json").read_bytes()

    @property
    def p4info(self) -> str:
        """Its P4Info, in text format."""
        return (self.folder / f"{self.name}.p4info.txtpb").read_text()


def frame(source: int, destination: int, ports: tuple[int, int], macs: tuple[int, int] = (MACS[0], MACS[1])) -> bytes:
    """Return an Ethernet frame with IPv4, UDP and zeros; `macs`: destination, source."""
    size = FRAME_BYTES - 14
    head = bytes([0x45, 0]) + size.to_bytes(2) + bytes(4) + bytes([64, 17, 0, 0])
    head += source.to_bytes(4) + destination.to_bytes(4)
    head = head[:10] + internet_checksum(head).to_bytes(2) + head[12:]
    udp = ports[0].to_bytes(2) + ports[1].to_bytes(2) + (size - 20).to_bytes(2) + bytes(2)
    return macs[0].to_bytes(6) + macs[1].to_bytes(6) + b"\x08\x00" + head + udp + bytes(size - 28)


def routes(count: int) -> list[Lpm]:
    """Return routes; most of them have 24 bits, as in the tables of the Internet's routers."""
    rng = random.Random(1)
    lengths = rng.choices([8, 12, 16, 20, 22, 24, 28, 32], [1, 2, 10, 15, 15, 50, 4, 3], k=count)
    made = dict.fromkeys(Lpm(rng.getrandbits(32) >> (32 - length) << (32 - length), length) for length in lengths)
    while len(made) < count:
        made[Lpm(rng.getrandbits(24) << 8, 24)] = None
    return list(made)


def fill_router(target: Target, count: int = ROUTES) -> None:
    """Write routes and next hops."""
    for number in range(16):
        params = (1 + number % PORTS, MACS[0], MACS[number])
        target.insert("SwitchIngress.next_hops", (Exact(number),), 0, "SwitchIngress.leave", params)
    for number, route in enumerate(routes(count)):
        target.insert("SwitchIngress.routes", (route,), 0, "SwitchIngress.via", (number % 16,))


def routed_frames(rng: random.Random, count: int = ROUTES) -> list[bytes]:
    """Return frames to addresses behind routes."""
    known = routes(count)
    return [
        frame(rng.getrandbits(32), chosen.value | rng.getrandbits(32) & (1 << 32) - 1 >> chosen.prefix_len, (1, 2))
        for chosen in rng.choices(known, k=DISTINCT)
    ]


def rules(count: int, masks: int) -> list[tuple[Match, ...]]:
    """Return matches of an access list that have so many distinct masks together."""
    rng = random.Random(2)
    kinds = list(
        {
            (rng.randrange(8, 33), rng.randrange(8, 33), rng.choice((0, 0xFF)), rng.choice((0, 0xFFFF)), 0xFFFF)
            for _ in range(8 * masks)
        }
    )[:masks]
    kinds.sort()
    made: dict[tuple[Match, ...], None] = {}
    while len(made) < count:
        source, destination, *others = kinds[len(made) % len(kinds)]
        both = [(1 << 32) - (1 << (32 - length)) for length in (source, destination)]
        made[tuple(Ternary(rng.getrandbits(32) & mask, mask) for mask in (*both, *others))] = None
    return list(made)


def fill_firewall(target: Target, count: int = RULES, masks: int = 32) -> None:
    """Write stations and an access list."""
    fill_stations(target)
    for number, match in enumerate(rules(count, masks)):
        target.insert("SwitchIngress.access_list", match, 1 + number, "SwitchIngress.permit", ())


def fill_stations(target: Target) -> None:
    """Write where stations are."""
    for number, mac in enumerate(MACS):
        target.insert("SwitchIngress.stations", (Exact(mac),), 0, "SwitchIngress.forward", (1 + number % PORTS,))


def filtered_frames(rng: random.Random, count: int = RULES, masks: int = 32) -> list[bytes]:
    """Return frames of which half match a rule."""
    made = []
    for match in rng.choices(rules(count, masks), k=DISTINCT):
        values = [field.value for field in match if isinstance(field, Ternary)]
        if rng.random() < 0.5:
            values[4] ^= 1
        made.append(frame(values[0], values[1], (values[3], values[4]), (rng.choice(MACS), MACS[0])))
    return made


def fill_balancer(target: Target) -> None:
    """Write one virtual address with eight servers."""
    members: list[tuple[str, tuple[int, ...]]] = [
        ("SwitchIngress.serve", (1 + number % PORTS, 0x0A00_0001 + number, MACS[number])) for number in range(8)
    ]
    target.insert_group("SwitchIngress.addresses", (Exact(0x0A00_00FE),), members)


def balanced_frames(rng: random.Random) -> list[bytes]:
    """Return frames of many flows to the virtual address."""
    return [frame(rng.getrandbits(32), 0x0A00_00FE, (rng.getrandbits(16), 80)) for _ in range(DISTINCT)]


def fill_telemetry(target: Target) -> None:
    """Write stations, and which packets get a header."""
    fill_stations(target)
    target.insert("SwitchEgress.watched", (Ternary(0, 1),), 1, "SwitchEgress.mark", (7,))


def station_frames(rng: random.Random) -> list[bytes]:
    """Return frames between stations."""
    return [frame(1, 2, (1, 4242), (rng.choice(MACS), rng.choice(MACS))) for _ in range(DISTINCT)]


def fill_learning(target: Target) -> None:
    """Write the ports to which frames for unknown stations go, and stations that the switch has seen at other ports."""
    target.set_group(1, [(port, 0) for port in range(1, PORTS + 1)])
    for number, mac in enumerate(MACS):
        place = zlib.crc32(mac.to_bytes(6)) % 4096
        target.write_register("SwitchIngress.stations", place, mac)
        target.write_register("SwitchIngress.ports", place, 2 + number % (PORTS - 1))


def learned_frames(rng: random.Random) -> list[bytes]:
    """Return frames of new stations, of which one in fifty is for a station that nobody knows."""
    made = []
    for _ in range(DISTINCT):
        destination = 0x02_00_00_00_20_00 if rng.random() < 0.02 else rng.choice(MACS)
        made.append(frame(1, 2, (3, 4), (destination, 0x02_00_00_00_30_00 + rng.randrange(64))))
    return made


def no_entries(_target: Target) -> None:
    """Write nothing: the program has all it needs."""


FORWARD: Final = Program(name="forward", what="no tables", fill=no_entries, frames=station_frames)
"""Does nothing but forward: what the ways allow on which frames come and go."""
PROGRAMS: Final = (
    Program(name="router", what=f"{ROUTES:,} routes", fill=fill_router, frames=routed_frames),
    Program(name="firewall", what=f"{RULES} rules of 32 masks", fill=fill_firewall, frames=filtered_frames),
    Program(name="balancer", what="8 servers", fill=fill_balancer, frames=balanced_frames),
    Program(name="telemetry", what="16 bytes more in each packet", fill=fill_telemetry, frames=station_frames),
    Program(
        name="learning",
        what="128 stations in registers",
        fill=fill_learning,
        frames=learned_frames,
        has_registers=True,
    ),
)
