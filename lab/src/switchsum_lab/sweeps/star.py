"""A star of limited links around a bridge, and a command as every rank of one job of gloo or Open MPI on it.

`unshare --net -- python -m switchsum_lab.sweeps.star PEER WORKERS RATE MTU COMMAND...`: the links are those that
`switchsum run --links veth` lays, but their offloads stay on, and the kernel's bridge stands in the middle.  With
`unlimited` in place of a rate there are no links, and ranks meet on the loopback.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from switchsum.launch import wires
from switchsum_switch.bmv2.process import free_port
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import format_ip

BRIDGE = "middle"
UNLIMITED = "unlimited"
"""Value in place of a rate: the loopback, and no links."""
UNSHAPED = "unshaped"
"""Value in place of a rate: links that nothing limits."""


def lay(children: Children, workers: int, *, rate: str | None, mtu: int) -> list[wires.Wire]:
    """Lay the star's links."""
    wires.run(["ip", "link", "set", "lo", "up"])
    wires.run(["ip", "link", "add", BRIDGE, "mtu", str(mtu), "type", "bridge"])
    wires.run(["ip", "link", "set", BRIDGE, "up"])
    laid = [wires.lay(children, rank, mtu=mtu, rate=rate) for rank in range(workers)]
    for wire in laid:
        wires.run(["ip", "link", "set", wire.interface, "master", BRIDGE])
    return laid


def start_ranks(children: Children, commands: Sequence[Sequence[str]], address: str, interface: str) -> int:
    """Run the ranks' commands, as torchrun would; returns the exit code of the first one that fails, or 0."""
    common = {
        "WORLD_SIZE": str(len(commands)),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": interface,
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        children.start(f"rank {rank}", command, environment={**os.environ, **common, "RANK": str(rank)})
        for rank, command in enumerate(commands)
    ]
    return children.wait(ranks)[1]


def mpirun(children: Children, laid: Sequence[wires.Wire], command: Sequence[str], scratch: Path) -> int:
    """Run a command under mpirun, each rank on a host of its own: the agent that is to be ssh enters its namespaces."""
    agent = scratch / "agent"
    cases = "\n".join(
        f"{format_ip(wire.address.ip)}) exec nsenter --net=/proc/{wire.holder.process.pid}/ns/net -- "
        f'unshare --uts -- sh -c "hostname host{wire.rank}; $*" ;;'
        for wire in laid
    )
    agent.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}\nesac\n")
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    hosts = ",".join(format_ip(wire.address.ip) for wire in laid)
    subnet = f"{format_ip(laid[0].address.ip & ~0xFF)}/24"
    settings = {
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "orte_leave_session_attached": "1",
        "btl": "tcp,self",
        "mpi_yield_when_idle": "1",  # ranks share cores, as on one machine, where mpirun sees it by itself
        "btl_tcp_if_include": subnet,
        "oob_tcp_if_include": subnet,
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    started = ["mpirun", "--allow-run-as-root", *options, "--host", hosts, "-n", str(len(laid)), *command]
    wires.run(["ip", "address", "add", f"{format_ip(laid[0].address.ip + 99)}/24", "dev", BRIDGE])
    child = children.start("mpirun", started)
    return child.process.wait()


def main(peer: str, workers: str, rate: str, mtu: str, *command: str) -> int:
    """Run one job; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as scratch, Children() as children:
        if rate == UNLIMITED:
            return start_ranks(children, [command] * int(workers), "127.0.0.1", "lo")
        laid = lay(children, int(workers), rate=None if rate == UNSHAPED else rate, mtu=int(mtu))
        if peer == "openmpi":
            return mpirun(children, laid, command, Path(scratch))
        inside = [wire.inside(command) for wire in laid]
        return start_ranks(children, inside, format_ip(laid[0].address.ip), wires.WORKER_INTERFACE)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
