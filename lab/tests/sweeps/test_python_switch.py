"""A switch in Python stands where a P4 program stands, and `switchsum compare` holds one to the other."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum.shipped import shipped
from switchsum_lab import baselines
from switchsum_lab.protocols.compare import compare
from switchsum_lab.protocols.seam import Array, Peer, Steps, load
from switchsum_lab.protocols.virtual import VirtualRun
from switchsum_lab.simulation.conditions import CableConditions, SwitchTiming
from switchsum_lab.simulation.network import Host, Network
from switchsum_lab.sweeps import others, simulated
from switchsum_lab.sweeps.axes import Cell, Impossible
from switchsum_protocol.errors import LocalError, UsageError

ROOT = Path(__file__).parents[3]
BOTH = sorted(path.parent.name for path in baselines.FOLDER.glob("*/switch.py"))
"""Protocols whose switch is there in Python and in P4."""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a copy of the skeleton."""
    return shutil.copytree(shipped("skeleton"), tmp_path / "mine")


@pytest.fixture
def idea(mine: Path) -> Path:
    """Return a copy of the skeleton without P4."""
    for path in mine.glob("program*"):
        path.unlink()
    return mine


def own(arrays: list[Array], peer: Peer, rank: int) -> Steps:
    return peer.allreduce(arrays[rank])


@pytest.mark.parametrize("name", BOTH)
def test_a_run_is_the_same_with_the_class_as_with_the_program(name: str) -> None:
    protocol = load(name)
    world = protocol.world(workers=3, lanes=32, slots=8, seed=5)
    seen = []
    for plane in (None, protocol.plane(world)):
        run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9, loss=0.02), plane=plane)
        random = np.random.default_rng(3)
        arrays = [random.standard_normal(3000).astype(np.float32) for _ in range(3)]
        seconds = run.together(partial(own, arrays))
        assert run.statistics()["repeats"] > 0
        seen.append((seconds, run.network.digest, [array.tobytes() for array in arrays]))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", BOTH)
def test_the_class_and_the_program_send_the_same_frames(name: str) -> None:
    found = compare(name, frames=3000, lanes=32)
    assert found.difference is None
    assert found.answered > 500
    assert found.frames >= 3000


FAULTS = (
    ("skeleton", "if self.bitmaps[cell] != everybody", "if not self.bitmaps[cell]"),
    ("skeleton", "if number < self.rounds[cell]", "if number + 9 < self.rounds[cell]"),
    ("skeleton", "is_new = not int(self.bitmaps[cell]) & bit", "is_new = True"),
    ("skeleton", "len(frame) < end or ", ""),
    ("switchml", "self.bitmaps[cell ^ 1] &= np.uint32(~bit & _WORD)", "pass"),
    ("switchml", "exponent if seen == 0 else max(exponent, int(self.exponents[cell]))", "exponent"),
    ("switchml", "ipv4[8], ipv4[10:12]", "ipv4[9], ipv4[10:12]"),
    ("switchml", "slot >= SLOTS or ", ""),
)


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_fault_of_the_class_is_found_and_cut_down(name: str, right: str, wrong: str, tmp_path: Path) -> None:
    folder = shutil.copytree(baselines.FOLDER / name, tmp_path / name)
    text = (folder / "switch.py").read_text()
    assert text.count(right) == 1
    (folder / "switch.py").write_text(text.replace(right, wrong))
    difference = compare(str(folder), frames=5000, lanes=32).difference
    assert difference is not None
    assert 1 <= len(difference.packets) <= 12
    assert difference.by_python != difference.by_program
    assert "switch.py and the P4 program differ" in str(difference)


def test_an_idea_needs_no_p4(idea: Path) -> None:
    protocol = load(idea)
    run = VirtualRun(
        protocol, protocol.world(workers=3, lanes=32, slots=1, seed=1), CableConditions(rate_bps=1e9, loss=0.02)
    )
    arrays = [np.full(1000, rank + 1, np.float32) for rank in range(3)]
    assert run.together(partial(own, arrays)) is not None
    np.testing.assert_array_equal(arrays, np.full((3, 1000), 6, np.float32))
    cell = Cell(protocol=str(idea), workers=3)
    assert others.load(cell).folder == idea
    with pytest.raises(Impossible, match="has no P4 program, which real links need: --virtual-time runs its switch"):
        others.load(Cell(protocol=str(idea), workers=3, links="veth"))
    with pytest.raises(UsageError, match=r"no P4 program with which its switch\.py could be compared"):
        compare(str(idea))
    (idea / "switch.py").write_text("def switches(world): return None\n")
    with pytest.raises(UsageError, match=r"switch\.py has no function switch"):
        protocol.plane(run.world)
    (idea / "switch.py").unlink()
    with pytest.raises(UsageError, match=r"has no switch: a P4 program, or switch\.py for virtual time"):
        VirtualRun(protocol, run.world, CableConditions())


