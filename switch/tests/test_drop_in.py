"""The same line starts switchsum-bmv2 and BMv2, the same client sets both up, and the same frames come out."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience
from switchsum_switch.messages.p4runtime import parse_p4info, v1
from switchsum_switch.state.meters import GREEN, RED, YELLOW
from switchsum_switch.wires.packetsocket import open_packet_socket

from .p4runtime_rig import Client

PROGRAM = Path(__file__).parent / "programs" / "metering.json"
P4INFO = parse_p4info(PROGRAM.with_suffix(".p4info.txtpb").read_text())
IDS = {
    item.preamble.name: item.preamble.id for kind in ("tables", "actions", "meters") for item in getattr(P4INFO, kind)
}
START_S = patience(100)
"""With the program's kernels, which are compiled where nobody has run it yet."""
FRAME_BYTES = 100
SLOW = v1.MeterConfig(cir=1, cburst=250, pir=1, pburst=480)
"""Bytes; the rates are so low that time does not matter."""

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("network_namespace"), pytest.mark.timeout(240)]


@pytest.fixture(
    params=[
        pytest.param([sys.executable, "-c", "from switchsum_switch.__main__ import main; main()"], id="switchsum-bmv2"),
        pytest.param(["simple_switch_grpc"], id="simple_switch_grpc", marks=pytest.mark.bmv2),
    ]
)
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    """Start a switch with port 1 on a0 and port 2 on b0, and yield its primary client."""
    for pair in "ab":
        subprocess.run(["ip", "link", "add", f"{pair}0", "type", "veth", "peer", "name", f"{pair}1"], check=True)
        for end in "01":
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{pair}{end}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", f"{pair}{end}", "up"], check=True)
    command = [*request.param]
    command[0] = shutil.which(command[0]) or command[0]
    address = f"unix:{tmp_path}/p4runtime"
    line = f"--no-p4 -i 2@a0 -i 1@b0 --log-file {tmp_path}/log -- --grpc-server-addr {address} --cpu-port 255"
    process = subprocess.Popen([*command, *line.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        while not (tmp_path / "p4runtime").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        made = Client(address, election_id=1, device_id=0)
        made.arbitrate()
        made.set_config(config=v1.ForwardingPipelineConfig(p4info=P4INFO, p4_device_config=PROGRAM.read_bytes()))
        yield made
        made.close()
    finally:
        process.kill()
        process.wait(START_S)


def station(number: int, **fields: Any) -> Any:
    entry = v1.TableEntry(table_id=IDS["SwitchIngress.groups"], priority=1, **fields)
    ternary = entry.match.add(field_id=1).ternary
    ternary.value = ternary.mask = bytes([number])
    entry.action.action.action_id = IDS["SwitchIngress.grouped"]
    return entry


def test_meters_colour_alike(client: Client) -> None:
    client.modify(meter_entry={"meter_id": IDS["SwitchIngress.bytes"], "index": {"index": 2}, "config": SLOW})
    client.insert(table_entry=station(4, meter_config=SLOW))
    (read,) = client.read_all(meter_entry={"meter_id": IDS["SwitchIngress.bytes"], "index": {"index": 2}})
    assert read.config == SLOW
    frame = bytes([4, 2]).ljust(FRAME_BYTES, b"\0")
    arrived = []
    with open_packet_socket("a1") as sender, open_packet_socket("b1") as receiver:
        receiver.settimeout(START_S)
        for _ in range(6):
            sender.send(frame)
            arrived.append(receiver.recv(2000))
    colours = [GREEN] * 2 + [YELLOW] * 2 + [RED] * 2
    assert [(seen[3], seen[5]) for seen in arrived] == [(colour, colour) for colour in colours]
    assert all(seen[:2] + seen[6:] == frame[:2] + frame[6:] for seen in arrived)
