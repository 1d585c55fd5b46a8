"""Frames a second between UDP sockets on the loopback, without root: a router, forwarding alone, and nothing at all.

    driver ---- 1 switch 1 to 4 ---- driver          each line is a pair of UDP sockets

github.com/BTreeSet/up4 publishes 856,000 frames a second of the same case on four cores of another machine: 1,000
routes, frames of 1,460 bytes.  What the kernel allows on this machine says a forwarder that does nothing with the
datagrams: it takes them from one socket and sends them through another, by the same system calls as the switch.
Driver and switch share the cores, and the driver does not nap: its frames in flight are few.  Beside each rate is the
processor time that either needs for a frame.  It tells more than the rate where other work takes the cores.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from checks.bench.choice import Choice
from checks.bench.interfaces import Driver
from checks.bench.program_cases import ENTERS, FORWARD, PORTS, PROGRAMS, Program
from checks.bench.records import Record, Samples, record
from switchsum_switch import Switch
from switchsum_switch.daemon.daemon import Config, SwitchProcess
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.messages.matches import Match
from switchsum_switch.process.system import poll, watch
from switchsum_switch.state.tables import Entry
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    NO_NAMES,
    DatagramReceiver,
    DatagramSender,
    ReceiveWords,
    knows_segments,
    receive_rows,
    send_datagrams,
    take_together,
)
from switchsum_switch.wires.messages import SendWords, grow_buffers

TAKES: Final = ("runs",)
ROUTER: Final = PROGRAMS[0]
FRAME_BYTES: Final = 1_460
IN_FLIGHT: Final = 256
NOTHING: Final = "nothing"
READY: Final = "ready"
ROW_BYTES: Final = 2_048
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class Filled:
    """A switch that takes a program's entries."""

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry."""
        entry = Entry(match=match, priority=priority, action=action, params=params)
        self._switch.pipeline.tables[table].insert(entry)

    def insert_group(
        self, table: str, match: tuple[Match, ...], members: Sequence[tuple[str, tuple[int, ...]]]
    ) -> None:
        """Raise NotImplementedError, as the two below: the programs here have tables with actions alone."""
        raise NotImplementedError

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError

    def write_register(self, name: str, index: int, value: int) -> None:
        """Raise NotImplementedError."""
        raise NotImplementedError


def serve(name: str, names: Sequence[str]) -> None:
    """Run a program with UDP peers as its ports, or forward datagrams, until the process is ended."""
    if name == NOTHING:
        _serve_nothing(names)
        return
    program = next(one for one in (FORWARD, *PROGRAMS) if one.name == name)
    switch = Switch.from_file(program.folder / f"{name}.json", program.folder / f"{name}.p4info.txtpb")
    program.fill(Filled(switch))
    with tempfile.TemporaryDirectory() as folder:
        config = Config(listen=f"unix:{folder}/p4runtime", switch=switch, interfaces=dict(enumerate(names, start=1)))
        with SwitchProcess(config) as process:
            print(READY, flush=True)
            process.run()


def _serve_nothing(names: Sequence[str]) -> None:
    links = []
    for name in names:
        own, other = (end.rsplit(":", 1) for end in name.removeprefix("udp:").split("/"))
        links.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        links[-1].bind((own[0], int(own[1])))
        links[-1].connect((other[0], int(other[1])))
        grow_buffers(links[-1])
    take_together(links[ENTERS - 1])
    watched = watch([links[ENTERS - 1].fileno()])
    receiver, sender = DatagramReceiver(ROW_BYTES), DatagramSender(together=knows_segments(links[ENTERS]))
    arguments = links[ENTERS - 1].fileno(), links[ENTERS].fileno(), watched.ctypes.data, receiver.words, sender.words
    _forward(*arguments, 0.0)
    print(READY, flush=True)
    _forward(*arguments, float("inf"))


@kernel
def _forward(
    arrives: int, leaves: int, watched: int, receiving: ReceiveWords, sending: SendWords, seconds: float
) -> int:
    """Send what comes through one socket through another one; return how much it was."""
    rows, sizes = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
    sources, addresses = np.zeros(MOST_TAKEN, np.int64), np.zeros(MOST_TAKEN, np.int64)
    forwarded = 0
    while seconds > 0:
        count = receive_rows(arrives, receiving, rows, sizes, sources)
        if count <= 0:
            poll(watched, 1, 1_000_000)
            continue
        for number in range(count):
            addresses[number] = receiving.first + rows[number] * receiving.stride
        send_datagrams(leaves, sending, addresses[:count], sizes[:count], NO_NAMES)
        forwarded += count
    return forwarded


@contextmanager
def running(name: str) -> Iterator[tuple[list[socket.socket], int]]:
    """Run a switch with a program, or the forwarder; yield the other ends of its ports, and its process id."""
    with ExitStack() as opened:
        ends = [opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2 * PORTS)]
        for end in ends:
            end.bind(("127.0.0.1", 0))
        ours, theirs = ends[:PORTS], [end.getsockname() for end in ends[PORTS:]]
        names = [
            f"udp:127.0.0.1:{there[1]}/127.0.0.1:{here.getsockname()[1]}"
            for here, there in zip(ours, theirs, strict=True)
        ]
        for here, there in zip(ours, theirs, strict=True):
            here.connect(there)
        for end in ends[PORTS:]:
            end.close()  # their addresses are the switch's from now on
        code = f"from checks.bench.loopback import serve; serve({name!r}, {names!r})"
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            while (line := process.stdout.readline().strip()) != READY:
                if not line and process.poll() is not None:
                    raise RuntimeError(f"the process with {name} has ended")
            yield ours, process.pid
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def processor_s(pid: int) -> float:
    """Return how much processor time a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * _TICK_S


def rates(name: str, frames: Callable[[random.Random], list[bytes]], runs: int) -> tuple[Samples, float, float]:
    """Return frames a second, and the processor time in microseconds that a frame takes in switch and driver."""
    with running(name) as (links, pid):
        sent = [one.ljust(FRAME_BYTES, b"\0") for one in frames(random.Random(3))]
        driver = Driver(links, sent, IN_FLIGHT, together=knows_segments(links[ENTERS - 1]), nap_ns=0)
        driver.measure()
        before, own, came = processor_s(pid), time.process_time(), driver.came
        samples = Samples.of(driver.measure, runs)
        counted = driver.came - came
        return samples, 1e6 * (processor_s(pid) - before) / counted, 1e6 * (time.process_time() - own) / counted


def run(choice: Choice) -> list[Record]:
    """Measure the three."""
    cases: tuple[tuple[str, Program], ...] = (
        (NOTHING, replace(FORWARD, what="a forwarder that does nothing")),
        (FORWARD.name, replace(FORWARD, what="a program that only forwards")),
        (ROUTER.name, ROUTER),
    )
    records, allowed = list[Record](), 0.0
    for name, program in cases:
        samples, frame_us, driver_us = rates(name, ROUTER.frames, choice.runs)
        conditions = f"{program.what}, frames of {FRAME_BYTES:,} bytes, UDP on the loopback, {choice.runs} runs"
        made = record(f"loopback.{name}", samples, "frames/s", conditions)
        made.more["Gbit/s"] = samples.median * FRAME_BYTES * 8 / 1e9
        made.more["processor time, us a frame"] = frame_us
        made.more["driver, us a frame"] = driver_us
        allowed = allowed or samples.median
        made.more["of doing nothing"] = samples.median / allowed
        records.append(made)
    return records
