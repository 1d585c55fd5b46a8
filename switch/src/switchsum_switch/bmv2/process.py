"""BMv2's simple_switch_grpc as the launcher's switch.

BMv2 loses frames in silence if too many of them are in flight.  A port holds a limited number on the way in (libpcap's
receive ring) and on the way out (a queue, 64 frames by default).  So the launcher makes the queue as long as the ring,
and tells the controller how many frames a port holds; the controller keeps the windows below that.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from switchsum_switch.bmv2.queue_depths import set_queue_depths
from switchsum_switch.connections.addresses import is_listening
from switchsum_switch.errors import LocalError, Unusable
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.children import Child, Children
from switchsum_switch.process.start_limit import HINT, start_limit

PROGRAM: Final = "simple_switch_grpc"
GROWTH_BYTES: Final = 512
"""BMv2 aborts when a frame grows by more than this."""
PORT_FRAMES: Final = 32
"""Frames that a port holds in any case.  BMv2 drops the rest of a burst, and no counter shows it."""
JSON_VERSION: Final = (2, 23)
"""Version of BMv2's JSON format in which the program is compiled; BMv2 1.14.0 was the first to read it."""
QUEUE_FRAMES: Final = 4096
"""Length of BMv2's egress queues: more frames than its rings can bring, with results and answers to repeats."""
ENOUGH_FRAMES: Final = 64
"""Most frames in flight per port.  With more, BMv2 is slower: the packets that it keeps do not fit the cores'
caches."""
PRECEDENCE: Final = 10
"""Difference in nice values between workers and BMv2."""
CPU_PORT: Final = 255
START_S: Final = 120.0
"""One that has ended is seen at once; one that starts beside twenty others takes long."""
ASK_S: Final = 60.0
_SEE_INTERFACES: Final = ("unshare", "--mount", "--", "sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh")
"""BMv2 looks for its interfaces in /sys, which shows those of the network namespace in which it was mounted; so it gets
a new mount of /sys."""
AS_STARTED: Final = (*_SEE_INTERFACES, "chrt", "--batch", "0")
"""Words in front of BMv2's command.  Its threads wake each other for every packet.  A thread of a batch process does
not interrupt the running thread when it is woken, so that it finds several packets when it runs."""
_given: set[int] = set()
"""Ports that `free_port` has returned: the kernel may offer a port again until a process listens there."""


class End(NamedTuple):
    """A switch's end of a wire."""

    port: int
    """Number of the switch's port."""
    interface: str

    def __str__(self) -> str:
        """As switches take it: PORT@INTERFACE."""
        return f"{self.port}@{self.interface}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A BMv2 that runs, still without a program."""

    p4runtime: str
    """Address of its P4Runtime server."""
    port_frames: int
    """Number of frames that each of its ports holds before it drops any."""


def find(switch: str) -> str:
    """Return the path of the executable that `--switch` names; raises Unusable."""
    path = shutil.which(PROGRAM if switch == "bmv2" else switch)
    if path is None:
        where = f"{PROGRAM} is not on PATH" if switch == "bmv2" else f"{switch} is no executable file"
        beside = shutil.which("simple_switch") if switch == "bmv2" else None
        if beside is not None:
            where += f" ({beside} has no P4Runtime)"
        raise Unusable(where, "install BMv2 (switchsum doctor says how), or leave --switch out")
    if "grpc-server-addr" not in _ask(path, "--help"):
        sibling = Path(path).with_name(PROGRAM)
        mend = f"--switch {sibling}" if sibling.is_file() and sibling != Path(path) else "--switch bmv2"
        raise Unusable(f"{path} has no P4Runtime server", f"use a BMv2 that was built with gRPC, {mend}")
    version = _ask(path, "--json-version").strip()
    try:
        major, minor = map(int, version.split("."))
    except ValueError:
        raise Unusable(f"{path} is not BMv2: its answer to --json-version is {version[:100]!r}") from None
    if major != JSON_VERSION[0] or minor < JSON_VERSION[1]:
        raise Unusable(
            f"{path} reads BMv2 JSON {version}, but the program is {JSON_VERSION[0]}.{JSON_VERSION[1]}",
            "install BMv2 1.14.0 or newer (switchsum doctor says how)",
        )
    return path


