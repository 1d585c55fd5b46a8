"""Forged results for a worker that waits, over every link a stranger can reach and on both switches."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.parts import JOB, START_S, Parts, Process
from switchsum.launch import wires
from switchsum.testing.bmv2 import in_namespace
from switchsum.testing.encapsulations import encapsulations
from switchsum_protocol import rpc
from switchsum_protocol.frame import Flag, Header, Kind, LaneFormat, Operator
from switchsum_protocol.wire import build_frame
from switchsum_switch.wires.headers import ETHERNET_BYTES, Address

from .conftest import BMV2, NAMESPACES

WORKERS = 2
EVIL = (666).to_bytes(4) * 256
TRUTH = [2001]
GUESSES = 20

pytestmark = pytest.mark.root


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Victim:
    """Rank 0 of a job whose rank 1 does not contribute yet."""

    def __init__(self, parts: Parts, link: str) -> None:
        self.parts = parts
        parts.switch()
        parts.controller()
        create = rpc.CreateJobRequest(job=JOB, workers=WORKERS, timeout_s=START_S)
        parts.ask(lambda client: client.create_job(create))
        variables = {"WORLD_SIZE": str(WORKERS)} | ({"SWITCHSUM_LINK": link} if link else {})
        self.workers = [parts.worker(rank, "forged.py", **variables) for rank in range(WORKERS)]
        facts = said(self.workers[0])
        self.own, self.switch = Address(**address(facts["own"])), Address(**address(facts["switch"]))
        self.header = Header(
            kind=Kind.RESULT,
            operator=Operator.SUM,
            format=LaneFormat.INT32,
            flags=Flag.PAYLOAD,
            block=0,
            bitmap=3,
            slot=facts["first_slot"],
            number=facts["first_number"],
            **{name: facts[name] for name in ("job", "epoch", "rank", "cookie", "digest")},
        )
        # The switch has the contribution; from now on the worker waits for nothing but the result.
        deadline = time.monotonic() + START_S
        while parts.count("contributed") == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def forged(self, **wrong: int) -> bytes:
        """Return the result that the worker waits for, with other numbers."""
        return build_frame(self.switch, self.own, replace(self.header, **wrong), EVIL)

    def guesses(self) -> list[bytes]:
        """Return results that are right but for the cookie."""
        return [self.forged(cookie=self.header.cookie ^ 1 << bit) for bit in range(GUESSES)]

    def end(self) -> dict[str, Any]:
        """Let rank 1 contribute; return what rank 0 says then."""
        self.parts.stop_file.touch()
        return said(self.workers[0])


def said(worker: Process) -> dict[str, Any]:
    """Return the next JSON that a worker prints."""
    assert worker.stdout is not None
    for line in worker.stdout:
        if line.startswith("{"):
            return json.loads(line)  # type: ignore[no-any-return]
    raise AssertionError("the worker has ended")


def address(parts: list[int]) -> dict[str, int]:
    return dict(zip(("mac", "ip", "port"), parts, strict=True))


def raw_socket(interface: str) -> socket.socket:
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    link.bind((interface, 0))
    return link


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        ("embedded", f"packet:{wires.WORKER_INTERFACE}"),
        ("embedded", f"scapy:{wires.WORKER_INTERFACE}"),
        pytest.param("bmv2", f"packet:{wires.WORKER_INTERFACE}", marks=BMV2.marks),
    ],
)
@NAMESPACES
@pytest.mark.usefixtures("network_namespace")
def test_no_forged_result_reaches_a_sum_on_interfaces(stack: ExitStack, tmp_path: Path, kind: str, link: str) -> None:
    parts = Parts(stack, tmp_path, size=WORKERS + 1, links="veth", kind=kind)
    victim = Victim(parts, link)
    strangers = parts.wires[WORKERS]
    # Even with the cookie: from another port, within everything; and behind the switch, but not as the switch sends it.
    wrapped = list(encapsulations(victim.forged(), strangers.address, victim.own))
    pid = strangers.holder.process.pid
    with in_namespace(pid, lambda: raw_socket(wires.WORKER_INTERFACE)) as stranger:
        for _, frame, _ in wrapped:
            stranger.send(frame)
    with raw_socket(parts.wires[0].interface) as behind:
        for _, frame, _ in wrapped:
            behind.send(
                frame[:6] + victim.switch.mac.to_bytes(6) + frame[12:] if frame[12:14] != b"\x08\x00" else frame
            )
        for frame in victim.guesses():
            behind.send(frame)
    end = victim.end()
    assert end == {"values": TRUTH, "forged": GUESSES}
    for reason in ("spoofed", "spoofed_inside", "opaque"):
        assert parts.count(reason) > 0


def test_no_forged_result_reaches_a_sum_over_udp(stack: ExitStack, tmp_path: Path) -> None:
    parts = Parts(stack, tmp_path, size=WORKERS, links="udp")
    victim = Victim(parts, "")
    host, _, port = parts.environment["SWITCHSUM_LINK"].removeprefix("udp:").rpartition(":")
    socket_address = replace(victim.switch, ip=int.from_bytes(socket.inet_aton(host)), port=int(port))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as stranger:
        for bit in range(GUESSES):
            header = replace(victim.header, cookie=victim.header.cookie ^ 1 << bit)
            frame = build_frame(socket_address, victim.own, header, EVIL)
            stranger.sendto(frame[ETHERNET_BYTES:], (host, 0))
    assert victim.end() == {"values": TRUTH, "forged": GUESSES}


@NAMESPACES
@pytest.mark.usefixtures("network_namespace")
def test_who_reads_the_wire_and_sends_as_the_switch_does_can_forge(stack: ExitStack, tmp_path: Path) -> None:
    """What docs/security.md says; and that the tests above would notice."""
    victim = Victim(parts := Parts(stack, tmp_path, size=WORKERS, links="veth"), "")
    with raw_socket(parts.wires[0].interface) as behind:
        behind.send(victim.forged())
    assert victim.end()["values"] == [666]