class Plane:
    """A switch that does what a function says."""

    def __init__(self, does: object) -> None:
        self.process = does


@pytest.mark.parametrize(
    ("does", "error", "words"),
    [
        (lambda port, frame: 1 / 0, ZeroDivisionError, "division"),
        (lambda port, frame: [frame], UsageError, "pairs of a port and a frame"),
        (lambda port, frame: [(512, frame)], UsageError, "to port 512: ports are 0 to 511"),
        (lambda port, frame: [(1, b"")], UsageError, "sends 0 bytes to port 1"),
        (lambda port, frame: [(2, frame)] * 513, UsageError, "makes 513 frames at once"),
    ],
)
def test_what_a_switch_in_python_does_wrong_ends_the_run_by_name(
    does: object, error: type[Exception], words: str
) -> None:
    network = Network(open_ports=True)
    network.python_switch("s1", Plane(does))  # type: ignore[arg-type]
    near = network.host("h1")
    network.link("h1", "s1", port=1)
    near.send(bytes(60))
    near.send(bytes(60), at=1.0)
    with pytest.raises(error, match=words):
        network.run()
    assert network.now < 0.5  # the second frame has not come any more


def test_a_switch_in_python_forwards_copies_and_drops() -> None:
    network, came = Network(), []

    def process(port: int, frame: bytes) -> list[tuple[int, bytes]] | None:
        came.append((port, frame))
        return [(2, frame), (3, frame + b"copy")] if frame[0] else None

    network.python_switch("s1", Plane(process), SwitchTiming(processing_s=1e-3))  # type: ignore[arg-type]
    hosts = {number: network.host(f"h{number}") for number in (1, 2, 3)}
    for number in hosts:
        network.link(f"h{number}", "s1", port=number)
    hosts[1].send(b"\x01" * 60)
    hosts[1].send(bytes(60), at=0.1)
    network.run()
    assert came == [(1, b"\x01" * 60), (1, bytes(60))]
    assert [frame for _, frame in hosts[2].received] == [b"\x01" * 60]
    assert [frame for _, frame in hosts[3].received] == [b"\x01" * 60 + b"copy"]
    assert hosts[2].received[0][0] > 1e-3
    assert not hosts[1].received
    with pytest.raises(UsageError, match="has no egress"):
        network.python_switch("s2", Plane(process), SwitchTiming(queue_frames=4))  # type: ignore[arg-type]


class Echo:
    """Sends each frame back at a time that the frame says, in milliseconds; a later frame replaces an earlier one."""

    def __init__(self) -> None:
        self.until: float | None = None
        self.last, self.ticks = b"", list[float]()

    def process(self, port: int, frame: bytes, now: float) -> None:
        self.last, self.until = frame, frame[0] * 1e-3 if frame[0] else None

    def tick(self, now: float) -> list[tuple[int, bytes]]:
        assert self.until is None
        self.ticks.append(now)
        return [(1, self.last)]


def alone(plane: object) -> tuple[Network, Host]:
    """Return a network of one host and a switch in Python."""
    network = Network()
    network.python_switch("s1", plane)  # type: ignore[arg-type]
    near = network.host("h1")
    network.link("h1", "s1", CableConditions(rate_bps=1e9), port=1)
    return network, near


def test_a_switch_in_python_is_called_at_the_time_for_which_it_asks() -> None:
    plane = Echo()
    network, near = alone(plane)
    for at_ms, until_ms in ((1, 5), (2, 4), (11, 13), (12, 16), (21, 24), (22, 0), (40, 30)):
        near.send(bytes([until_ms]) + bytes(59), at=at_ms * 1e-3)
    network.run()
    # Put forward, put off, given up, and already over: then it is called at once.
    assert plane.ticks[:2] == [4e-3, 16e-3]
    assert [frame[0] for _, frame in near.received] == [4, 16, 30]
    assert len(plane.ticks) == 3
    assert 40e-3 < plane.ticks[2] < 40.01e-3
    plane.until = 50e-3  # between runs, too
    network.run()
    assert plane.ticks[3:] == [50e-3]


def test_time_outs_of_a_switch_wait_for_the_end_of_its_pause() -> None:
    plane = Echo()
    network, near = alone(plane)
    network.pause("s1", (3e-3, 8e-3))
    near.send(bytes([5]) + bytes(59))
    network.run()
    assert plane.ticks == [8e-3]


class NoTick:
    """Asks for a time, and has no method for it."""

    until = 1e-3

    def process(self, port: int, frame: bytes) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("tick", "until", "words"),
    [
        (None, 1e-3, r"that sets until has a method tick\(now\)"),
        (lambda self, now: setattr(self, "until", now), 1e-3, "tick sets until to a time that is over: 0.001 s"),
        (lambda self, now: [now], 1e-3, "tick returns pairs of a port and a frame, not 0.001"),
        (lambda self, now: None, "soon", "until is a time in seconds or None, not 'soon'"),
        (lambda self, now: None, float("nan"), "until is a time in seconds or None, not nan"),
    ],
)
def test_what_a_timer_does_wrong_ends_the_run_by_name(tick: object, until: object, words: str) -> None:
    body = {"until": until, "process": NoTick.process, **({} if tick is None else {"tick": tick})}
    network, _ = alone(type("Wrong", (), body)())
    with pytest.raises(UsageError, match=words):
        network.run()


