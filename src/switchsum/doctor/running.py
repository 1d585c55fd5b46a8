"""Checks of what runs on this machine: ports in use, the directory of sockets, processes that a launcher has left."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from switchsum.doctor.finding import Finding, Verdict
from switchsum.launch.wires import ENTERED
from switchsum.native.sockets import RUNTIME_VARIABLE, runtime_directory
from switchsum.protocol.errors import LocalError
from switchsum.protocol.frame import AGGREGATION_PORT

PORTS: Final = {
    ("tcp", 9559): "switchsum switch --listen",
    ("tcp", 9560): "switchsum controller --listen",
    ("udp", AGGREGATION_PORT): "switchsum switch --udp",
}


def check_ports(ports: dict[tuple[str, int], str] = PORTS) -> Finding:
    """Check whether the default ports are free on the loopback."""
    taken = [(kind, port) for kind, port in ports if not _is_free(kind, port)]
    found = ", ".join(f"{port}/{kind} in use ({ports[kind, port]})" for kind, port in taken)
    tests = " or ".join(f"sport = :{port}" for _, port in taken)
    return Finding(
        name="default ports",
        state=Verdict.LIMITED if taken else Verdict.OK,
        found=found or "free",
        purpose="switch and controller that other machines reach",
        remedy=f"sudo ss -lntup '( {tests} )'  # says by whom" if taken else "",
    )


def check_sockets() -> Finding:
    """Check whether there is a directory for sockets of switch and controller that only this user can enter."""
    try:
        found, state = f"{runtime_directory()}, for this user alone", Verdict.OK
    except LocalError as error:
        found, state = str(error).partition("; " + RUNTIME_VARIABLE)[0], Verdict.MISSING
    return Finding(
        name="directory of sockets",
        state=state,
        found=found,
        purpose="switch and controller started by hand find each other",
        remedy=""
        if state is Verdict.OK
        else f"export {RUNTIME_VARIABLE}=$HOME/.switchsum; mkdir -m 700 $HOME/.switchsum",
    )


def _is_free(kind: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM) as probe:
        if kind == "tcp":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # closed connections in TIME_WAIT do not count
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def check_namespaces(processes: Path = Path("/proc")) -> Finding:
    """Look for processes of a launcher that has ended: they keep its network namespaces."""
    left = left_behind(processes)
    return Finding(
        name="left-over namespaces",
        state=Verdict.LIMITED if left else Verdict.OK,
        found=f"held by process {', '.join(map(str, left))}, whose launcher is gone" if left else "none of ours",
        purpose="--links veth leaves nothing behind",
        remedy=f"kill -9 {' '.join(map(str, left))}" if left else "",
    )


def left_behind(processes: Path) -> list[int]:
    """Return the processes that a launcher in namespaces has started, and whose launcher has ended."""
    inside = {int(path.name): path for path in processes.iterdir() if path.name.isdigit() and _is_inside(path)}
    return sorted(pid for pid in inside if not _has_launcher(pid, inside))


def _is_inside(process: Path) -> bool:
    """Return whether a process has the environment of a launcher; other users' processes cannot be read."""
    try:
        return f"{ENTERED}=".encode() in b"\0" + (process / "environ").read_bytes() and process.name != str(os.getpid())
    except OSError:
        return False


def _has_launcher(pid: int, inside: dict[int, Path]) -> bool:
    """Return whether a process or one of its ancestors is `switchsum run`."""
    while pid in inside:
        try:
            words = (inside[pid] / "cmdline").read_bytes().split(b"\0")
            if b"run" in words and any(b"switchsum" in word for word in words):
                return True
            pid = int((inside[pid] / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return True  # it has ended meanwhile
    return False
