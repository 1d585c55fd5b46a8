"""Packets a second of five v1model programs: native code, interpreter and real BMv2, from pcap files to pcap files.

The programs lie in `checks/bench/p4`; `python tools/compile_test_programs.py` compiles them.  BMv2 reads and writes its
files itself (`--use-files`), our switch through `pcap_files.py`.  Files lie in memory (/dev/shm) where there is such a
place.  What leaves BMv2 is counted, so that a packet that it drops is not one that it has forwarded.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from checks.bench.choice import Choice
from checks.bench.pcap_files import FILE_HEAD, RECORD_HEAD, run_files, write_pcap
from checks.bench.records import Record, Samples, beside, record
from switchsum.connections.starting import start_limit
from switchsum.protocol.wire import internet_checksum
from switchsum.switch.pipeline import EngineName, Pipeline
from switchsum.switch.profiles import Weighted
from switchsum.switch.tables import Entry, Exact, Group, Lpm, Match, Ternary
from switchsum.testing.simple_switch import SimpleSwitch
from switchsum.testing.simple_switch.process import PcapFiles

TAKES: Final = ("runs",)
SOURCES: Final = Path(__file__).parent / "p4"
PORTS: Final = 4
ENTERS: Final = 1
FRAME_BYTES: Final = 128
DISTINCT: Final = 5_000
"""Frames of a file that differ."""
REPEATS: Final[dict[str, int]] = {"native": 100, "interpreter": 1, "bmv2": 10}
"""How often they stand in the file of each switch: as many packets as it takes about a second for."""
ROUTES: Final = 1_000
RULES: Final = 500
TABLE_SIZES: Final = (100, 100_000)
BMV2_WAIT_S: Final = 6
"""From BMv2's start until it reads its files; its entries are written in that time."""
STALLED_S: Final = 4.0
"""BMv2's files are complete when they have not grown for so long; it writes them in pieces."""
READ_BYTES: Final = 4096
"""What BMv2 reads of a file at once."""
ENGINES: Final[tuple[EngineName, ...]] = ("native", "interpreter")
MACS: Final = [0x02_00_00_00_10_00 + number for number in range(64)]


class Target(Protocol):
    """A switch that takes a program's entries."""

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> Any:
        """Add an entry."""

    def insert_group(self, table: str, match: tuple[Match, ...], members: list[tuple[str, tuple[int, ...]]]) -> None:
        """Add an entry whose action a selector chooses among members."""

    def set_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        """Set a multicast group."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""


class Ours:
    """The embedded switch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry."""
        self.pipeline.tables[table].insert(Entry(match=match, priority=priority, action=action, params=params))

    def insert_group(self, table: str, match: tuple[Match, ...], members: list[tuple[str, tuple[int, ...]]]) -> None:
        """Add an entry whose action a selector chooses among members."""
        found = self.pipeline.tables[table]
        assert found.profile is not None
        profile = self.pipeline.profiles[found.profile.name]
        for number, (action, params) in enumerate(members, 1):
            profile.add_member(number, action, params)
        profile.set_group(1, [Weighted(number) for number in range(1, len(members) + 1)])
        found.insert(Entry(match=match, via=Group(1)))

    def set_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        """Set a multicast group."""
        self.pipeline.multicast.set(group, replicas)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""
        self.pipeline.registers[name].write(index, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, its entries and its traffic."""

    name: str
    what: str
    fill: Callable[[Target], None]
    frames: Callable[[random.Random], list[bytes]]

    def load(self, engine: EngineName) -> Pipeline:
        """Load it on our switch, with its entries."""
        pipeline = Pipeline.load(self.text, engine=engine)
        self.fill(Ours(pipeline))
        return pipeline

    @property
    def text(self) -> bytes:
        """What p4c made of it."""
        return (SOURCES / f"{self.name}.json").read_bytes()


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


PROGRAMS: Final = (
    Program(name="router", what=f"{ROUTES:,} routes", fill=fill_router, frames=routed_frames),
    Program(name="firewall", what=f"{RULES} rules of 32 masks", fill=fill_firewall, frames=filtered_frames),
    Program(name="balancer", what="8 servers", fill=fill_balancer, frames=balanced_frames),
    Program(name="telemetry", what="16 bytes more in each packet", fill=fill_telemetry, frames=station_frames),
    Program(name="learning", what="128 stations in registers", fill=fill_learning, frames=learned_frames),
)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder, in memory if there is one."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-", dir=place) as folder:
        yield Path(folder)


def own_rate(program: Program, engine: EngineName, runs: int) -> Samples:
    """Return packets a second of our switch."""
    pipeline = program.load(engine)
    frames = program.frames(random.Random(3))
    with scratch() as folder:
        repeats = REPEATS[engine]
        write_pcap(folder / "in", frames, repeats)

        def measure() -> float:
            started = time.perf_counter()
            run_files(pipeline, ENTERS, folder / "in", folder / "out", PORTS)
            return len(frames) * repeats / (time.perf_counter() - started)

        measure()
        return Samples.of(measure, runs)


