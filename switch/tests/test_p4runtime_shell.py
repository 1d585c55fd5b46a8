"""An unmodified p4runtime-shell against the switch, and against BMv2, which is to look the same to it."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience
from switchsum_switch.bmv2.process import PROGRAM as BMV2
from switchsum_switch.bmv2.process import command_line, free_port
from switchsum_switch.daemon.daemon import Config, SwitchProcess
from switchsum_switch.messages.p4runtime import Code, decode_uint, v1

from .p4runtime_rig import DEVICE_ID, LONG_S, PROGRAM, Client, identifier

HERE = Path(__file__).parent / "p4runtime"


@pytest.fixture(scope="module")
def shell_python() -> str:
    """Return a Python that has p4runtime-shell: this one, or SWITCHSUM_P4RT_SHELL_PYTHON."""
    if python := os.environ.get("SWITCHSUM_P4RT_SHELL_PYTHON"):
        return python
    if importlib.util.find_spec("p4runtime_sh") is None:
        pytest.skip("p4runtime-shell is not installed here and SWITCHSUM_P4RT_SHELL_PYTHON names no Python that has it")
    return sys.executable


@contextmanager
def embedded() -> Iterator[str]:
    """Run the embedded switch and yield its address."""
    with SwitchProcess(Config(listen="127.0.0.1:0", device_id=DEVICE_ID, engine="interpreter")) as switch:
        running = threading.Thread(target=switch.run)
        running.start()
        try:
            yield switch.address
        finally:
            switch.stop()
            running.join(LONG_S)


@contextmanager
def bmv2() -> Iterator[str]:
    """Run simple_switch_grpc and yield its address."""
    ports = [free_port(), free_port()]
    address, identity = f"127.0.0.1:{ports[1]}", ["--device-id", str(DEVICE_ID)]
    command = command_line([BMV2], address, thrift_port=ports[0], options=identity)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", ports[1])).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield f"127.0.0.1:{ports[1]}"
    finally:
        process.kill()
        process.wait()


def run_session(python: str, script: str, address: str) -> Any:
    """Run a script with a client's Python against a switch; return what it prints last."""
    done = subprocess.run(
        [python, str(HERE / script), address, str(HERE / "entities.p4info.txtpb"), str(PROGRAM)],
        capture_output=True,
        text=True,
        timeout=patience(50),
        check=False,
        env={**os.environ, "no_proxy": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # clients chat before it


@pytest.mark.parametrize("switch", [embedded, pytest.param(bmv2, marks=pytest.mark.bmv2)])
def test_shell_session(switch: Any, shell_python: str) -> None:
    with switch() as address:
        check_session(run_session(shell_python, "shell_session.py", address))
        check_state(address)


def check_session(found: dict[str, Any]) -> None:
    """Look at what the shell saw."""
    # The packet bore no packet_in header, so its first two bytes are taken for one: 9 and 7 bits.
    assert found["packets"] == {"payload": "om the shell", "metadata": ["cc", "72"]}
    assert found["counters"]["cells"] == [[index, 5 if index == 3 else 0] for index in range(8)]
    assert found["counters"]["direct"] == [2, 0]
    duplicate, absent = found["tables"]["errors"]
    assert "ALREADY_EXISTS" in duplicate
    assert "NOT_FOUND" in absent
    assert [len(entries) for entries in found["tables"]["entries"].values()] == [2, 1, 1, 2]
    assert len(found["tables"]["default"]) == 1
    assert len(found["replication"]["groups"]) == 1
    assert len(found["replication"]["sessions"]) == 1


def check_state(address: str) -> None:
    """Compare what the shell has left in the switch with what it was told."""
    client = Client(address, election_id=2)
    assert client.arbitrate() == (2, Code.OK)
    stations = client.read_all(table_entry={"table_id": identifier("tables", "stations")})
    assert [entry.metadata for entry in stations] == [b"kept", b""]
    assert decode_uint(stations[0].action.action.params[0].value) == 4
    (rule,) = client.read_all(table_entry={"table_id": identifier("tables", "rules")})
    assert rule.priority == 9
    assert list(rule.match) == [
        v1.FieldMatch(field_id=1, exact={"value": b"\x01"}),
        v1.FieldMatch(field_id=2, ternary={"value": b"\x10", "mask": b"\x0f\xf0"}),
        v1.FieldMatch(field_id=3, range={"low": b"\x05", "high": b"\x0f\xff"}),
        v1.FieldMatch(field_id=4, optional={"value": b"\x07"}),
        v1.FieldMatch(field_id=5, lpm={"value": b"\xc0\xa8\x00\x00", "prefix_len": 16}),
    ]
    engine = client.read_one(packet_replication_engine_entry={"multicast_group_entry": {"multicast_group_id": 4}})
    replicas = [(replica.egress_port, replica.instance) for replica in engine.multicast_group_entry.replicas]
    assert sorted(replicas) == [(1, 0), (2, 1), (3, 2)]
    engine = client.read_one(packet_replication_engine_entry={"clone_session_entry": {"session_id": 5}})
    assert [replica.egress_port for replica in engine.clone_session_entry.replicas] == [255]
    client.close()
