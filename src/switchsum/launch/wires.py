"""Network namespaces and veth pairs: one wire from the switch to each worker.

Everything lives in the namespace that the launcher itself has moved to (`enter_namespace`) and in one namespace a
worker, held open by a process; when the launcher and its children are gone, the kernel removes all of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from switchsum.launch.children import OURSELVES, Child, Children
from switchsum.protocol.errors import LocalError
from switchsum.protocol.wire import ETHERNET_BYTES, FRAME_BYTES, Address, format_ip, format_mac, payload_bytes

ENTERED = "SWITCHSUM_IN_NAMESPACE"
"""Set in the environment of a launcher that has its own network namespace."""
WORKER_INTERFACE = "sum0"
WORKER_PORT = 21334
BURST_BYTES = 256 * 1024
"""Burst of the token buckets; smaller ones throttle TCP, with which the switch is compared, more than us."""
MTU = 1500
JUMBO_MTU = 9000
"""Of links whose frames do not fit into 1,500 bytes."""
HOLD_S = 5.0
OFFLOADS = ("tx", "tso", "gso", "gro")
"""What BMv2's links do without: they leave checksums unfinished and halve its receive ring."""
TCP_OFFLOADS = ("tso", "gro")
"""What the embedded switch's do without: it cuts super-frames of UDP, but not of TCP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A veth pair between a switch port and a worker."""

    rank: int
    port: int
    """Number of the switch's port: rank + 1."""
    interface: str
    """The switch's end."""
    address: Address
    """The worker's end."""
    holder: Child
    """The process that keeps the worker's namespace."""

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return `command` as it runs in the worker's namespace."""
        return ["nsenter", f"--net=/proc/{self.holder.process.pid}/ns/net", "--", *command]


def enter_namespace() -> None:
    """Start this program over in a network namespace of its own, unless it is in one already.

    Without root a user namespace comes first; raises LocalError where the kernel or a tool refuses.
    """
    if os.environ.get(ENTERED):
        run(["ip", "link", "set", "lo", "up"])
        return
    for tool in ("unshare", "nsenter", "ip", "ethtool", "tc"):
        if shutil.which(tool) is None:
            raise LocalError(f"--links veth needs {tool}: apt install iproute2 ethtool util-linux")
    unshare = ["unshare", "--net"]
    if os.geteuid() != 0:
        unshare += ["--user", "--map-root-user"]
    probe = subprocess.run([*unshare, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise LocalError(
            f"this machine refuses network namespaces ({probe.stderr.strip()}): run as root, or see switchsum doctor"
        )
    environment = {**os.environ, ENTERED: "1"}
    os.execvpe(unshare[0], [*unshare, "--", *OURSELVES, *sys.argv[1:]], environment)


def mtu_for(lanes: int) -> int:
    """Return the MTU of links that carry frames of so many lanes."""
    return MTU if FRAME_BYTES + payload_bytes(lanes) <= MTU + ETHERNET_BYTES else JUMBO_MTU


def lay(children: Children, rank: int, *, mtu: int, rate: str | None, off: Sequence[str] = ()) -> Wire:
    """Lay the wire of one worker, without the offloads in `off`; raises LocalError."""
    holder = children.start(f"namespace {rank}", ["unshare", "--net", "sleep", "infinity"])
    _await_namespace(holder)
    port = rank + 1
    address = Address(mac=0x02_00_00_00_01_00 + port, ip=0x0A_00_00_00 + port, port=WORKER_PORT)
    wire = Wire(rank=rank, port=port, interface=f"port{port}", address=address, holder=holder)
    run(["ip", "link", "add", wire.interface, "mtu", str(mtu), "type", "veth", "peer", "name", WORKER_INTERFACE,
         "mtu", str(mtu), "address", format_mac(address.mac), "netns", str(holder.process.pid)])  # fmt: skip
    run(["ip", "link", "set", wire.interface, "up"])
    run(wire.inside(["ip", "link", "set", "lo", "up"]))
    run(wire.inside(["ip", "address", "add", f"{format_ip(address.ip)}/24", "dev", WORKER_INTERFACE]))
    run(wire.inside(["ip", "link", "set", WORKER_INTERFACE, "up"]))
    if off:
        words = [word for name in off for word in (name, "off")]
        run(["ethtool", "-K", wire.interface, *words])
        run(wire.inside(["ethtool", "-K", WORKER_INTERFACE, *words]))
    if rate is not None:
        shape = ["rate", rate, "burst", str(BURST_BYTES), "latency", "100ms"]
        run(["tc", "qdisc", "replace", "dev", wire.interface, "root", "tbf", *shape])
        run(wire.inside(["tc", "qdisc", "replace", "dev", WORKER_INTERFACE, "root", "tbf", *shape]))
    return wire


def run(command: Sequence[str]) -> None:
    """Run a tool to its end; raises LocalError with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _await_namespace(holder: Child) -> None:
    """Wait until the holder has left this namespace."""
    own = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + HOLD_S
    while time.monotonic() < deadline:
        if holder.process.poll() is not None:
            break
        try:
            if os.readlink(f"/proc/{holder.process.pid}/ns/net") != own:
                return
        except OSError:
            pass
        time.sleep(0.002)
    raise LocalError("a network namespace for a worker could not be made: see switchsum doctor")
