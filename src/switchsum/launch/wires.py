"""Network namespaces and veth pairs: one wire from the switch to each worker.

The launcher starts itself again in a network namespace of its own (`enter_namespace`), which gets the switch's ends of
the wires.  Each worker has a namespace with the other end; a process keeps it open.  When the launcher and its children
have ended, the kernel removes all namespaces and wires, so that nothing has to be cleaned up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from switchsum_protocol.errors import LocalError
from switchsum_protocol.frame import MAX_WORKERS
from switchsum_switch.bmv2.process import End
from switchsum_switch.process.children import OURSELVES, Child, Children
from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE, runtime_directory
from switchsum_switch.process.start_limit import HINT, start_limit
from switchsum_switch.wires.headers import Address, format_ip, format_mac

ENTERED = "SWITCHSUM_IN_NAMESPACE"
"""Environment variable that is set in a launcher which has its own network namespace."""
_INNER = "sum"
WORKER_INTERFACE = f"{_INNER}0"
"""A worker's end of its first wire."""
WORKER_PORT = 21334
BURST_BYTES = 256 * 1024
"""Burst of the token buckets.  A smaller one would slow down TCP, with which the switch is compared, more than UDP."""
HOLD_S = 60.0
"""How long `unshare` may take to make a namespace: milliseconds, where cores are free."""
OFFLOADS = ("tx", "tso", "gso", "gro")
"""Offloads that are turned off for BMv2: they leave checksums unfinished, and BMv2's receive ring holds fewer
frames."""
TCP_OFFLOADS = ("tso", "gro")
"""Offloads that are turned off for the embedded switch: it can divide super-frames of UDP, but not of TCP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A veth pair between a switch port and a worker."""

    rank: int
    end: End
    """The switch's end; at a single switch its port is rank + 1, and 32 more for each further wire of a worker."""
    address: Address
    """The worker's end."""
    holder: Child
    """The process that keeps the worker's namespace open."""

    @property
    def port(self) -> int:
        """Number of the switch's port."""
        return self.end.port

    @property
    def interface(self) -> str:
        """The interface at the switch's end."""
        return self.end.interface

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` in the worker's namespace."""
        return ["nsenter", f"--net=/proc/{self.holder.process.pid}/ns/net", "--", *command]


def enter_namespace(program: Sequence[str] = OURSELVES) -> None:
    """Start this program, with its arguments, again in a network namespace of its own, unless it is in one already.

    Without root it also gets a user namespace; raises LocalError if the kernel or a tool refuses.
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
            f"this machine refuses network namespaces ({probe.stderr.strip()}): run as root, or see `switchsum doctor`"
        )
    environment = {**os.environ, ENTERED: "1"}
    with suppress(LocalError):  # in there this user is root, whose sockets would lie elsewhere
        environment[RUNTIME_VARIABLE] = str(runtime_directory())
    os.execvpe(unshare[0], [*unshare, "--", *program, *sys.argv[1:]], environment)


def lay(
    children: Children,
    rank: int,
    *,
    mtu: int,
    rate: str | None,
    off: Sequence[str] = (),
    link: int = 0,
    holder: Child | None = None,
    end: End | None = None,
) -> Wire:
    """Make a wire of one worker, and turn off the offloads in `off`; raises LocalError.

    `link` is its number among the worker's, `holder` keeps the namespace of the first one.  `end` is the switch's; as
    a rule it is named after the worker.
    """
    if holder is None:
        holder = hold_namespace(children, f"namespace {rank}")
    number, inner = rank + 1 + MAX_WORKERS * link, inner_name(link)
    place = (link << 8) + rank + 1
    address = Address(mac=0x02_00_00_00_01_00 + place, ip=0x0A_00_00_00 + place, port=WORKER_PORT)
    wire = Wire(rank=rank, end=end or End(number, f"port{number}"), address=address, holder=holder)
    run(["ip", "link", "add", wire.interface, "mtu", str(mtu), "type", "veth", "peer", "name", inner,
         "mtu", str(mtu), "address", format_mac(address.mac), "netns", str(holder.process.pid)])  # fmt: skip
    run(wire.inside(["ip", "link", "set", "lo", "up"]))
    run(wire.inside(["ip", "address", "add", f"{format_ip(address.ip)}/24", "dev", inner]))
    _prepare(wire.interface, (), rate, off)
    _prepare(inner, wire.inside(()), rate, off)
    return wire


def lay_trunk(ends: tuple[End, End], *, mtu: int, rate: str | None, off: Sequence[str] = ()) -> None:
    """Make a wire between two switches of this namespace, and turn off the offloads in `off`; raises LocalError."""
    one, other = (end.interface for end in ends)
    run(["ip", "link", "add", one, "mtu", str(mtu), "type", "veth", "peer", "name", other, "mtu", str(mtu)])
    for name in (one, other):
        _prepare(name, (), rate, off)


def _prepare(name: str, within: Sequence[str], rate: str | None, off: Sequence[str]) -> None:
    """Set an interface up, without some offloads, and with the rate at which it sends; `within` leads to it."""
    run([*within, "ip", "link", "set", name, "up"])
    if off:
        run([*within, "ethtool", "-K", name, *(word for offload in off for word in (offload, "off"))])
    if rate is not None:
        shape = ["rate", rate, "burst", str(BURST_BYTES), "latency", "100ms"]
        run([*within, "tc", "qdisc", "replace", "dev", name, "root", "tbf", *shape])


def inner_name(link: int) -> str:
    """Return the name of a worker's end of its wire with a number."""
    return f"{_INNER}{link}"


def run(command: Sequence[str]) -> None:
    """Run a tool and wait for its end; raises LocalError with its error output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LocalError(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")


def hold_namespace(children: Children, name: str) -> Child:
    """Start a process in a network namespace of its own, which lasts as long as it does."""
    holder = children.start(name, ["unshare", "--net", "sleep", "infinity"])
    own = os.readlink("/proc/self/ns/net")
    limit_s = start_limit(HOLD_S)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if holder.process.poll() is not None:
            raise LocalError("a network namespace could not be made: see `switchsum doctor`")
        try:
            if os.readlink(f"/proc/{holder.process.pid}/ns/net") != own:
                return holder
        except OSError:
            pass
        time.sleep(0.002)
    raise LocalError(f"a network namespace was not ready within {limit_s:g} s ({HINT})")