IMPATIENT = """
class Impatient(Switch):
    until = None

    def process(self, port, frame, now):
        made = super().process(port, frame)
        self.until, self.last = (None if made else now + 1e-3), frame
        return made

    def tick(self, now):
        cell = HEADER.unpack_from(self.last)[5] & 1
        answer = self.last[:6] * 2 + self.last[12 : HEADER.size] + self.sums[cell].astype(">u4").tobytes()
        return [(port, answer) for port in self.ports]
"""


def test_a_protocol_whose_switch_waits_no_longer_than_a_time_out(idea: Path) -> None:
    text = (idea / "switch.py").read_text().replace("return Switch(world)", "return Impatient(world)")
    (idea / "switch.py").write_text(text + IMPATIENT)
    protocol = load(idea)
    world = protocol.world(workers=3, lanes=32, slots=1, seed=1)
    run = VirtualRun(protocol, world, CableConditions(rate_bps=1e9))
    arrays = [np.full(100, rank + 1, np.float32) for rank in range(3)]
    for rank in range(2):  # the third one never comes
        run.begin(rank, own(arrays, run.peers[rank], rank))
    assert run.run([0, 1])
    np.testing.assert_array_equal(arrays[:2], np.full((2, 100), 3, np.float32))
    assert 4e-3 < run.network.now < 4.1e-3  # four rounds
    assert run.statistics()["repeats"] == 0


def test_both_switches_are_given_the_same_time_and_a_timer_has_no_p4(mine: Path) -> None:
    text = (mine / "switch.py").read_text()
    timed = text.replace("port: int, frame: bytes)", "port: int, frame: bytes, now: float)")
    assert timed != text
    (mine / "switch.py").write_text(timed)
    assert compare(str(mine), frames=500).difference is None
    late = timed.replace(
        "        end = HEADER.size", "        frame = frame if now < 1e-3 else b''\n        end = HEADER.size"
    )
    (mine / "switch.py").write_text(late)
    found = compare(str(mine), frames=3000).difference
    assert found is not None
    assert found.by_python == []
    (mine / "switch.py").write_text(timed.replace("self.ports =", "self.until = 1.0\n        self.ports ="))
    with pytest.raises(UsageError, match="P4 program for v1model does nothing without a frame"):
        compare(str(mine), frames=500)


def test_compare_says_what_differs_and_ends_with_1(mine: Path) -> None:
    command = application("compare")
    right = CliRunner().invoke(command, ["compare", str(mine), "--frames", "500"])
    assert right.exit_code == 0, right.output
    assert right.stdout.startswith("no difference: ")
    text = (mine / "switch.py").read_text()
    (mine / "switch.py").write_text(text.replace("else [port]", "else self.ports"))
    wrong = CliRunner().invoke(command, ["compare", str(mine), "--frames", "3000"])
    assert wrong.exit_code == 1
    assert "the P4 program sends to port" in wrong.stdout
    again = CliRunner().invoke(command, ["compare", str(mine), "--frames", "3000", "--json"])
    found = json.loads(again.stdout)
    assert again.exit_code == 1
    assert len(found["difference"]["by_python"]) > len(found["difference"]["by_program"]) == 1


def test_the_switch_on_the_page_is_the_one_that_runs() -> None:
    page = (ROOT / "lab" / "docs" / "protocols.md").read_text()
    assert (baselines.FOLDER / "skeleton" / "switch.py").read_text() in page


INEXACT = """
INEXACT = True


class Late(Worker):
    def statistics(self):
        return {**super().statistics(), "left_out": 4 * (self.link.host == 2)}


def peer(world, link):
    return Late(world, link)
"""


def test_sums_that_lack_contributions_count_with_their_error_and_who_was_left_out(idea: Path) -> None:
    text = (idea / "switch.py").read_text()
    (idea / "switch.py").write_text(text.replace("self.sums[cell] += np", "self.sums[cell] += (worker != 2) * np"))
    cell = Cell(protocol=str(idea), workers=3, bytes=512)
    with pytest.raises(LocalError, match=r"a sum was wrong, so this run does not count; .* INEXACT = True does"):
        simulated.run(cell, 0)
    with (idea / "host.py").open("a") as file:
        file.write(INEXACT)
    found = simulated.run(cell, 0)
    assert (found.right, found.left_out) == (None, "2:4")
    assert 0.01 < (found.sum_error or 0.0) < 1.0
    exact = simulated.run(replace(cell, protocol="skeleton"), 0)
    assert (exact.right, exact.left_out, exact.sum_error) == (True, None, 0.0)
