"""BMv2's simple_switch_grpc as the launcher's switch."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Sequence
from typing import Final

from switchsum.launch.children import Children
from switchsum.launch.wires import Wire
from switchsum.protocol.errors import LocalError

PROGRAM: Final = "simple_switch_grpc"
GROWTH_BYTES: Final = 512
"""BMv2 aborts when a frame grows by more than this."""
PORT_FRAMES: Final = 32
"""What a port surely holds: BMv2's receive ring drops the rest of a burst, and nothing counts it."""
CPU_PORT: Final = 255
START_S: Final = 20.0
SEE_INTERFACES: Final = ("unshare", "--mount", "--", "sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh")
"""BMv2 looks at its ports in /sys, which shows the interfaces of the namespace that it was mounted in."""


def find(switch: str) -> str:
    """Return the path of the binary that `--switch` means; raises LocalError."""
    path = shutil.which(PROGRAM if switch == "bmv2" else switch)
    if path is None:
        where = f"{PROGRAM} is not on PATH" if switch == "bmv2" else f"{switch} is no executable file"
        raise LocalError(f"{where}: install BMv2, or leave --switch out")
    return path


def start(children: Children, switch: str, wires: Sequence[Wire]) -> str:
    """Start BMv2 on the wires, without a program; returns the address of its P4Runtime server."""
    address = f"127.0.0.1:{free_port()}"
    command = [find(switch), "--no-p4", "--device-id", "0"]
    for wire in wires:
        command += ["-i", f"{wire.port}@{wire.interface}"]
    command += ["--thrift-port", str(free_port()), "--log-level", "off"]
    command += ["--", "--grpc-server-addr", address, "--cpu-port", str(CPU_PORT)]
    child = children.start("bmv2", [*SEE_INTERFACES, *command], prefix=True, quiet=True)
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        code = child.process.poll()
        if code is not None:
            raise LocalError(f"{command[0]} ended with exit code {code}")
        try:
            with socket.create_connection((host, int(port)), timeout=1.0):
                return address
        except OSError:
            time.sleep(0.05)
    raise LocalError(f"{command[0]} does not answer at {address}")


def free_port() -> int:
    """Return a TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number
