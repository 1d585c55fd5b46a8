"""A second link for each worker, to a bridge of the kernel's, as slow as its link to the switch: for TCP among workers.

There TCP has segmentation offloads and needs no program to forward it, so that it is as fast as it can be.  The names
live in the namespaces that `switchsum run` has made, and go with them.
"""

from __future__ import annotations

import os
from pathlib import Path

from switchsum.launch.wires import BURST_BYTES, WORKER_INTERFACE, run

INTERFACE = "peer0"
BRIDGE = "peers"
INTERFACES = (WORKER_INTERFACE, INTERFACE)


def address(rank: int) -> str:
    """Return a worker's address on the bridge."""
    return f"10.1.0.{rank + 1}"


def _outside(*command: str) -> list[str]:
    """Return a command as it runs in the launcher's namespace."""
    return ["nsenter", f"--net=/proc/{os.getppid()}/ns/net", "--", *command]


def make_bridge() -> None:
    """Make the bridge; one rank does, before the others lay their links."""
    run(_outside("ip", "link", "add", BRIDGE, "type", "bridge"))
    run(_outside("ip", "link", "set", BRIDGE, "up"))


def lay(rank: int, rate: str, mtu: int) -> None:
    """Lay this worker's link, limited in both directions."""
    outer = f"peer{rank + 1}"
    run(["ip", "link", "add", INTERFACE, "mtu", str(mtu), "type", "veth", "peer", "name", outer, "mtu", str(mtu),
         "netns", str(os.getppid())])  # fmt: skip
    run(_outside("ip", "link", "set", outer, "master", BRIDGE, "up"))
    run(["ip", "address", "add", f"{address(rank)}/24", "dev", INTERFACE])
    run(["ip", "link", "set", INTERFACE, "up"])
    shape = ["root", "tbf", "rate", rate, "burst", str(BURST_BYTES), "latency", "100ms"]
    run(["tc", "qdisc", "replace", "dev", INTERFACE, *shape])
    run(_outside("tc", "qdisc", "replace", "dev", outer, *shape))


def bytes_so_far() -> tuple[int, int]:
    """Return the bytes that this worker's interfaces have sent and received."""
    sent = received = 0
    for line in Path("/proc/self/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() in INTERFACES:
            columns = numbers.split()
            received += int(columns[0])
            sent += int(columns[8])
    return sent, received
