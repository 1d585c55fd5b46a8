"""A switch and a controller as processes, for tests that meet them from outside."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest.mock import patch

from support.timing import patience
from switchsum.cli.app import main
from switchsum_switch import notices
from switchsum_switch.process.ready import PROGRESS, READY_FD

SWITCHSUM = (sys.executable, "-m", "switchsum")


@contextmanager
def daemon(*arguments: str) -> Iterator[dict[str, Any]]:
    """Start a command and yield what it announces once it is ready."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [*SWITCHSUM, *arguments], env={**os.environ, READY_FD: str(writing)}, pass_fds=[writing], stderr=subprocess.PIPE
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            facts = {PROGRESS: ""}
            while PROGRESS in facts:  # it may have to compile first; a test's own limit is the limit
                line = pipe.readline()
                assert line, process.communicate()[1].decode()
                facts = json.loads(line)
            yield facts
    finally:
        process.terminate()
        process.communicate()


@contextmanager
def system(*ports: str, listen: str = "127.0.0.1:0", lanes: int = 256) -> Iterator[str]:
    """Run a switch with these ports (options of `switchsum switch`) and a controller; yield the latter's address."""
    with (
        daemon("switch", "--listen", "127.0.0.1:0", *ports) as switch,
        daemon("controller", "--listen", listen, "--switch", switch["p4runtime"], "--lanes", str(lanes)) as controller,
    ):
        yield controller["controller"]


UDP_PORTS = range(30_000, 32_768)
"""Below the ports that Linux gives to sockets which ask for any (net.ipv4.ip_local_port_range)."""


def free_udp_port() -> int:
    """Return a UDP port of the loopback that nobody uses now, nor is given by chance before it is used."""
    while True:
        port = random.choice(UDP_PORTS)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def run(*arguments: str, within: Sequence[str] = (), timeout_s: float = 50.0) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    command = [*within, *SWITCHSUM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience(timeout_s), check=False)


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours in this process, which is faster; not one that becomes another program."""
    output, errors = io.StringIO(), io.StringIO()
    code: Any = None
    with (
        patch.dict(os.environ, {"COLUMNS": "120", "NO_COLOR": "1"}),
        patch.object(notices, "QUIET_S", 600.0),  # what is said of waits depends on how busy the machine is
        patch.object(sys, "argv", ["switchsum", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(arguments, code or 0, output.getvalue(), errors.getvalue())
