"""The switches that are compared, and what each of them did with a case."""

from __future__ import annotations

import functools
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy.typing as npt

from switchsum_switch.bmv2.simple_switch import SimpleSwitch
from switchsum_switch.errors import LocalError
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.state.snapshots import restore, save
from switchsum_switch.state.state import AS_BEFORE, MOST_BEFORE
from switchsum_switch.stf import Embedded, Left

from .case import Packet, Step, apply

LATE_S: Final = 3.0
"""Seconds after the last packet. A frame that BMv2 has not sent by then is lost."""
_BYTES: Final = (1 << 2048) // 255
"""256 bytes of 1."""
_THRIFT_BITS: Final = 63
"""Widest register that BMv2's Thrift interface can read."""
_MOST_CELLS: Final = 4096
_READ_CELLS: Final = 64
"""Cells of a counter that are read from BMv2, one call each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What no program can count on."""

    time_us: int = 0
    """Time of the first packet, in microseconds."""
    seed: int | None = None
    """Seed of the random numbers. None: the switch's own."""
    undefined: int = 0
    """Value of header fields that were never written."""
    waiting_us: int = 0
    """Microseconds that a frame has waited in every queue. 0: no frame waits."""
    later_us: int = 0
    """Microseconds from one timestamp of a frame to the next: it comes, is queued, leaves its queue."""


UNDEFINED: Final = (
    Chance(undefined=_BYTES * 0x5A),
    Chance(undefined=_BYTES * 0xA5),
    Chance(undefined=AS_BEFORE),
)
"""A packet that becomes something else with one of these reads fields that it has not: it is left out."""
FURTHER_UNDEFINED: Final = tuple(Chance(undefined=packets * AS_BEFORE) for packets in range(2, MOST_BEFORE + 1))
"""BMv2 takes a packet's memory from any packet that is gone: with as many cases as runs, sooner or later from each."""
TIMES: Final = (
    Chance(time_us=0x5A5A_5A5A, seed=0x9E37_79B9_7F4A_7C15, waiting_us=0x1234_5678, later_us=0x101),
    Chance(time_us=0x2595_A5A5, seed=0x5851_F42D_4C95_7F2D, waiting_us=0x2143_6587, later_us=0x2_0A0B),
)
"""A byte that is the same with both depends on neither the clock nor on random numbers, as a rule."""
FURTHER_TIMES: Final = tuple(
    Chance(
        time_us=0x0123_4567 * number,
        seed=0x9E37_79B9_7F4A_7C15 * number % (1 << 64),
        waiting_us=0x0012_3456 * number,
        later_us=0x135 * number,
    )
    for number in range(2, 32)
)
"""Further times of packets. If a program acts on one random number of a few, some of these times show it."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What came of a case on one switch."""

    ports: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    """The frames that left, by port in their order."""
    refused: dict[int, str] = field(default_factory=dict)
    """Steps that the switch refused, and why."""
    cells: dict[str, list[Any]] = field(default_factory=dict)
    """Registers and counters at the end, by name."""
    packets: list[list[tuple[int, bytes]]] = field(default_factory=list)
    """Frames that each packet has become. BMv2 does not tell which frames belong to which packet."""
    states: list[int] = field(default_factory=list)
    """Checksum of all registers and counters after each packet, if it was asked for."""
    beyond: set[int] = field(default_factory=set)
    """The packets, by number, for which an interpreter was given an index beyond the end of an array."""
    ended: str = ""
    """Why the switch has ended, if it has."""
    ended_at: int = 0
    """The step that was the last one before that was noticed."""

    @property
    def counts(self) -> list[int]:
        """Return how many frames each packet has become."""
        return [len(frames) for frames in self.packets]


class EmbeddedSide:
    """One of our engines; each case begins with the program's own state."""

    def __init__(self, device_config: bytes, engine: EngineName, chance: Chance = Chance()) -> None:
        """Load the program."""
        self.name = str(engine)
        self._chance = chance
        self._switch = Embedded(device_config, engine)
        self._fresh = save(self._switch.pipeline.state)

    @property
    def switch(self) -> Embedded:
        """Return the switch, with the state that the last case has left."""
        return self._switch

    def reset(self, other: Chance | None = None) -> None:
        """Go back to the state that the program begins with."""
        state = self._switch.pipeline.state
        restore(state, self._fresh)
        self._switch.collect()
        chance = other or self._chance
        self._switch.set_clock(chance.time_us)
        state.undefined, state.later_us = chance.undefined, chance.later_us
        if chance.seed is not None:
            state.random[0] = chance.seed
        if chance.waiting_us:
            state.queues.cells[:] = 0x15, chance.time_us - chance.waiting_us

    def run(self, steps: Sequence[Step], chance: Chance | None = None, *, states: bool = False) -> Seen:
        """Run a case, with another chance if one is given."""
        self.reset(chance)
        seen = Seen()
        for number, step in enumerate(steps):
            beyond = self._switch.pipeline.state.beyond
            try:
                apply(step, self._switch, number)
            except LocalError as error:
                seen.refused[number] = str(error)
            if self._switch.pipeline.state.beyond > beyond:
                seen.beyond.add(len(seen.packets))
            left = self._switch.collect()
            _note(seen, left)
            if isinstance(step, Packet):
                seen.packets.append([(frame.port, frame.frame) for frame in left])
                seen.states += [self._state()] * states
        pipeline = self._switch.pipeline
        for name, register in pipeline.registers.items():
            if register.width <= _THRIFT_BITS and register.size <= _MOST_CELLS:
                seen.cells[name] = [register.read(index) for index in range(register.size)]
        for name, counter in pipeline.counters.items():
            if counter.size <= _MOST_CELLS:
                seen.cells[name] = [counter.read(index) for index in range(counter.size)]
        return seen

    def _state(self) -> int:
        state = self._switch.pipeline.state
        arrays: list[npt.NDArray[Any]] = [
            *(one.memory for one in state.registers.values()),
            *(one.counts for one in state.counters.values()),
        ]
        return functools.reduce(lambda made, array: zlib.crc32(array.tobytes(), made), arrays, 0)


