"""What a job and a real TCP stream have of one link: `sudo python -m checks.lab.beside_tcp [--congestion cubic]`.

A job of two ranks adds while a stream of Linux's TCP goes to the machine of rank 0, over the same link of it::

    rank 1 ------ 2  switch  1 ---- bridge ---- rank 0, and TCP's receiver
    TCP's sender- 3

The queue of that link is the switch's (its port has a rate, and our P4 program marks frames), or Linux's (the bridge's
htb has a rate, and a queue of 64 frames that drops and marks nothing).  Everything is in namespaces that end with it.
Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import switchsum
from switchsum.launch import wires
from switchsum.launch.link_options import MTU
from switchsum_host.engine.loop import Driver
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import ControllerUnreachable, SwitchLost
from switchsum_switch.bmv2.process import End
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.children import OURSELVES, Child, Children
from switchsum_switch.wires.headers import format_ip, format_mac

JOB: Final = "beside"
FRAMES: Final = 64
"""Frames that the queue of the link holds, whosever it is."""
SIZE: Final = 2_000_000
"""Bytes of an array: eight blocks a slot.  Of two rounds of a slot with one block, the first has no lanes."""
WARM_S: Final = 3.0
"""At both ends of the time in which both are active, which does not count."""
TCP_PORT: Final = 5201
CHUNK_BYTES: Final = 1 << 16
SEGMENT: Final = 1514 / 1448
"""Bytes of a full frame of TCP, with timestamps, for each byte that it carries."""
OFF: Final = ("tso", "gso", "gro")
"""Offloads that would put many frames into one place of a queue."""
START_S: Final = 300.0
TCP_INFO: Final = struct.Struct("68xI8xI")
"""Linux's `struct tcp_info` up to the window: the smoothed round trip in microseconds, and the window in segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row."""

    name: str
    asks_for_marks: bool
    """TCP has the queue mark its segments, and obeys (RFC 3168)."""
    is_marking: bool
    """The queue is the switch's, which marks; else it is Linux's."""
    loss_cut: float = 0.0
    """As in the worker's `EngineConfig`."""


