"""Checks of this machine: kernel, permissions, programs on PATH, BMv2, network namespaces, and what runs already."""

from __future__ import annotations

import errno
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchsum.doctor.python import Finding, Verdict
from switchsum.launch.wires import ENTERED
from switchsum.topologies import find_leftovers
from switchsum_protocol.frame import AGGREGATION_PORT
from switchsum_switch.bmv2.process import PROGRAM, find
from switchsum_switch.errors import Unusable
from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE, runtime_directory

PROBE_TIMEOUT_S = 10.0
P4LANG_PACKAGES = "https://download.opensuse.org/repositories/home:/p4lang"
PACKAGED_UBUNTU = ("20.04", "22.04")
"""Releases that p4lang publishes packages for (vagrant/README.md)."""
BMV2_HELP = "https://github.com/p4lang/behavioral-model#installing-bmv2"
P4C_HELP = "https://github.com/p4lang/p4c#installing-packaged-versions-of-p4c"


def check_cores() -> Finding:
    """Count the cores that this process may use."""
    allowed, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    return Finding(
        name="cores",
        state=Verdict.OK if allowed > 1 else Verdict.LIMITED,
        found=f"{allowed} of {present}",
        purpose="switch and workers side by side",
        remedy=f"taskset --pid --cpu-list 0-{present - 1} $$" if allowed == 1 < present else "",
    )


def check_shared_memory() -> Finding:
    """Reserve a page of a memfd, as every shared-memory link does."""
    name, purpose = "shared memory", "links between processes of one machine"
    try:
        descriptor = os.memfd_create("switchsum-doctor", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, os.sysconf("SC_PAGE_SIZE"))
        finally:
            os.close(descriptor)
    except OSError as error:
        remedy = (
            "ulimit -n 4096" if error.errno == errno.EMFILE else "free -m; uname -r  # wants memory, and Linux 3.17"
        )
        return Finding(
            name=name, state=Verdict.MISSING, found=f"memfd: {error}", purpose=purpose, remedy=remedy, essential=True
        )
    return Finding(name=name, state=Verdict.OK, found="memfd", purpose=purpose, essential=True)


def check_raw_sockets() -> Finding:
    """Open an AF_PACKET socket, for which CAP_NET_RAW is needed."""
    name, purpose = "raw sockets", "the switch or a worker on an interface (AF_PACKET)"
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()
    except OSError as error:
        program = shutil.which("switchsum") or f"{sys.executable} -m switchsum"
        return Finding(
            name=name, state=Verdict.MISSING, found=str(error), purpose=purpose, remedy=f"sudo {program} ..."
        )
    return Finding(name=name, state=Verdict.OK, found="CAP_NET_RAW", purpose=purpose)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program to look for on PATH."""

    name: str
    """Name of the executable."""
    version: str
    """Option that prints the version."""
    purpose: str
    """Purpose: the feature that needs it."""
    remedy: str
    """Command that installs it."""


def p4lang_install(page: str) -> str:
    """Return the commands that install p4lang's packages on this distribution, or a page that says more."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return page
    name, version = release["ID"], release.get("VERSION_ID", "")
    if name == "ubuntu" and version in PACKAGED_UBUNTU:
        folder = f"xUbuntu_{version}"
    elif (name, version) == ("debian", "11"):
        folder = "Debian_11"
    else:
        return page
    keyring, address = "/usr/share/keyrings/p4lang.gpg", f"{P4LANG_PACKAGES}/{folder}"
    return (
        f"curl -fsSL {address}/Release.key | gpg --dearmor | sudo tee {keyring} >/dev/null && "
        f"echo 'deb [signed-by={keyring}] {address}/ /' | sudo tee /etc/apt/sources.list.d/p4lang.list && "
        "sudo apt update && sudo apt install p4lang-p4c p4lang-bmv2"
    )


def programs() -> list[Tool]:
    """Return the programs that switchsum can use; it comes without them."""
    return [
        Tool(name="ip", version="-V", purpose="--links veth", remedy="sudo apt install iproute2"),
        Tool(name="tc", version="-V", purpose="--rate", remedy="sudo apt install iproute2"),
        Tool(
            name="ethtool",
            version="--version",
            purpose="checksum and receive offload of veth links",
            remedy="sudo apt install ethtool",
        ),
        Tool(
            name="tcpdump", version="--version", purpose="capture filters of scapy", remedy="sudo apt install tcpdump"
        ),
        Tool(name="p4c-bm2-ss", version="--version", purpose="make p4", remedy=p4lang_install(P4C_HELP)),
        Tool(
            name="mn",
            version="--version",
            purpose="make mininet",
            remedy="sudo apt install --no-install-recommends mininet python3-setuptools",
        ),
        Tool(name="ping", version="-V", purpose="make mininet", remedy="sudo apt install iputils-ping"),
    ]


