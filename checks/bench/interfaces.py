"""Packets a second of the same programs over veth pairs: `switchsum-bmv2` and real BMv2, started by the same line.

Both get their entries by P4Runtime.  A driver keeps some frames in flight: it sends into port 1 and counts what comes
out of all ports.  A program that only forwards the same frames shows what the kernel allows on this machine.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from checks.bench.bmv2 import build
from checks.bench.choice import Choice
from checks.bench.program_cases import ENTERS, FORWARD, FRAME_BYTES, PROGRAMS, Program
from checks.bench.public_programs import public_programs
from checks.bench.records import Record, Samples, beside, record
from switchsum.testing.bmv2 import Bmv2Program
from switchsum_switch.kernels.decorators import kernel
from switchsum_switch.messages.matches import Exact, Lpm, Match, Range, Ternary
from switchsum_switch.messages.p4runtime import encode_uint, parse_p4info, v1
from switchsum_switch.process.system import monotonic, poll, watch
from switchsum_switch.wires.datagrams import (
    MOST_TAKEN,
    NO_NAMES,
    DatagramReceiver,
    DatagramSender,
    ReceiveWords,
    receive_rows,
    send_datagrams,
    take_together,
)
from switchsum_switch.wires.messages import Addresses, Indices, SendWords, grow_buffers

TAKES: Final = ("runs", "public")
SWITCHES: Final = {
    "embedded": (sys.executable, "-c", "from switchsum_switch.__main__ import main; main()"),
    "bmv2": ("simple_switch_grpc",),
}
IN_FLIGHT: Final = {"embedded": 512, "bmv2": 64}
"""Frames that each switch has at once, as is best for it: BMv2 is slower with more."""
QUEUE_FRAMES: Final = 4096
BATCH: Final = 64
NAP_NS: Final = 200_000
"""Frames are taken in batches: driver and switch share the cores, and the switch is what is measured."""
LOST_S: Final = 0.1
"""Frames that have not come out for so long are lost."""
SECONDS: Final = 1.0
UPDATES: Final = 500
"""Entries of one write."""
MOST_LOST: Final = 0.01
TRIES: Final = 4
"""Measurements of which one has few losses: on a busy machine a switch may not run for longer than `LOST_S`."""


class Writes(Protocol):
    """Takes updates, as `Bmv2Program` does."""

    def write(self, updates: Sequence[Any]) -> None:
        """Write updates."""

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group."""


class Controlled:
    """A switch whose entries are written by P4Runtime, many at once."""

    def __init__(self, switch: Writes, p4info: str) -> None:
        info = parse_p4info(p4info)
        self._switch = switch
        self._tables = {table.preamble.name: table for table in info.tables}
        self._actions = {action.preamble.name: action for action in info.actions}
        self._updates: list[Any] = []

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> None:
        """Add an entry."""
        entry = self._entry(table, match, priority)
        self._call(entry.action.action, action, params)
        self._add(table_entry=entry)

    def insert_group(
        self, table: str, match: tuple[Match, ...], members: Sequence[tuple[str, tuple[int, ...]]]
    ) -> None:
        """Add an entry whose action a selector chooses among members."""
        entry = self._entry(table, match, 0)
        for action, params in members:
            member = entry.action.action_profile_action_set.action_profile_actions.add(weight=1)
            self._call(member.action, action, params)
        self._add(table_entry=entry)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group."""
        self._switch.set_group(group, replicas)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Raise NotImplementedError: BMv2's P4Runtime server has no registers."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what has gathered."""
        if self._updates:
            self._switch.write(self._updates)
            self._updates = []

    def _add(self, **entity: Any) -> None:
        self._updates.append(v1.Update(type="INSERT", entity=v1.Entity(**entity)))
        if len(self._updates) == UPDATES:
            self.flush()

    def _entry(self, table: str, match: tuple[Match, ...], priority: int) -> Any:
        found = self._tables[table]
        entry = v1.TableEntry(table_id=found.preamble.id, priority=priority)
        for key, one in zip(found.match_fields, match, strict=True):
            match one:
                case Exact(value):
                    entry.match.add(field_id=key.id).exact.value = encode_uint(value)
                case Lpm(value, length) if length:
                    field = entry.match.add(field_id=key.id)
                    field.lpm.value, field.lpm.prefix_len = encode_uint(value), length
                case Ternary(value, mask) if mask:
                    field = entry.match.add(field_id=key.id)
                    field.ternary.value, field.ternary.mask = encode_uint(value), encode_uint(mask)
                case Range(low, high):
                    field = entry.match.add(field_id=key.id)
                    field.range.low, field.range.high = encode_uint(low), encode_uint(high)
        return entry

    def _call(self, message: Any, action: str, params: tuple[int, ...]) -> None:
        found = self._actions[action]
        message.action_id = found.preamble.id
        for param, value in zip(found.params, params, strict=True):
            message.params.add(param_id=param.id, value=encode_uint(value))


