"""`switchsum conform` over real sockets: our switch with its controller, and switches of which only a file knows."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.daemons import free_udp_port, run_here, system
from support.timing import patience
from switchsum.testing.faults import FAULTS
from switchsum_lab.conform.case import Case
from switchsum_lab.conform.cases import all_cases
from switchsum_protocol.frame import AGGREGATION_PORT, Header, Kind
from switchsum_protocol.slot_rules import AdmittedMember, ReferenceSwitch
from switchsum_switch.wires.encapsulation import made_up_mac
from switchsum_switch.wires.headers import LOWER_BYTES, Address, lower_headers, parse_ip

pytestmark = pytest.mark.timeout(120)
LOOPBACK = parse_ip("127.0.0.1")
MEMBERS, LANES = 3, 4
END = b"end"
"""Ends a server of a test; the kit sends empty datagrams as well."""
WAIT = ("--wait", str(patience(2)))


def address(port: int) -> Address:
    return Address(mac=made_up_mac(LOOPBACK), ip=LOOPBACK, port=port)


class Server(threading.Thread):
    """A switch behind one UDP socket: a few lines, as a stranger might write them."""

    def __init__(self, answer: Callable[[int, bytes], list[tuple[int, bytes]]]) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self._answer = answer

    def run(self) -> None:
        while True:
            body, (_, port) = self.socket.recvfrom(1 << 16)
            if body == END:
                return
            frame = lower_headers(address(port), address(AGGREGATION_PORT), len(body)) + body
            for to, answer in self._answer(port, frame):
                self.socket.sendto(answer[LOWER_BYTES:], ("127.0.0.1", to))

    def end(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as last:
            last.sendto(END, ("127.0.0.1", self.port))
        self.join()
        self.socket.close()


@contextmanager
def served(answer: Callable[[int, bytes], list[tuple[int, bytes]]]) -> Iterator[int]:
    server = Server(answer)
    server.start()
    try:
        yield server.port
    finally:
        server.end()


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    members = [{"cookie": f"{0xC0FFEE00 + rank:#x}", "ip": "127.0.0.1", "port": free_udp_port()} for rank in range(3)]
    path = tmp_path / "facts.json"
    job = {"lanes": LANES, "job": 7, "epoch": 3, "first_slot": 16, "slot_count": 8, "fresh": True, "members": members}
    path.write_text(json.dumps(job))
    return path


def switch_of(kind: type[ReferenceSwitch], facts: Path) -> ReferenceSwitch:
    job = json.loads(facts.read_text())
    switch = kind(lanes_per_frame=LANES, address=address(AGGREGATION_PORT))
    for rank, one in enumerate(job["members"]):
        switch.admit(
            AdmittedMember(
                job=7,
                rank=rank,
                epoch=3,
                cookie=int(one["cookie"], 0),
                address=address(one["port"]),
                port=one["port"],
                workers=MEMBERS,
                first_slot=16,
                slot_count=8,
            )
        )
    return switch


PLAYED = [case for case in all_cases() if not case.is_raw]
"""What a switch behind UDP is played."""


def cases_of_rules(cases: list[Case]) -> str:
    """Return how many cases of how many rules these are, as the command says it."""
    return f"{len(cases)} cases of {len({case.rule for case in cases})} rules"


def conform(port: int, facts: Path, *more: str) -> Any:
    return run_here("conform", "--target", f"udp:127.0.0.1:{port}", "--facts", str(facts), *WAIT, *more)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["row 11", "cookie"], "14 cases of 2 rules; all passed"),
        pytest.param(
            [],
            f"{cases_of_rules(PLAYED)}; {len(all_cases()) - len(PLAYED)} left out, which need raw frames "
            "(packet:INTERFACE); all passed",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_switch_in_plain_python_passes(facts: Path, rules: list[str], said: str) -> None:
    with served(switch_of(ReferenceSwitch, facts).process) as port:
        done = conform(port, facts, *(word for rule in rules for word in ("--rule", rule)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"udp:127.0.0.1:{port}: {said}\n"


@pytest.mark.slow
def test_a_broken_rule_is_named_with_the_frames_that_show_it(facts: Path) -> None:
    fault = FAULTS["HELD does not say whose contributions are there"]
    with served(switch_of(fault.switch, facts).process) as port:
        done = conform(port, facts, "--rule", "row 10")
        facts.write_text(json.dumps(json.loads(facts.read_text()) | {"fresh": False}))
        read = json.loads(conform(port, facts, "--rule", "row 10", "--json").stdout)
    assert done.returncode == 1
    first, *_, last = done.stdout.splitlines()
    assert first == "row 10 is broken: a repeat in an open round is answered by HELD, to its sender alone"
    assert "bitmap of the HELD is 0x1 and should be 0x3" in done.stdout
    assert "rank 0 sends  127.0.0.1:" in done.stdout
    assert "rank 0 got  127.0.0.1:" in done.stdout
    assert "> 127.0.0.1:" in done.stdout
    assert "held job 7.3 rank 0 slot" in done.stdout
    assert last.endswith("broken is row 10")
    assert read["failures"][0]["rule"] == "row 10"
    assert read["failures"][0]["steps"][-1]["came"]["0"][0] != read["failures"][0]["steps"][-1]["expected"]["0"][0]


@pytest.mark.parametrize("number", [0, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF])
def test_cells_may_have_any_number_unless_the_file_says_that_they_are_fresh(facts: Path, number: int) -> None:
    job = json.loads(facts.read_text())
    switch = switch_of(ReferenceSwitch, facts)
    for slot, version in product(range(16, 24), range(2)):
        cell = switch.cell(Header(kind=Kind.CONTRIBUTION, slot=slot, number=version))
        cell.number, cell.seen = (number & ~1 | version), 7
    with served(switch.process) as port:
        if number == 0x7FFF_FFFF:
            done = conform(port, facts, "--rule", "row 4")
            assert done.returncode == 1
            assert "were the cells used before? restart the switch" in done.stderr
        facts.write_text(json.dumps(job | {"fresh": False, "first_number": number >> 31}))
        done = conform(port, facts, "--rule", "row 4", "--rule", "row 12")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_switch_that_rejects_nothing_is_given_time(facts: Path) -> None:
    silent = switch_of(FAULTS["slots of others are taken"].switch, facts)
    silent._reject = lambda port, packet, reason: silent.drop(reason)  # type: ignore[method-assign]

    def process(port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return [] if int.from_bytes(frame[LOWER_BYTES + 16 : LOWER_BYTES + 20]) >= 24 else silent.process(port, frame)

    with served(process) as port:
        done = run_here("conform", "--target", f"udp:127.0.0.1:{port}", "--facts", str(facts), "--wait", "0.3",
                        "--rule", "slot", "--rule", "row 12")  # fmt: skip
    assert done.returncode == 1
    assert "rejects no contribution to a slot of others: each frame is given time instead" in done.stderr
    assert done.stdout.splitlines()[-1].endswith("1 failed: broken is slot")


def mute(_port: int, _frame: bytes) -> list[tuple[int, bytes]]:
    return []


def test_a_target_that_answers_nothing_is_told_in_one_line(facts: Path) -> None:
    with served(mute) as port:
        done = run_here("conform", "--target", f"udp:127.0.0.1:{port}", "--facts", str(facts), "--wait", "0.1")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"switchsum: udp:127.0.0.1:{port} answers nothing: neither a contribution to a slot")
    assert done.stderr.count("\n") == 1


def test_a_port_that_nobody_has_is_told_in_one_line(facts: Path) -> None:
    port = free_udp_port()
    done = conform(port, facts)
    assert (done.returncode, done.stderr) == (1, f"switchsum: udp:127.0.0.1:{port}: nobody has that UDP port open\n")


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda body: body[:1].replace(b"\4", b"\3") + body[1:], "a frame of wire version 3, where this kit speaks"),
        (lambda body: body[:20], "is no frame of this wire format"),
        (lambda body: body[:1] + b"\x2a" + body[2:], "a frame of kind 42"),
    ],
    ids=["version", "length", "kind"],
)
def test_a_target_that_lies_is_found(facts: Path, lie: Callable[[bytes], bytes], said: str) -> None:
    switch = switch_of(ReferenceSwitch, facts)

    def process(port: int, frame: bytes) -> list[tuple[int, bytes]]:
        found = switch.process(port, frame)
        return [(to, one[:LOWER_BYTES] + lie(one[LOWER_BYTES:])) if one[LOWER_BYTES + 1] == 2 else (to, one)
                for to, one in found]  # fmt: skip

    with served(process) as port:
        done = conform(port, facts, "--rule", "row 12")
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"wire_version": 3}, "wire_version is 3, and this kit speaks version 4"),
        ({"lanez": 4}, "the file has unknown keys: lanez; there are epoch,"),
        ({"lanes": 3}, "a frame has an even number of lanes, not 3"),
        ({"slot_count": 3}, "the kit needs 4 slots or more, not 3"),
        ({"members": []}, "the kit plays jobs of 2 to 32 members, not 0"),
        ({"members": [{"port": 1}]}, "members[0] lacks cookie"),
        ({"members": [{"port": 1, "cookie": 2**64}]}, "members[0].cookie is a number from 0 to 0xffffffffffffffff"),
        ({"members": [{"port": 1, "cookie": 1, "ip": "no"}]}, "members[0]: not an IPv4 address: 'no'"),
        ({"job": "seven"}, "job is a number from 0 to 0xffff, not 'seven'"),
        ({"fresh": 1}, "fresh is true or false, not 1"),
    ],
    ids=str,
)
def test_wrong_facts_are_refused_by_name(facts: Path, change: dict[str, Any], said: str) -> None:
    facts.write_text(json.dumps(json.loads(facts.read_text()) | change))
    done = conform(1, facts)
    assert done.returncode == 2
    assert done.stderr.startswith(f"switchsum: {facts}: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_facts_may_be_yaml_and_what_is_neither_is_told(facts: Path) -> None:
    text = facts.read_text()
    written = facts.with_suffix(".yaml")
    written.write_text("# JSON is YAML\n" + text)
    assert "nobody has that UDP port" in conform(free_udp_port(), written).stderr
    written.write_text("a: [")
    assert conform(1, written).stderr.startswith(f"switchsum: {written}: not YAML: ")
    facts.write_text("{")
    assert conform(1, facts).stderr.startswith(f"switchsum: {facts}: not JSON: ")
    assert (
        conform(1, facts.parent / "none").stderr == f"switchsum: {facts.parent / 'none'}: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "tcp:x"], "a target is udp:HOST[:PORT] or packet:INTERFACE, not 'tcp:x'"),
        (["--target", "udp:"], "a target is udp:HOST[:PORT] or packet:INTERFACE, not 'udp:'"),
        (["--target", "udp:h", "--rule", "row 99"], "there is no rule 'row 99'; there are row 3, row 4,"),
        (["--target", "udp:h", "--wait", "0"], "--wait"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], said: str) -> None:
    done = run_here("conform", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_two_members_with_one_port_are_refused(facts: Path) -> None:
    job = json.loads(facts.read_text())
    job["members"][1] = job["members"][0]
    facts.write_text(json.dumps(job))
    assert conform(1, facts).stderr.startswith("switchsum: two members have one address and port")


@pytest.mark.parametrize("rules", [["row 10", "order"], pytest.param([], marks=pytest.mark.slow)])
def test_our_switch_passes_with_a_job_of_its_controller(rules: list[str]) -> None:
    port = free_udp_port()
    chosen = [word for rule in rules for word in ("--rule", rule)]
    with system("--udp", f"127.0.0.1:{port}", lanes=128) as controller:
        done = run_here("conform", "--target", f"udp:127.0.0.1:{port}", "--controller", controller, *WAIT, *chosen)
        jobs = json.loads(run_here("job", "list", "--json", "--controller", controller).stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("all passed")
    assert jobs == []