def check_program(program: Tool) -> Finding:
    """Look for a program on PATH and ask for its version."""
    path = shutil.which(program.name)
    if path is None:
        return Finding(
            name=program.name,
            state=Verdict.MISSING,
            found="not on PATH",
            purpose=program.purpose,
            remedy=program.remedy,
        )
    code, output = run_probe([path, program.version])
    version = re.search(r"\d+\.\d[\w.+-]*", output)
    if code != 0 and version is None:
        return Finding(
            name=program.name,
            state=Verdict.LIMITED,
            found=f"{path} fails: {output.strip()[-200:]}",
            purpose=program.purpose,
            remedy=program.remedy,
        )
    found = f"{version[0]} ({path})" if version else path
    return Finding(name=program.name, state=Verdict.OK, found=found, purpose=program.purpose)


def run_probe(command: list[str]) -> tuple[int, str]:
    """Run a short command; return its exit code and all that it has printed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, str(error)
    return done.returncode, done.stdout


def check_leftovers() -> Finding:
    """Look for interfaces and processes that a crashed Mininet has left behind."""
    name, purpose = "left-over Mininet", "make mininet, which makes interfaces of the same names"
    left = find_leftovers()
    if left:
        return Finding(name=name, state=Verdict.LIMITED, found=str(left), purpose=purpose, remedy=left.remedy)
    return Finding(name=name, state=Verdict.OK, found="nothing of Mininet's", purpose=purpose)


def read_setting(name: str, root: Path = Path("/proc/sys")) -> str:
    """Return a kernel setting such as `kernel.pid_max`; an empty text if the kernel has none of that name."""
    try:
        return (root / name.replace(".", "/")).read_text().strip()
    except OSError:
        return ""


VETH = "ip link add swsum0 type veth peer name swsum1"
RATE = f"{VETH} && tc qdisc add dev swsum0 root tbf rate 1gbit burst 256kb latency 50ms"
PROC_SYS = Path("/proc/sys")


def check_veth() -> Finding:
    """Make a pair of veth interfaces in a fresh network namespace."""
    return probe_namespace("veth links", "--links veth", VETH, ["unshare", "ip"])


def check_rate() -> Finding:
    """Limit the rate of a veth interface in a fresh network namespace."""
    return probe_namespace("rate limit", "--rate", RATE, ["unshare", "ip", "tc"])


def probe_namespace(name: str, purpose: str, script: str, needed: list[str]) -> Finding:
    """Run a script in a new network namespace, which ends with the script."""
    absent = [program for program in needed if shutil.which(program) is None]
    if absent:
        found, remedy = f"no {', '.join(absent)} on PATH", "sudo apt install iproute2 util-linux"
        return Finding(name=name, state=Verdict.MISSING, found=found, purpose=purpose, remedy=remedy)
    as_root = os.geteuid() == 0
    user = [] if as_root else ["--user", "--map-root-user"]
    code, output = run_probe(["unshare", *user, "--net", "sh", "-c", script])
    if code == 0:
        found = "as root" if as_root else "in a user namespace"
        return Finding(name=name, state=Verdict.OK, found=found, purpose=purpose)
    reason, remedy = explain_refusal(output, as_root=as_root)
    return Finding(name=name, state=Verdict.MISSING, found=reason, purpose=purpose, remedy=remedy)


def explain_refusal(output: str, *, as_root: bool, proc_sys: Path = PROC_SYS) -> tuple[str, str]:
    """Return the reason why the kernel refused, and the command after which it allows it."""
    last_line = (output.strip().splitlines() or ["no reason given"])[-1]
    if "Unknown device type" in output:
        return "the kernel has no veth interfaces", "sudo modprobe veth"
    if "qdisc kind is unknown" in output:
        return "the kernel has no token bucket filter", "sudo modprobe sch_tbf"
    if as_root:
        return last_line, "docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN ...  # where this is a container"
    # In the order in which the kernel looks at these settings.
    if read_setting("user.max_user_namespaces", proc_sys) == "0":
        return "user namespaces are switched off", "sudo sysctl -w user.max_user_namespaces=15000"
    if read_setting("kernel.unprivileged_userns_clone", proc_sys) == "0":
        return "user namespaces are for root only", "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if read_setting("kernel.apparmor_restrict_unprivileged_userns", proc_sys) == "1":
        # The default since Ubuntu 24.04: the namespace is made, but the process has no capability in it.
        return (
            "AppArmor takes the capabilities of user namespaces away",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        )
    return last_line, "sudo switchsum run --links veth ..."


def check_bmv2() -> Finding:
    """Look for BMv2 on PATH, and check whether the launcher could use it."""
    purpose = "--switch bmv2"
    try:
        path = find("bmv2")
    except Unusable as error:
        state = Verdict.LIMITED if shutil.which(PROGRAM) else Verdict.MISSING
        return Finding(name=PROGRAM, state=state, found=error.fault, purpose=purpose, remedy=p4lang_install(BMV2_HELP))
    version = re.search(r"\d+\.\d[\w.+-]*", run_probe([path, "--version"])[1])
    found = f"{version[0]} ({path})" if version else path
    return Finding(name=PROGRAM, state=Verdict.OK, found=found, purpose=purpose)


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
    except Unusable as error:
        found, state = error.fault, Verdict.MISSING
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
