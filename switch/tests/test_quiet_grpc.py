"""Whoever imports this project finds the environment as it was, and gRPC writes no lines of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.timing import patience

IMPORTS = """
import os
before = dict(os.environ)
import switchsum, switchsum_switch, switchsum_switch.p4runtime.server, switchsum_host.connect
assert "grpc" in __import__("sys").modules
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
"""
FORKS_AND_FAILS = """
import os
from concurrent.futures import ThreadPoolExecutor
from switchsum_switch.connections.quiet_grpc import grpc

server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
port = server.add_insecure_port("127.0.0.1:0")
server.start()
second = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
try:
    second.add_insecure_port(f"127.0.0.1:{port}")
except RuntimeError:
    print("refused")
server.stop(None).wait()
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_VERBOSITY"} | variables
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=patience(50), check=True
    )


def test_an_import_leaves_the_environment_as_it_was() -> None:
    run(IMPORTS)


@pytest.mark.parametrize(("variables", "speaks"), [({}, False), ({"GRPC_VERBOSITY": "ERROR"}, True)])
def test_grpc_writes_only_where_its_user_wants_it(variables: dict[str, str], speaks: bool) -> None:
    done = run(FORKS_AND_FAILS, **variables)
    assert done.stdout == "refused\n"
    assert bool(done.stderr) == speaks, done.stderr
