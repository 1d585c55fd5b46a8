"""The programs of the benchmark do what they are measured for, and files hold what a switch makes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from checks.bench.pcap_files import read_pcap, run_files, write_pcap
from checks.bench.programs import ENTERS, FRAME_BYTES, PORTS, PROGRAMS, Program, rules
from switchsum.switch.tables import Ternary
from switchsum.testing.simple_switch import SimpleSwitch

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


def test_files_hold_what_the_switch_makes(tmp_path: Path) -> None:
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
