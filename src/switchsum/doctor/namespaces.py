"""Checks whether veth links can be made: as root, or in a user namespace if the kernel allows one to ordinary users."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from switchsum.doctor.finding import Finding, Verdict
from switchsum.doctor.system import read_setting, run_probe

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