def _ask(path: str, option: str) -> str:
    """Return what a program prints with an option; raises Unusable if it does not run."""
    try:
        done = subprocess.run([path, option], capture_output=True, text=True, timeout=start_limit(ASK_S), check=False)
    except subprocess.TimeoutExpired as error:
        raise Unusable(f"{path} {option} has not ended within {error.timeout:g} s ({HINT})") from error
    except OSError as error:
        raise Unusable(f"cannot run {path}: {error}") from error
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise Unusable(f"cannot run {path}: {reason[0][:200]}")
    return done.stdout


def start(children: Children, path: str, ends: Sequence[End], p4runtime: str, name: str = "bmv2") -> Running:
    """Start the BMv2 at `path` on ends of wires, without a program; raises LocalError.

    The wires' offloads must be off.  It serves P4Runtime at the Unix socket `p4runtime`, and Thrift, which it can serve
    by TCP only, in this network namespace.
    """
    address, thrift_port = f"unix:{p4runtime}", free_port()
    command = command_line([path], address, thrift_port=thrift_port, ends=ends)
    child = children.start(name, [*_before_workers(), *AS_STARTED, *command], prefix=True, quiet=True)
    with waiting_for(f"{path} to listen at {p4runtime}"):
        await_listening(child, path, address)
    return Running(p4runtime=address, port_frames=_lengthen_queues(thrift_port, ends))


def command_line(
    words: Sequence[str],
    p4runtime: str,
    *,
    thrift_port: int,
    ends: Sequence[End] = (),
    program: Path | None = None,
    log_level: str = "off",
    cpu_port: int | None = CPU_PORT,
    options: Sequence[str] = (),
    server_options: Sequence[str] = (),
) -> list[str]:
    """Return the command of a BMv2 that serves P4Runtime at an address.

    `words` call it, or a switch that takes the same options.  `program` is the JSON that it begins with; None: none.
    `options` are further ones of BMv2, and `server_options` of its P4Runtime server.
    """
    interfaces = [word for end in ends for word in ("-i", str(end))]
    own = [*words, "--no-p4" if program is None else str(program), *interfaces, *options]
    own += ["--thrift-port", str(thrift_port), "--log-level", log_level]
    cpu = [] if cpu_port is None else ["--cpu-port", str(cpu_port)]
    return [*own, "--", "--grpc-server-addr", p4runtime, *cpu, *server_options]


def _before_workers() -> tuple[str, ...]:
    """Return the command prefix that gives BMv2 precedence over workers; empty if this user may not do that.

    All workers wait for the switch, so that it should get a core at once.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, usual - PRECEDENCE)
    except PermissionError:
        return ()
    os.setpriority(os.PRIO_PROCESS, 0, usual)
    return ("nice", "-n", str(-PRECEDENCE))


def _lengthen_queues(thrift_port: int, ends: Sequence[End]) -> int:
    """Make BMv2's egress queues longer than its receive rings; return how many frames a port then holds.

    libpcap has 2 MiB for each port.  With offloads off it divides them into frames of the MTU's size, otherwise into 32
    frames of 64 KiB.
    """
    rings = ring_frames([end.interface for end in ends])
    if not rings:
        return PORT_FRAMES
    try:
        set_queue_depths(thrift_port, QUEUE_FRAMES)
    except LocalError:  # BMv2 was built without Thrift
        return PORT_FRAMES
    # Half of a ring is left for repeats, which come on top of the window.
    return min(max(PORT_FRAMES, min(rings) // 2), ENOUGH_FRAMES)


def ring_frames(interfaces: Sequence[str]) -> list[int]:
    """Return how many frames the receive ring of each interface holds, for the interfaces that the kernel lists."""
    sockets = subprocess.run(["ss", "-0", "-e", "-n", "-O"], capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r":(\S+) .*ring_rx\(.*frm_nr:(\d+)", sockets))
    return [int(found[name]) for name in interfaces if name in found]


def await_listening(child: Child, path: str, p4runtime: str) -> None:
    """Wait until a BMv2 listens at the address of its P4Runtime server; raises LocalError."""
    limit_s = start_limit(START_S)
    deadline = time.monotonic() + limit_s
    while not is_listening(p4runtime):
        code = child.process.poll()
        if code is not None:
            raise LocalError(f"{path} ended with exit code {code}")
        if time.monotonic() > deadline:
            raise LocalError(f"{path} runs but has not listened at {p4runtime} within {limit_s:g} s ({HINT})")
        time.sleep(0.02)


def free_port() -> int:
    """Return a TCP port that is free now, and that was not returned before."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            number: int = probe.getsockname()[1]
        if number not in _given:
            _given.add(number)
            return number
