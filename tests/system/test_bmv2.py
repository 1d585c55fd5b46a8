"""BMv2 under the launcher: which binaries serve, and what is said about the others."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.daemons import run
from support.timing import patience
from switchsum import p4src
from switchsum.launch import wires
from switchsum_protocol.errors import LocalError
from switchsum_protocol.frame import LANE_BUILDS
from switchsum_switch.bmv2 import process as bmv2
from switchsum_switch.bmv2.process import End
from switchsum_switch.bmv2.queue_depths import set_queue_depths, set_queue_rates
from switchsum_switch.process.children import Children

from .conftest import BMV2

HELP = "--grpc-server-addr arg"


def pretend(path: Path, *, options: str = HELP, json_version: str = "2.24", code: int = 0) -> str:
    """Write a program that answers as a BMv2 would."""
    answers = f'--help) echo "{options}";; --json-version) echo "{json_version}";;'
    path.write_text(f'#!/bin/sh\ncase "$1" in {answers} esac\nexit {code}\n')
    path.chmod(0o755)
    return str(path)


def test_a_bmv2_with_grpc_is_found_on_the_path_and_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pretend(tmp_path / bmv2.PROGRAM)
    assert bmv2.find(path) == path
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert bmv2.find("bmv2") == path


@pytest.mark.parametrize(
    ("fake", "text"),
    [
        ({"options": "--thrift-port arg"}, "built with gRPC, --switch bmv2"),
        ({"json_version": "2.22"}, "install BMv2 1.14.0 or newer"),
        ({"json_version": "hello"}, "is not BMv2"),
        ({"code": 3}, ": exit code 3"),
    ],
)
def test_a_bmv2_that_cannot_serve_is_refused_with_what_mends_it(
    tmp_path: Path, fake: dict[str, object], text: str
) -> None:
    path = pretend(tmp_path / "switch", **fake)  # type: ignore[arg-type]
    with pytest.raises(LocalError, match=text) as caught:
        bmv2.find(path)
    assert path in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_the_bmv2_with_grpc_beside_the_one_without_is_named(tmp_path: Path) -> None:
    with_grpc = pretend(tmp_path / bmv2.PROGRAM)
    without = pretend(tmp_path / "simple_switch", options="")
    with pytest.raises(LocalError, match=f"--switch {with_grpc}"):
        bmv2.find(without)


def test_a_path_with_nothing_but_simple_switch_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = pretend(tmp_path / "simple_switch", options="")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match=f"not on PATH .{without} has no P4Runtime"):
        bmv2.find("bmv2")


@pytest.mark.parametrize("lanes", LANE_BUILDS)
def test_the_json_version_is_that_of_the_compiled_programs(lanes: int) -> None:
    assert tuple(json.loads(p4src.load(lanes).device_config)["__meta__"]["version"]) == bmv2.JSON_VERSION


@pytest.fixture
def thrift_server() -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Yield a port whose server keeps what comes and answers each connection with what is to be given."""
    came: list[bytes] = []
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                came.append(connection.recv(4096))
                connection.sendall(answers[0])

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], came, answers
        thread.join(timeout=patience(5))


NAME = b"simple_switch:set_all_egress_queue_depths"


@pytest.mark.parametrize(
    ("call", "name", "number"),
    [
        (set_queue_depths, NAME, b"\x08\x00\x01" + (1000).to_bytes(4)),
        (set_queue_rates, b"simple_switch:set_all_egress_queue_rates", b"\x0a\x00\x01" + (1000).to_bytes(8)),
    ],
)
def test_queues_are_set_as_thrift_writes_it(
    thrift_server: tuple[int, list[bytes], list[bytes]], call: Callable[..., None], name: bytes, number: bytes
) -> None:
    port, came, answers = thrift_server
    head = struct.pack(">I", len(name)) + name + bytes(4)
    answer = struct.pack(">I", len(name) - 14) + name[14:] + bytes(4)  # the service's name does not come back
    answers.append(b"\x80\x01\x00\x02" + answer + b"\x08\x00\x00" + bytes(4) + b"\x00")
    call(port, 1000, patience_s=0.0)
    assert came == [b"\x80\x01\x00\x01" + head + number + b"\x00"]


@pytest.mark.parametrize("answer", [b"", b"\x80\x01\x00\x03" + struct.pack(">I", len(NAME)) + NAME + bytes(40)])
def test_a_thrift_server_that_does_not_know_the_call_is_an_error(
    thrift_server: tuple[int, list[bytes], list[bytes]], answer: bytes
) -> None:
    port, _, answers = thrift_server
    answers.append(answer)
    with pytest.raises(LocalError, match="set_all_egress_queue_depths"):
        set_queue_depths(port, 1000, patience_s=0.0)


def test_a_command_has_the_options_of_all_that_start_one() -> None:
    plain = bmv2.command_line(["bmv2"], "unix:/p", thrift_port=9, ends=[End(1, "a"), End(2, "b")])
    assert " ".join(plain) == (
        "bmv2 --no-p4 -i 1@a -i 2@b --thrift-port 9 --log-level off -- --grpc-server-addr unix:/p --cpu-port 255"
    )
    with_program = bmv2.command_line(
        ["nice", "bmv2"], "unix:/p", thrift_port=9, program=Path("a.json"), cpu_port=None, log_level="trace",
        options=["--log-flush"], server_options=["--drop-port", "5"],
    )  # fmt: skip
    assert " ".join(with_program) == (
        "nice bmv2 a.json --log-flush --thrift-port 9 --log-level trace -- --grpc-server-addr unix:/p --drop-port 5"
    )


def test_one_that_ends_before_it_listens_is_told_from_one_that_listens(tmp_path: Path) -> None:
    address = f"{tmp_path}/p4runtime"
    with Children() as children:
        ended = children.start("ended", ["sh", "-c", "exit 3"])
        with pytest.raises(LocalError, match="the one ended with exit code 3"):
            bmv2.await_listening(ended, "the one", f"unix:{address}")
        stays = children.start("stays", ["sleep", "100"])
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen()
            bmv2.await_listening(stays, "the one", f"unix:{address}")


@pytest.mark.root
@pytest.mark.bmv2
@BMV2.marks[-1]
@pytest.mark.usefixtures("network_namespace")
def test_the_link_between_two_of_them_is_found_by_lldp(tmp_path: Path) -> None:
    ends = {"a": End(1, "lldp1"), "b": End(3, "lldp2")}
    wires.lay_trunk((ends["a"], ends["b"]), mtu=1500, rate=None, off=wires.OFFLOADS)
    fleet = tmp_path / "fleet.json"
    fleet.write_text(json.dumps({"switches": {name: {"p4runtime": f"unix:{tmp_path}/{name}"} for name in ends}}))
    with Children() as children:
        for name, end in ends.items():
            bmv2.start(children, bmv2.find("bmv2"), [end], f"{tmp_path}/{name}", name)
        done = run("topology", "discover", "--fleet", str(fleet))
    assert (done.stdout.splitlines(), done.returncode) == (["port 1 of a to port 3 of b"], 0), done.stderr