class Driver:
    """Keeps frames in flight through a switch."""

    def __init__(
        self,
        links: Sequence[socket.socket],
        frames: Sequence[bytes],
        in_flight: int,
        *,
        together: bool = False,
        nap_ns: int = NAP_NS,
    ) -> None:
        """Drive `frames` of one length through the first of the links; they come back through all of them.

        `together`: send and take super-datagrams, through UDP sockets whose kernel knows them.  `nap_ns`: how long to
        wait for more frames once some have come.
        """
        for link in links:
            grow_buffers(link)
            if together:
                take_together(link)
        descriptors = np.array([link.fileno() for link in links], np.int64)
        watched = watch(list(descriptors))
        rows = np.frombuffer(b"".join(frames), np.uint8).reshape(len(frames), -1)
        addresses = rows.ctypes.data + np.arange(len(frames), dtype=np.int64) * rows.shape[1]
        self._keep = rows, watched
        self.came = 0
        """Frames that came out in all measurements."""
        self._arguments = (
            *(descriptors, watched.ctypes.data, DatagramSender(together=together).words, addresses),
            *(np.full(len(frames), rows.shape[1], np.int32), DatagramReceiver(2 * rows.shape[1]).words, in_flight),
            nap_ns,
        )

    def measure(self) -> float:
        """Return frames a second that came out; raises RuntimeError if too many were lost, each time anew."""
        for _ in range(TRIES):
            came, lost, took_ns = _drive(*self._arguments, SECONDS)
            self.came += came
            if lost <= MOST_LOST * came:
                return float(came / took_ns * 1e9)
        raise RuntimeError(f"{lost} frames were lost, {came} came through")


@kernel
def _drive(
    descriptors: npt.NDArray[np.int64],
    watched: int,
    sending: SendWords,
    addresses: Addresses,
    lengths: Indices,
    receiving: ReceiveWords,
    in_flight: int,
    nap_ns: int,
    seconds: float,
) -> tuple[int, int, int]:
    """Send and receive for so many seconds; return how many frames came and were lost, and the nanoseconds it took."""
    rows, sizes = np.zeros(MOST_TAKEN, np.int32), np.zeros(MOST_TAKEN, np.int32)
    sources = np.zeros(MOST_TAKEN, np.int64)
    following, under_way, came, lost = 0, 0, 0, 0
    started = last = monotonic()
    now = started
    while now - started < seconds:
        while under_way < in_flight:
            count = min(in_flight - under_way, BATCH, len(addresses) - following)
            part = slice(following, following + count)
            sent = send_datagrams(descriptors[ENTERS - 1], sending, addresses[part], lengths[part], NO_NAMES)
            under_way += sent
            following = (following + sent) % len(addresses)
            if sent < count:
                break
        moved = 0
        for descriptor in descriptors:
            moved += receive_rows(descriptor, receiving, rows, sizes, sources)
        now = monotonic()
        if moved > 0:
            under_way = max(0, under_way - moved)
            came += moved
            last = now
        else:
            if now - last > LOST_S:
                lost += under_way
                under_way, last = 0, now
            poll(watched, len(descriptors), 1_000_000)
            if nap_ns:
                poll(0, 0, nap_ns)
    took_ns = int((now - started) * 1e9)
    # What is still under way must not come into the next measurement.
    while monotonic() - last < LOST_S:
        for descriptor in descriptors:
            if receive_rows(descriptor, receiving, rows, sizes, sources) > 0:
                last = monotonic()
    return came, lost, took_ns


def rate(program: Program, switch: str, runs: int) -> Samples:
    """Return frames a second of a switch."""
    with Bmv2Program(program.text, program.p4info, command=SWITCHES[switch]) as running:
        if switch == "bmv2":
            running.lengthen_queues(QUEUE_FRAMES)
        target = Controlled(running, program.p4info)
        program.fill(target)
        target.flush()
        driver = Driver(running.sockets, program.frames(random.Random(3)), IN_FLIGHT[switch])
        driver.measure()
        return Samples.of(driver.measure, runs)


def run(choice: Choice) -> list[Record]:
    """Measure every program on both switches; nothing without root, and BMv2 only where it is on PATH."""
    if os.geteuid() != 0:
        return []
    with_bmv2 = shutil.which("simple_switch_grpc") is not None
    programs = [program for program in PROGRAMS if not program.has_registers]
    records = []
    for program in (FORWARD, *programs, *public_programs(choice.public)):
        conditions = f"{program.what}, frames of {FRAME_BYTES} bytes, veth pairs, {choice.runs} runs"
        conditions += f"; {build()}" if with_bmv2 else ""
        ours = rate(program, "embedded", choice.runs)
        # The kernel sends UDP frames of equal length as one, others one by one: the same frames are forwarded.
        allowed = ours if program is FORWARD else rate(replace(FORWARD, frames=program.frames), "embedded", choice.runs)
        made = record(f"interfaces.{program.name}", ours, "packets/s", conditions)
        made.more["of forwarding alone"] = ours.median / allowed.median
        if with_bmv2:
            bmv2 = rate(program, "bmv2", choice.runs)
            made.more["forwarding alone / bmv2"] = allowed.median / bmv2.median
            made = beside(made, "bmv2", bmv2)
        records.append(made)
    return records