CASES: Final = (
    Case(name="obeys marks | marks from 16 frames, drops from 64", asks_for_marks=True, is_marking=True),
    Case(name="ignores marks | marks from 16 frames, drops from 64", asks_for_marks=False, is_marking=True),
    Case(name="sees losses | marks nothing, drops from 64", asks_for_marks=False, is_marking=False),
    Case(
        name="sees losses | the same, and `loss_cut=0.5`",
        asks_for_marks=False,
        is_marking=False,
        loss_cut=0.5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Mbit/s that came at rank 0's machine in the same time, headers counted."""

    job: float
    stream: float
    repeats: int
    marked: int
    window: float
    """Contributions that rank 0 might have in flight, on average."""
    trip_s: float
    """How long the last of them took, the median."""
    stream_window: float
    """Segments that TCP might have in flight, on average."""
    stream_trip_s: float
    """TCP's smoothed round trip, the median."""


class Rig:
    """A switch, a controller and three machines, each with a link."""

    def __init__(self, children: Children, scratch: str, case: Case, mbit: float) -> None:
        self._children, self._case, self.scratch = children, case, scratch
        far = End(1, "far1")
        self.laid = [
            wires.lay(children, place, mtu=MTU, rate=None, off=OFF, end=far if place == 0 else None)
            for place in range(3)
        ]
        self._bridge(mbit)
        for wire in (self.laid[0], self.laid[2]):
            wires.run(wire.inside(["sysctl", "-qw", f"net.ipv4.tcp_ecn={1 if case.asks_for_marks else 0}"]))
        self._switch = f"unix:{scratch}/switch"
        self.controller = f"unix:{scratch}/controller"
        self._start(mbit)

    def _bridge(self, mbit: float) -> None:
        """Lead port 1 of the switch to rank 0 over a bridge."""
        wires.lay_trunk((End(1, "port1"), End(1, "box1")), mtu=MTU, rate=None, off=OFF)
        wires.run(["ip", "link", "add", "box", "type", "bridge"])
        for name in ("box1", "far1"):
            wires.run(["ip", "link", "set", name, "master", "box"])
        wires.run(["ip", "link", "set", "box", "up"])
        if not self._case.is_marking:
            qdisc = ["tc", "qdisc", "add", "dev", "far1"]
            wires.run([*qdisc, "root", "handle", "1:", "htb", "default", "1"])
            rate = ["rate", f"{mbit:g}mbit", "burst", "6k", "quantum", "1514"]
            wires.run(["tc", "class", "add", "dev", "far1", "parent", "1:", "classid", "1:1", "htb", *rate])
            wires.run([*qdisc, "parent", "1:1", "handle", "10:", "pfifo", "limit", str(FRAMES)])

    def _start(self, mbit: float) -> None:
        ports = [word for number in (1, 2, 3) for word in ("--interface", f"{number}@port{number}")]
        queue = ["--queue-rate", f"1={mbit:g}mbit", "--queue-depth", f"1={FRAMES}"] if self._case.is_marking else []
        self._daemon("switch", "--listen", self._switch, *ports, *queue)
        stations = [f"{format_mac(wire.address.mac)}@{port}" for port, wire in enumerate(self.laid, 1)]
        known = [word for text in stations for word in ("--station", text)]
        known += [word for number in (1, 2, 3) for word in ("--flood-port", str(number))]
        self._daemon("controller", "--switch", self._switch, "--listen", self.controller, *known)
        deadline = time.monotonic() + START_S
        while True:
            try:
                with ControllerClient(self.controller) as client:
                    client.create_job(rpc.CreateJobRequest(job=JOB, workers=2, slots=256, timeout_s=START_S))
                    return
            except (ControllerUnreachable, SwitchLost):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _daemon(self, *command: str) -> None:
        self._children.start(command[0], [*OURSELVES, *command], quiet=True)

    def start(self, place: int, part: str, *values: object, **variables: str) -> Child:
        """Start this module's `part` on a machine."""
        command = [sys.executable, "-m", "checks.lab.beside_tcp", "--part", part, self.scratch, *map(str, values)]
        environment = {
            **os.environ,
            "SWITCHSUM_CONTROLLER": self.controller,
            "SWITCHSUM_JOB": JOB,
            "SWITCHSUM_LINK": f"packet:{wires.WORKER_INTERFACE}",
            "WORLD_SIZE": "2",
            **variables,
        }
        return self._children.start(f"{part} {place}", self.laid[place].inside(command), environment=environment)


def measure(case: Case, *, mbit: float, seconds: float, congestion: str) -> Shares:
    """Run a job and a stream; raises LocalError and the like."""
    with tempfile.TemporaryDirectory(prefix="switchsum-beside-") as scratch, Children() as children:
        rig = Rig(children, scratch, case, mbit)
        lasts = seconds + 4 * WARM_S
        started = [rig.start(0, "rank", lasts, case.loss_cut, RANK="0"), rig.start(1, "rank", lasts, 0, RANK="1")]
        started.append(rig.start(0, "receive", format_ip(rig.laid[0].address.ip)))
        started.append(rig.start(2, "send", format_ip(rig.laid[0].address.ip), congestion))
        for child in started:
            if code := child.process.wait():
                raise SystemExit(f"{child.name} has ended with exit code {code}")
        return shares(*(json.loads(Path(scratch, f"{name}.json").read_text()) for name in ("rank", "receive", "send")))


def shares(job: Mapping[str, Any], stream: Mapping[str, Any], sender: Mapping[str, Any]) -> Shares:
    """Return what came in the time in which both were active, without `WARM_S` at both ends."""
    since = max(one["samples"][0][0] for one in (job, stream)) + WARM_S
    until = min(one["samples"][-1][0] for one in (job, stream)) - WARM_S
    return Shares(
        job=_mbit(job["samples"], since, until),
        stream=SEGMENT * _mbit(stream["samples"], since, until),
        repeats=job["repeats"],
        marked=job["marked"],
        window=float(np.mean(_inside(job["windows"], since, until))),
        trip_s=float(np.median(_inside(job["trips"], since, until))),
        stream_window=float(np.mean(_inside(sender["windows"], since, until))),
        stream_trip_s=float(np.median(_inside(sender["trips"], since, until))),
    )


def _inside(samples: Sequence[Sequence[float]], since: float, until: float) -> npt.NDArray[np.float64]:
    return np.array([value for at, value in samples if since <= at <= until])


def _mbit(samples: Sequence[Sequence[float]], since: float, until: float) -> float:
    inside = [(at, count) for at, count in samples if since <= at <= until]
    if len(inside) < 2:
        return 0.0
    (began, before), (ended, after) = inside[0], inside[-1]
    return 8 * (after - before) / (ended - began) / 1e6


def rank(scratch: Path, seconds: float, loss_cut: float) -> None:
    """Add for some seconds, and write when how many bytes had come; then tell TCP that this is the end."""
    with switchsum.connect() as comm:
        driver = comm.queue.driver
        assert isinstance(driver, Driver)
        driver.engine.state.paths["window"]["loss_cut"] = loss_cut
        array = np.ones(SIZE // 4, np.float32)
        samples, windows, trips = [], [], []
        end = time.monotonic() + seconds
        while True:
            array[:] = time.monotonic() < end
            comm.allreduce(array)
            if array[0] < comm.world_size:  # for some rank the time is over, which all hear of at once
                break
            now, path = time.monotonic(), driver.engine.state.paths[0]
            samples.append((now, comm.statistics().bytes_received))
            windows.append((now, float(path["window"]["limit"])))
            trips.append((now, float(path["trips"]["recent_s"])))
        found = comm.statistics()
    if comm.rank == 0:
        report = {"samples": samples, "windows": windows, "trips": trips}
        report |= {"repeats": found.repeats, "marked": found.marked}
        (scratch / "rank.json").write_text(json.dumps(report))
        (scratch / "end").touch()


def receive(scratch: Path, address: str, *_: str) -> None:
    """Take what comes until the job has ended."""
    samples, total = [], 0
    with socket.create_server((address, TCP_PORT)) as server:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(0.2)
            while not (scratch / "end").exists():
                try:
                    total += len(connection.recv(CHUNK_BYTES))
                except TimeoutError:
                    pass
                samples.append((time.monotonic(), total))
    (scratch / "receive.json").write_text(json.dumps({"samples": samples[:: 1 + len(samples) // 20_000]}))


def send(scratch: Path, address: str, congestion: str) -> None:
    """Send as fast as TCP lets us, until the job has ended."""
    connection = _connected(address, congestion)
    windows, trips = [], []
    with connection:
        connection.settimeout(0.2)
        while not (scratch / "end").exists():
            try:
                connection.send(bytes(CHUNK_BYTES))
            except TimeoutError:
                continue
            except ConnectionError:
                break
            now, facts = time.monotonic(), connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
            trip_us, window = TCP_INFO.unpack(facts)
            windows.append((now, window))
            trips.append((now, trip_us / 1e6))
    (scratch / "send.json").write_text(json.dumps({"windows": windows, "trips": trips}))


def _connected(address: str, congestion: str) -> socket.socket:
    deadline = time.monotonic() + START_S
    while True:
        connection = socket.socket()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        try:
            connection.connect((address, TCP_PORT))
        except OSError:
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return connection


def main() -> None:
    """Print the table, or be a part of it."""
    if sys.argv[1:2] == ["--part"]:
        part, scratch, *values = sys.argv[2:]
        if part == "rank":
            rank(Path(scratch), *map(float, values))
        else:
            (receive if part == "receive" else send)(Path(scratch), *values)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=10.0, help="that are counted")
    parser.add_argument(
        "--congestion", default="cubic,reno", help="how TCP reacts to congestion: names as Linux has them"
    )
    parser.add_argument("--case", type=int, help="only this row, in this process's network namespace")
    options = parser.parse_args()
    if options.case is not None:
        wires.run(["ip", "link", "set", "lo", "up"])
        _print_row(CASES[options.case], options.mbit, options.seconds, options.congestion)
        return
    print(
        "| TCP | the stream | the queue | job, Mbit/s | stream, Mbit/s | marked | repeats | job's window, ms | TCP's |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    rates = ["--mbit", f"{options.mbit:g}", "--seconds", f"{options.seconds:g}"]
    for congestion in options.congestion.split(","):
        for case in range(len(CASES)):  # each in a namespace of its own, with which all that it has made ends
            command = ["unshare", "--net", sys.executable, "-m", "checks.lab.beside_tcp", *rates]
            subprocess.run([*command, "--congestion", congestion, "--case", str(case)], check=True)


def _print_row(case: Case, mbit: float, seconds: float, congestion: str) -> None:
    with waiting_for("a job and a stream, for half a minute"):
        found = measure(case, mbit=mbit, seconds=seconds, congestion=congestion)
    figures = f"{found.job:.1f} | {found.stream:.1f} | {found.marked:,} | {found.repeats:,}"
    job, stream = (
        f"{found.window:.1f}, {1e3 * found.trip_s:.1f}",
        f"{found.stream_window:.1f}, {1e3 * found.stream_trip_s:.1f}",
    )
    print(f"| {congestion} | {case.name} | {figures} | {job} | {stream} |", flush=True)


if __name__ == "__main__":
    main()
