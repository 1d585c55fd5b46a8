"""Checks of the kernel, of permissions and of programs on PATH."""

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

from switchsum.doctor.finding import Finding, Verdict
from switchsum.topologies import find_leftovers

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
    """What it is needed for."""
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
