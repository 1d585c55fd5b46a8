"""An unmodified p4runtime-shell against the server."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchsum.protocol.p4runtime import Code, decode_uint, v1

from .p4runtime_rig import PROGRAM, Rig, identifier

HERE = Path(__file__).parent / "p4runtime"


class AnsweringRig(Rig):
    """A switch that answers each packet-out with a packet-in."""

    def packet_out(self, frame: bytes) -> None:
        super().packet_out(frame)
        self.service.packet_in(bytes([0, 0b1000_0101]) + b"from the switch")


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = AnsweringRig()
    yield made
    made.close()


@pytest.fixture(scope="module")
def shell_python() -> str:
    """Return a Python that has p4runtime-shell: this one, or SWITCHSUM_P4RT_SHELL_PYTHON."""
    if python := os.environ.get("SWITCHSUM_P4RT_SHELL_PYTHON"):
        return python
    if importlib.util.find_spec("p4runtime_sh") is None:
        pytest.skip("p4runtime-shell is not installed here and SWITCHSUM_P4RT_SHELL_PYTHON names no Python that has it")
    return sys.executable


def test_shell_session(rig: Rig, shell_python: str) -> None:
    arguments = [rig.server.address, str(HERE / "entities.p4info.txtpb"), str(PROGRAM)]
    shell = subprocess.run(
        [shell_python, str(HERE / "shell_session.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "no_proxy": "127.0.0.1"},
    )
    assert shell.returncode == 0, shell.stderr
    found = json.loads(shell.stdout.splitlines()[-1])  # the shell chats before it
    assert rig.packet_outs.get_nowait() == bytes([0b0000_0001, 0b1000_0000]) + b"from the shell"
    assert found["version"] == "1.4.1"
    assert found["packets"] == {"payload": "from the switch", "metadata": ["01", "05"]}
    assert found["counters"]["cells"] == [[index, 5 if index == 3 else 0] for index in range(8)]
    assert found["counters"]["direct"] == [2, 0]
    duplicate, absent = found["tables"]["errors"]
    assert "ALREADY_EXISTS" in duplicate
    assert "NOT_FOUND" in absent
    assert [len(entries) for entries in found["tables"]["entries"].values()] == [2, 1, 1, 2]
    assert len(found["tables"]["default"]) == 1
    assert len(found["replication"]["groups"]) == 1
    assert len(found["replication"]["sessions"]) == 1
    check_state(rig)


def check_state(rig: Rig) -> None:
    """Compare what the shell has left in the switch with what it was told."""
    client = rig.primary(2)
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
    replicas = [(replica.port, replica.instance) for replica in rig.pipeline.multicast.get(4)]
    assert replicas == [(1, 0), (2, 1), (3, 2)]
    assert rig.pipeline.clones.get(5).length_limit == 64
    assert client.arbitrate() == (2, Code.OK)
