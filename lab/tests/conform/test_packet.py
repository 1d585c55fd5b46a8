"""`switchsum conform --target packet:...`: a switch of a few lines behind veth pairs, with whole Ethernet frames."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import reason_without_root
from support.daemons import run_here
from support.timing import eventually, patience
from switchsum.testing.faults import FAULTS
from switchsum_lab.conform.cases import all_cases
from switchsum_lab.conform.facts import read_facts
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_switch.wires.packetsocket import open_packet_socket

pytestmark = [
    pytest.mark.root,
    pytest.mark.timeout(120),
    pytest.mark.skipif(bool(reason_without_root()), reason=reason_without_root()),
]
ALL_PASSED = f"{len(all_cases())} cases of {len({case.rule for case in all_cases()})} rules; all passed"
MEMBERS = 3
MOST_BYTES = 1 << 16


class TakesAnyChecksum(ReferenceSwitch):
    """Puts the sum over the IPv4 header right before it looks."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        header = frame[14:24] + b"\0\0" + frame[26:34]
        total = sum(int.from_bytes(header[at : at + 2]) for at in range(0, 20, 2))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return super().process(port, frame[:24] + (total ^ 0xFFFF).to_bytes(2) + frame[26:])


@contextmanager
def switch_behind_wires(kind: type[ReferenceSwitch], path: Path) -> Iterator[None]:
    """Serve a switch at the ends s0, s1, ... of veth pairs, whose other ends are m0, m1, ..."""
    facts = read_facts(path)
    switch = kind(lanes_per_frame=facts.lanes, address=facts.switch)
    for rank, member in enumerate(facts.members):
        switch.admit(facts.admission(member))
        words = f"link add s{rank} type veth peer name m{rank}"
        subprocess.run(["ip", *words.split()], check=True)
        for end in ("s", "m"):
            Path(f"/proc/sys/net/ipv6/conf/{end}{rank}/disable_ipv6").write_text("1")
            subprocess.run(["ip", "link", "set", f"{end}{rank}", "up"], check=True)
    shown = ["ip", "link", "show", "up"]
    assert eventually(lambda: subprocess.check_output(shown, text=True).count("state UP") == 2 * MEMBERS, 10)
    ports = [open_packet_socket(f"s{rank}") for rank in range(MEMBERS)]
    bell, ring = os.pipe()

    def serve() -> None:
        by_descriptor = {port.fileno(): number for number, port in enumerate(ports)}
        while bell not in (ready := select.select([*by_descriptor, bell], [], [])[0]):
            for descriptor in ready:
                number = by_descriptor[descriptor]
                for to, answer in switch.process(number + 1, ports[number].recv(MOST_BYTES)):
                    ports[to - 1].send(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        os.close(ring)
        thread.join()
        os.close(bell)
        for port in ports:
            port.close()


@pytest.mark.usefixtures("network_namespace")
@pytest.mark.parametrize(
    ("kind", "rules", "last"),
    [
        (ReferenceSwitch, ("checksum", "mark", "order"), "all passed"),
        (TakesAnyChecksum, ("checksum",), "1 cases of 1 rules; 1 failed: broken is checksum"),
        (FAULTS["HELD does not say whose contributions are there"].switch, ("row 10",), "broken is row 10"),
        pytest.param(ReferenceSwitch, (), ALL_PASSED, marks=pytest.mark.slow),
    ],
)
def test_whole_frames_are_played_over_veth(
    kind: type[ReferenceSwitch], rules: tuple[str, ...], last: str, tmp_path: Path
) -> None:
    facts, target = tmp_path / "facts.json", ",".join(f"packet:m{rank}" for rank in range(MEMBERS))
    job = {"lanes": 4, "job": 7, "epoch": 3, "first_slot": 16, "slot_count": 8, "fresh": True}
    members = [
        {"cookie": 0xC0FFEE00 + rank, "ip": f"10.0.0.{rank + 1}", "mac": f"02:00:00:00:00:0{rank + 1}", "port": 4000}
        for rank in range(MEMBERS)
    ]
    switch = {"ip": "10.0.0.254", "mac": "02:00:00:00:00:fe"}
    facts.write_text(json.dumps(job | {"members": members, "switch": switch}))
    with switch_behind_wires(kind, facts):
        wait = ("--wait", str(patience(2)), "--facts", str(facts))
        done = run_here("conform", "--target", target, *wait, *(word for rule in rules for word in ("--rule", rule)))
    assert done.stdout.splitlines()[-1].endswith(last), done.stdout + done.stderr
    assert done.returncode == ("failed" in done.stdout)