def bmv2_rate(program: Program, runs: int) -> Samples:
    """Return packets a second of real BMv2."""
    return Samples.of(lambda: _bmv2_run(program), runs)


def _bmv2_run(program: Program) -> float:
    """Run a file through BMv2; return packets a second, from its first read to its last write."""
    frames = program.frames(random.Random(3))
    expected = _bytes_out(program, frames) * REPEATS["bmv2"]
    with scratch() as folder:
        for port in range(1, PORTS + 1):
            write_pcap(folder / f"{port}_in.pcap", frames if port == ENTERS else [], REPEATS["bmv2"])
        files = PcapFiles(folder, tuple(range(1, PORTS + 1)), round(start_limit(BMV2_WAIT_S)))
        with SimpleSwitch(program.text, files=files) as bmv2:
            pid = bmv2.child.process.pid
            before = _read_bytes(pid)
            bmv2.lengthen_queues(len(frames) * REPEATS["bmv2"])
            program.fill(bmv2)
            paths = [folder / f"{port}_out.pcap" for port in range(1, PORTS + 1)]
            started = _begins_to_read(pid, before)
            head = PORTS * FILE_HEAD.size
            last = (started, head)
            while last[1] < expected + head:
                now, size = time.perf_counter(), sum(path.stat().st_size for path in paths)
                if size > last[1]:
                    last = now, size
                elif now - last[0] > STALLED_S:
                    break
                time.sleep(0.002)
    # Its last bytes stay in a buffer until it ends; a share of the traffic shall not be missing without being seen.
    share = (last[1] - head) / expected
    if share < 0.98:
        raise RuntimeError(f"BMv2 has written {last[1]} bytes of {expected}")
    return len(frames) * REPEATS["bmv2"] * share / (last[0] - started)


def _read_bytes(pid: int) -> int:
    """Return how much a process has read of files."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def _begins_to_read(pid: int, before: int) -> float:
    """Wait until a process that had read so many bytes reads its files; return when that was.

    Frames that leave tell it too late: they may come in a burst after all have entered.
    """
    if _read_bytes(pid) - before >= 2 * READ_BYTES:
        raise RuntimeError(f"BMv2 read its files before it had its entries, for which it waits {BMV2_WAIT_S} s")
    while _read_bytes(pid) - before < 2 * READ_BYTES:
        time.sleep(0.001)
    return time.perf_counter()


def _bytes_out(program: Program, frames: list[bytes]) -> int:
    """Return the bytes of the records that leave, as the interpreter has them."""
    pipeline = program.load("interpreter")
    left = [len(made) for one in frames for _, made in pipeline.process(ENTERS, one)]
    return sum(left) + RECORD_HEAD.size * len(left)


def run(choice: Choice) -> list[Record]:
    """Measure every program, and tables of two sizes."""
    with_bmv2 = shutil.which("simple_switch_grpc") is not None
    records = []
    for program in PROGRAMS:
        conditions = f"{program.what}, frames of {FRAME_BYTES} bytes, pcap files to pcap files, {choice.runs} runs"
        bmv2 = bmv2_rate(program, min(choice.runs, 3)) if with_bmv2 else None
        for engine in ENGINES:
            alone = record(
                f"programs.{program.name}.{engine}", own_rate(program, engine, choice.runs), "packets/s", conditions
            )
            records.append(alone if bmv2 is None else beside(alone, "bmv2", bmv2))
    return records + table_sizes(choice.runs)


def table_sizes(runs: int) -> list[Record]:
    """Measure how the native rate depends on the number of entries and of masks."""
    router, firewall = PROGRAMS[:2]
    records = []
    for count in TABLE_SIZES:
        made = replace(
            router,
            fill=partial(fill_router, count=count),
            frames=partial(routed_frames, count=count),
        )
        records.append(_sized(f"programs.lpm.{count}", made, f"router with {count:,} routes", runs))
    for count in TABLE_SIZES:
        for masks in (64, count):
            made = replace(
                firewall,
                fill=partial(fill_firewall, count=count, masks=masks),
                frames=partial(filtered_frames, count=count, masks=masks),
            )
            if masks <= 64 or count <= 64 or count == TABLE_SIZES[0]:
                text = f"firewall with {count:,} rules of {min(masks, count)} masks"
                records.append(_sized(f"programs.ternary.{count}.{masks}masks", made, text, runs))
    return records


def _sized(name: str, program: Program, what: str, runs: int) -> Record:
    return record(name, own_rate(program, "native", runs), "packets/s", f"{what}, files to files, native, {runs} runs")