class Bmv2Side:
    """Real BMv2; each case begins with a new process."""

    name = "bmv2"

    def __init__(self, device_config: bytes, *, patience_s: float = 0.2) -> None:
        self._device_config = device_config
        self._patience_s = patience_s

    def run(self, steps: Sequence[Step], expected: Sequence[int], check: Callable[[], None] = lambda: None) -> Seen:
        """Run a case; `expected` is how many frames each packet became elsewhere, for which BMv2 is given time.

        `check` is called before each step, and may raise what ends the case.
        """
        seen, packets = Seen(), iter(expected)
        with SimpleSwitch(self._device_config) as switch:
            for number, step in enumerate(steps):
                if switch.has_ended():
                    break
                check()
                seen.ended_at = number
                try:
                    apply(step, switch, number)
                    if isinstance(step, Packet) and (count := next(packets, 0)):
                        switch.receive(count, self._patience_s)
                except LocalError as error:
                    if switch.has_ended():
                        break
                    seen.refused[number] = str(error)
                _note(seen, switch.take())
            try:
                # A busy machine lets BMv2 wait for a core: a frame is late long before it is lost.
                if (missing := sum(expected) - sum(map(len, seen.ports.values()))) > 0:
                    switch.receive(missing, LATE_S)
                _note(seen, switch.collect())
                self._read(switch, seen)
            except LocalError:
                pass
            if (code := switch.exit_code) is not None:
                seen.ended = f"simple_switch_grpc has ended with {code}"
        return seen

    def log(self, steps: Sequence[Step]) -> list[str]:
        """Return the log of BMv2 for a case; one line that says why if this BMv2 writes none."""
        with SimpleSwitch(self._device_config, log=True) as switch:
            for number, step in enumerate(steps):
                if not switch.has_ended():
                    apply(step, switch, number)
            if not switch.has_ended():
                switch.collect()
            lines = [line for line in switch.log() if "[T]" in line or "[D]" in line or "[trace]" in line]
        return lines or ["this BMv2 was built without logging (--disable-logging-macros): it writes no trace"]

    def _read(self, switch: SimpleSwitch, seen: Seen) -> None:
        for name, register in switch.names.registers.items():
            if register.width <= _THRIFT_BITS and register.size <= _MOST_CELLS:
                mask = (1 << register.width) - 1
                seen.cells[name] = [value & mask for value in switch.read_registers(name)]
        for name, counter in switch.names.counters.items():
            if not counter.direct:
                cells = range(min(counter.size, _READ_CELLS))
                seen.cells[name] = [switch.read_counter(name, index) for index in cells]


def _note(seen: Seen, left: Sequence[Left]) -> None:
    for frame in left:
        seen.ports[frame.port].append(frame.frame)


def difference(one: Seen, other: Seen, chances: Sequence[Seen] = ()) -> str:
    """Return how two switches differ, "" if they do not.

    `chances` are what the first one did with other chances: what differs among these is not compared.
    """
    if any(seen.counts != one.counts or _shape(seen) != _shape(one) for seen in chances):
        return ""
    if one.refused.keys() != other.refused.keys():
        number = min(one.refused.keys() ^ other.refused.keys())
        return f"step {number + 1} is refused by one: {one.refused.get(number) or other.refused.get(number)}"
    for port in sorted(one.ports.keys() | other.ports.keys()):
        ours, theirs = one.ports.get(port, []), other.ports.get(port, [])
        if len(ours) != len(theirs):
            return f"{len(ours)} and {len(theirs)} frames leave port {port}"
        for number, (mine, its) in enumerate(zip(ours, theirs, strict=True), start=1):
            at = _first_difference(mine, its, [seen.ports[port][number - 1] for seen in chances])
            if at is not None:
                return f"frame {number} of port {port} differs at byte {at}"
    for name in one.cells.keys() & other.cells.keys():
        for index, (mine, its) in enumerate(zip(one.cells[name], other.cells[name], strict=False)):
            if mine != its and all(seen.cells[name][index] == mine for seen in chances):
                return f"{name}[{index}] is {mine} and {its}"
    return ""


def _shape(seen: Seen) -> dict[int, list[int]]:
    return {port: [len(frame) for frame in frames] for port, frames in seen.ports.items() if frames}


def _first_difference(mine: bytes, its: bytes, chances: Sequence[bytes]) -> int | None:
    if len(mine) != len(its):
        return min(len(mine), len(its))
    for at, (one, other) in enumerate(zip(mine, its, strict=True)):
        if one != other and all(frame[at] == one for frame in chances):
            return at
    return None
