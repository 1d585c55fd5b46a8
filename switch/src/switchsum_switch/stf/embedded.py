"""The embedded switch as the target of STF tests: in memory, with a clock of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import EntryMissing, StateError
from ..execution.pipeline import EngineName, Pipeline
from ..execution.trace import Step
from ..messages.matches import Exact, Match
from ..program.reader import read_program
from ..program.v1model import QUEUE_SHIFT
from ..state.meters import MeterRates
from ..state.profiles import SetAction
from ..state.tables import Entry, ProfileMember
from .language import Test
from .names import Names
from .run import Left, Outcome, run

STEP_US: Final = 1_000
"""Time between two packets."""
WAIT_US: Final = 1_000_000
PORT_MASK: Final = (1 << QUEUE_SHIFT) - 1


class Embedded:
    """Our switch."""

    def __init__(self, device_config: str | bytes, engine: EngineName = "native") -> None:
        self.pipeline = Pipeline.load(device_config, engine=engine)
        self._now_us = 0
        self._left: list[Left] = []

    def insert(
        self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]
    ) -> Entry:
        """Add an entry; in a table with an action profile, with a member or group of its own."""
        found = self.pipeline.tables[table]
        if found.profile is None:
            entry = Entry(match=match, priority=priority, action=action, params=params)
            found.insert(entry)
            return entry
        profile = self.pipeline.profiles[found.profile.name]
        if profile.has_groups:
            return self.insert_group(table, match, [(action, params)], priority=priority)
        member = ProfileMember(1 + max(profile.members(), default=0))
        profile.add_member(member.number, action, params)
        entry = Entry(match=match, priority=priority, via=member)
        try:
            found.insert(entry)
        except StateError:
            profile.delete_member(member.number)
            raise
        return entry

    def insert_group(
        self,
        table: str,
        match: tuple[Match, ...],
        members: Sequence[tuple[str, tuple[int, ...]]],
        *,
        priority: int = 0,
    ) -> Entry:
        """Add an entry of a table with a selector."""
        found = self.pipeline.tables[table]
        assert found.profile is not None
        profile = self.pipeline.profiles[found.profile.name]
        group = profile.add_set([SetAction(action, params, weight=1) for action, params in members])
        entry = Entry(match=match, priority=priority, via=group)
        try:
            found.insert(entry)
        except StateError:
            profile.drop_set(group)
            raise
        return entry

    def set_default(self, table: str, action: str, params: tuple[int, ...]) -> None:
        """Set a table's default action."""
        self.pipeline.tables[table].set_default(action, params)

    def clear(self, table: str) -> None:
        """Remove all entries of a table."""
        for entry in self.pipeline.tables[table].entries():
            self.pipeline.tables[table].delete(entry.match, entry.priority)

    def entry_counter(self, table: str, entry: Entry) -> tuple[int, int]:
        """Return packets and bytes that an entry has counted."""
        return self.pipeline.tables[table].direct_counter(entry)

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return packets and bytes of a cell."""
        return self.pipeline.counters[name].read(index)

    def write_counter(self, name: str, index: int, packets: int, count_bytes: int) -> None:
        """Set a cell."""
        self.pipeline.counters[name].write(index, packets, count_bytes)

    def read_register(self, name: str, index: int) -> int:
        """Return a cell's value."""
        return self.pipeline.registers[name].read(index)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""
        self.pipeline.registers[name].write(index, value)

    def set_meter(self, name: str, index: int, rates: Sequence[tuple[float, int]]) -> None:
        """Set the rates of a cell."""
        (committed, committed_burst), (peak, peak_burst) = rates
        self.pipeline.meters[name].configure(
            index,
            MeterRates(
                committed=round(committed * 1e6),
                committed_burst=committed_burst,
                peak=round(peak * 1e6),
                peak_burst=peak_burst,
            ),
        )

    def add_member(self, value_set: str, value: int) -> None:
        """Add a member to a parser value set; BMv2 compares all bits of it."""
        found = self.pipeline.value_sets[value_set]
        widths = [key.width for key in found.tables[0].spec.keys] if found.tables else []
        member = []
        for width in reversed(widths):
            member.append(Exact(value & ((1 << width) - 1)))
            value >>= width
        found.set([*found.members, tuple(reversed(member))])

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Set a multicast group."""
        self.pipeline.multicast.set(group, replicas)

    def set_session(self, session: int, replicas: Sequence[tuple[int, int]] | None) -> None:
        """Set or remove a clone session."""
        if replicas is not None:
            self.pipeline.clones.set(session, replicas)
            return
        try:
            self.pipeline.clones.delete(session)
        except EntryMissing:
            pass

    def send(self, port: int, frame: bytes, line: int = 0) -> None:
        """Run a frame."""
        self._now_us += STEP_US
        self._left += [Left(out & PORT_MASK, made, line) for out, made in self._process(port, frame, line)]

    def _process(self, port: int, frame: bytes, line: int) -> list[tuple[int, bytes]]:
        return self.pipeline.process(port, frame, self._now_us)

    def set_clock(self, now_us: int) -> None:
        """Set the time at which the last packet came."""
        self._now_us = now_us

    def wait(self) -> None:
        """Let a second pass."""
        self._now_us += WAIT_US

    def collect(self) -> list[Left]:
        """Return the frames that have left since the last call."""
        left, self._left = self._left, []
        return left


class Traced(Embedded):
    """Our switch, by the interpreter, with a trace of what it does to each packet."""

    def __init__(self, device_config: str | bytes) -> None:
        super().__init__(device_config, "interpreter")
        self.traces: dict[int, Step] = {}
        """Traces by line of the packet."""

    def _process(self, port: int, frame: bytes, line: int) -> list[tuple[int, bytes]]:
        sent, self.traces[line] = self.pipeline.trace(port, frame, self._now_us)
        return sent


def run_embedded(device_config: str | bytes, test: Test, engine: EngineName = "native") -> Outcome:
    """Run a test on our switch; raises ProgramError if it does not load the program."""
    return run(test, Names(read_program(device_config)), Embedded(device_config, engine))


def traces_of(device_config: str | bytes, test: Test) -> dict[int, Step]:
    """Run a test once more, and return what was done to each packet, by its line."""
    switch = Traced(device_config)
    run(test, Names(read_program(device_config)), switch)
    return switch.traces
