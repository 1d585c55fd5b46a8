"""The programs of the benchmark do what they are measured for, and files hold what a switch makes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from checks.bench import interfaces, loopback, pcap_files
from checks.bench.bmv2 import build
from checks.bench.pcap_files import read_pcap, run_files, write_pcap
from checks.bench.program_cases import ENTERS, FRAME_BYTES, PORTS, PROGRAMS, Program, frame, rules
from checks.bench.public_programs import public_programs, public_routes, source_routed
from support.timing import patience
from switchsum_switch.bmv2.simple_switch import SimpleSwitch
from switchsum_switch.messages.matches import Lpm, Ternary
from switchsum_switch.process.start_limit import VARIABLE as START_VARIABLE

BY_NAME = {program.name: program for program in PROGRAMS}
LEFT = {"router": FRAME_BYTES, "firewall": FRAME_BYTES, "balancer": FRAME_BYTES, "telemetry": FRAME_BYTES + 16}


def some_frames(program: Program, count: int = 20) -> list[bytes]:
    return random.Random(1).sample(program.frames(random.Random(3)), count)


@pytest.mark.parametrize("name", LEFT)
def test_every_frame_leaves_by_one_port(name: str) -> None:
    pipeline = BY_NAME[name].load("interpreter")
    left = [pipeline.process(ENTERS, frame) for frame in some_frames(BY_NAME[name])]
    assert [len(frame) for [(_, frame)] in left] == [LEFT[name]] * 20
    assert len({port for [(port, _)] in left}) > 1


def test_a_learning_switch_floods_and_learns() -> None:
    pipeline = BY_NAME["learning"].load("interpreter")
    here, there = bytes(5) + b"\x01", bytes(5) + b"\x02"
    assert [port for port, _ in pipeline.process(2, here + there + bytes(50))] == [1, 3, 4]
    assert [port for port, _ in pipeline.process(4, there + here + bytes(50))] == [2]
    assert [port for port, _ in pipeline.process(2, here + there + bytes(50))] == [4]


def test_files_hold_what_the_switch_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pcap_files, "PIECE_BYTES", 10_000)  # records lie across the ends of pieces
    program = BY_NAME["learning"]
    frames = [*some_frames(program, 300), bytes(5) + b"\x09" + bytes(60)]
    write_pcap(tmp_path / "in", frames, 4)
    assert read_pcap(tmp_path / "in") == frames * 4
    native, interpreter = program.load("native"), program.load("interpreter")
    left = [made for frame in frames * 4 for made in interpreter.process(ENTERS, frame)]
    assert run_files(native, ENTERS, tmp_path / "in", tmp_path / "out", PORTS) == len(left)
    for port in range(1, PORTS + 1):
        assert read_pcap(tmp_path / f"out.{port}") == [frame for leaves, frame in left if leaves == port]


@pytest.mark.parametrize("masks", [1, 32, 200])
def test_an_access_list_has_the_masks_that_are_wanted(masks: int) -> None:
    made = rules(200, masks)
    assert len(set(made)) == 200
    assert len({tuple(field.mask for field in match if isinstance(field, Ternary)) for match in made}) == masks


@pytest.mark.bmv2
@pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="simple_switch_grpc is not on PATH")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_bmv2_makes_the_same(program: Program) -> None:
    native, frames = program.load("native"), some_frames(program)
    with SimpleSwitch(program.text) as bmv2:
        program.fill(bmv2)
        for frame in frames:
            bmv2.send(ENTERS, frame)
            expected = native.process(ENTERS, frame)
            assert sorted((left.port, left.frame) for left in bmv2.collect()) == sorted(expected)


def test_public_programs_are_those_that_lie_in_a_folder(tmp_path: Path) -> None:
    assert list(public_programs((tmp_path,))) == []
    (tmp_path / "tutorials.calc.json").write_text("{}")
    [found] = public_programs((tmp_path,))
    assert found.text == b"{}"
    assert {len(one) for one in found.frames(random.Random(1))} == {FRAME_BYTES}


def test_public_frames_go_where_routers_forward() -> None:
    found = public_routes(300)
    assert len(found) == 300
    assert not any(route.value >> 24 in (0, 127) or route.value >> 28 == 14 for route in found)
    routed = source_routed(random.Random(1))[0]
    assert [routed[at] >> 7 for at in (14, 16, 18)] == [0, 0, 1]  # the last of three is marked
    assert routed[20:22] == frame(0, 1, (1, 2))[14:16]  # IPv4 follows


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("GNU C++17 12.2.0 -mtune=generic -g -O3 -fPIE", "BMv2 1.15.5, -O3, without logging macros"),
        ("clang version 15 -O2\0Looking up key", "BMv2 1.15.5, -O2, with logging macros"),
        ("", "BMv2 1.15.5, flags that it does not tell, without logging macros"),
    ],
)
def test_a_record_says_how_bmv2_was_compiled(
    inside: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / f"bmv2-{said[-30:].replace(' ', '')}"
    program.write_text(f"#!/bin/sh\necho 1.15.5\nexit\n{inside}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert build(program.name) == said
    assert not build("no-such-bmv2")


def test_entries_are_written_by_p4runtime_in_pieces() -> None:
    """What a router's entries become: as many updates as entries, in writes of limited size."""
    writes: list[list[object]] = []

    class Recorder:
        def write(self, updates: list[object]) -> None:
            writes.append(updates)

    router = BY_NAME["router"]
    target = interfaces.Controlled(Recorder(), router.p4info)  # type: ignore[arg-type]
    router.fill(target)
    target.flush()
    assert [len(one) for one in writes] == [interfaces.UPDATES, interfaces.UPDATES, 16]
    expected = router.load("interpreter").tables["SwitchIngress.routes"].entries()[-1].match[0]
    route = writes[-1][-1].entity.table_entry.match[0].lpm  # type: ignore[attr-defined]
    assert Lpm(int.from_bytes(route.value), route.prefix_len) == expected


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("switch", ["embedded", pytest.param("bmv2", marks=pytest.mark.bmv2)])
def test_frames_come_through_interfaces(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "SECONDS", 0.3)
    monkeypatch.setattr(interfaces, "LOST_S", patience(0.5))
    monkeypatch.setenv(START_VARIABLE, str(patience(120)))
    assert interfaces.rate(BY_NAME["balancer"], switch, 1).median > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", [loopback.NOTHING, "forward", "router"])
def test_frames_come_through_udp_peers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "SECONDS", 0.3)
    monkeypatch.setattr(interfaces, "LOST_S", patience(0.5))
    samples, frame_us, driver_us = loopback.rates(name, loopback.ROUTER.frames, 1)
    assert samples.median > 100
    assert frame_us > 0
    assert driver_us > 0
