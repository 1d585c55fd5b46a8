"""Switches whose slot is looked at in the terms of slot.pml: the P4 program, and its definition in plain Python.

Lanes are how often each worker's contribution is in them, and to which round they belong, as frames of `relation` have
it: a lane for each worker and for each round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from switchsum_protocol.frame import NO_BLOCK, Flag, Header, Reason
from switchsum_protocol.slot_rules import SWITCH_ADDRESS, AdmittedMember, ReferenceSwitch
from switchsum_protocol.slot_rules import Cell as RuleCell
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry

LANES: Final = 128
"""Of 32 bits in a frame; states need ten."""
NUMBERS: Final = 32
"""The model's numbers wrap here."""
MOST: Final = 3
"""Workers that the model has room for."""
OPERATIONS: Final = 2
BLOCKS: Final = 2
ROUNDS: Final = OPERATIONS * (1 + BLOCKS)
"""At most, of one incarnation."""
NONE: Final = 7
"""No block."""
SLOT: Final = 5
JOB: Final = 7
GROUP: Final = 1
CPU_PORT: Final = 255
PACKET_OUT: Final = bytes(2)
ROUND_LANE: Final = MOST
"""Lane that says to which round the lanes belong; before it, one for each worker."""
BIG_LANE: Final = ROUND_LANE + 2 * ROUNDS


class State(NamedTuple):
    """What slot.pml says of a cell; an unused one is all zeros, as the rest of it means nothing."""

    number: int = 0
    seen: int = 0
    tag: int = 0
    next_block: int = 0
    next_exponent: int = 0
    has_payload: int = 0
    mismatch: int = 0
    added: tuple[int, int, int] = (0, 0, 0)
    lanes_of: int = 0
    overflow: int = 0
    """Is not in the model."""


class Switch(Protocol):
    """What is asked of a switch."""

    def admit(self, members: Iterable[AdmittedMember]) -> None:
        """Make these the only members."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take a frame."""

    def ask(self, request: Header) -> Header | None:
        """Take a request of the controller; return its answer."""

    def counts(self) -> tuple[int, ...]:
        """Return how often each reason was counted."""

    def save(self) -> Any:
        """Return the slot's two cells, to be given back to `load`."""

    def load(self, saved: Any) -> None:
        """Bring the slot's two cells into an earlier state; None: unused."""

    def cells(self) -> tuple[State, State]:
        """Return the slot's two cells."""


class Rules:
    """The definition as such a switch."""

    def __init__(self, kind: type[ReferenceSwitch] = ReferenceSwitch) -> None:
        self._switch = kind(lanes_per_frame=LANES)

    def admit(self, members: Iterable[AdmittedMember]) -> None:
        """Make these the only members."""
        self._switch.members.clear()
        for member in members:
            self._switch.admit(member)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take a frame."""
        return self._switch.process(port, frame)

    def ask(self, request: Header) -> Header | None:
        """Take a request of the controller."""
        return self._switch.answer_request(request)

    def counts(self) -> tuple[int, ...]:
        """Return how often each reason was counted."""
        return tuple(self._switch.events[reason] for reason in Reason)

    def save(self) -> dict[int, RuleCell]:
        """Return the slot's cells."""
        return {index: replace(cell, lanes=cell.lanes.copy()) for index, cell in self._switch.cells.items()}

    def load(self, saved: dict[int, RuleCell] | None) -> None:
        """Bring the slot's cells into an earlier state."""
        copies = {index: replace(cell, lanes=cell.lanes.copy()) for index, cell in (saved or {}).items()}
        self._switch.cells = copies

    def cells(self) -> tuple[State, State]:
        """Return the slot's two cells."""
        low, high = (self._state(SLOT << 1 | version) for version in (0, 1))
        return low, high

    def _state(self, index: int) -> State:
        cell = self._switch.cells.get(index)
        if cell is None:
            return State()
        _, _, exponent, block, digest = cell.tag
        return abstract(
            number=cell.number,
            seen=cell.seen,
            exponent=exponent,
            block=block,
            digest=digest,
            next_block=cell.next_block,
            next_exponent=cell.next_exponent,
            flags=cell.flags,
            lanes=cell.lanes.tobytes(),
        )


class Program:
    """The P4 program as such a switch."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        place = "SwitchIngress.dispatch.cells."
        names = [f"{place}tags", f"{place}seen_members", f"{place}outcomes", f"{place}slot.lanes.sums"]
        self._registers = [pipeline.registers[name] for name in names]
        cells = self._registers[0].size
        self._slices = []
        for register in self._registers:
            size = register.size // cells * register.stride
            self._slices.append((register.memory, SLOT * 2 * size, (SLOT * 2 + 2) * size))
        here = SWITCH_ADDRESS
        identity = (here.mac, here.ip, here.port, 0xFFFF)
        pipeline.tables["SwitchIngress.identity"].set_default("SwitchIngress.identify", identity)
        self._events = pipeline.counters["SwitchIngress.reply.events"]
        self._entries: list[tuple[str, Entry]] = []

    def admit(self, members: Iterable[AdmittedMember]) -> None:
        """Make these the only members."""
        for table, entry in self._entries:
            self._pipeline.tables[table].delete(entry.match)
        self._entries.clear()
        chosen = list(members)
        self._pipeline.multicast.set(GROUP, [(member.port, member.rank) for member in chosen])
        for member in chosen:
            source = member.address
            self._insert(
                "SwitchEgress.result_address",
                [member.job, member.rank],
                "SwitchEgress.address",
                [source.mac, source.ip, source.port, member.cookie],
            )
            self._insert(
                "SwitchIngress.validate.admission.admission",
                [member.job, member.tree, member.rank, member.epoch, source.ip, source.port, member.port],
                "SwitchIngress.validate.admission.admit",
                [member.bit, member.everybody, member.first_slot, member.slot_count, GROUP, member.cookie],
            )

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take a frame."""
        return self._pipeline.process(port, frame)

    def ask(self, request: Header) -> Header | None:
        """Take a request of the controller."""
        out = self._pipeline.process(CPU_PORT, PACKET_OUT + build_frame(SWITCH_ADDRESS, SWITCH_ADDRESS, request))
        answers = [parse_frame(frame[len(PACKET_OUT) :]) for port, frame in out if port == CPU_PORT]
        return answers[0].header if len(answers) == 1 and answers[0] else None

    def counts(self) -> tuple[int, ...]:
        """Return how often each reason was counted."""
        return tuple(self._events.read(reason)[0] for reason in Reason)

    def save(self) -> list[bytes]:
        """Return the slot's cells."""
        return [memory[start:end].tobytes() for memory, start, end in self._slices]

    def load(self, saved: list[bytes] | None) -> None:
        """Bring the slot's cells into an earlier state."""
        for place, (memory, start, end) in enumerate(self._slices):
            memory[start:end] = np.frombuffer(saved[place], np.uint8) if saved else 0

    def cells(self) -> tuple[State, State]:
        """Return the slot's two cells."""
        low, high = (self._state(SLOT << 1 | version) for version in (0, 1))
        return low, high

    def _state(self, index: int) -> State:
        tags, seen, outcomes, sums = self._registers
        tag, outcome = tags.read(index), outcomes.read(index)
        memory, start, end = self._slices[-1]
        half = (end - start) // 2
        begin = start + (index & 1) * half
        assert sums.memory is memory
        return abstract(
            number=tag >> 88,
            seen=seen.read(index),
            exponent=tag >> 64 & 0xFF,
            block=tag >> 32 & 0xFFFF_FFFF,
            digest=tag & 0xFFFF_FFFF,
            next_block=outcome >> 8 & 0xFFFF_FFFF,
            next_exponent=~outcome & 0xFF,
            flags=outcome >> 40,
            lanes=memory[begin : begin + half].tobytes(),
        )

    def _insert(self, table: str, match: list[int], action: str, params: list[int]) -> None:
        entry = Entry(match=tuple(map(Exact, match)), action=action, params=tuple(params))
        self._pipeline.tables[table].insert(entry)
        self._entries.append((table, entry))


def abstract(
    *,
    number: int,
    seen: int,
    exponent: int,
    block: int,
    digest: int,
    next_block: int,
    next_exponent: int,
    flags: int,
    lanes: bytes,
) -> State:
    """Return what slot.pml says of a cell, or of a frame that describes one."""
    if seen == 0:
        return State()
    added, of = (0, 0, 0), 0
    if flags & Flag.PAYLOAD and lanes:
        values = np.frombuffer(lanes, ">i4")
        first, second, third = (min(int(value), 2) for value in values[:MOST])
        added = first, second, third
        rounds = np.flatnonzero(values[ROUND_LANE:BIG_LANE])
        of = int(rounds[0]) + 1 if len(rounds) == 1 else 0
    return State(
        number=number % NUMBERS,
        seen=seen,
        tag=(digest * 32 + exponent * 8 + (NONE if block == NO_BLOCK else block)) & 0xFF,
        next_block=NONE if next_block == NO_BLOCK else next_block,
        next_exponent=next_exponent,
        has_payload=int(bool(flags & Flag.PAYLOAD)),
        mismatch=int(bool(flags & Flag.MISMATCH)),
        added=added,
        lanes_of=of,
        overflow=int(bool(flags & Flag.OVERFLOW)),
    )
