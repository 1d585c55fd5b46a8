"""Runs an STF test on a switch: entries and packets go in, in the order of the file; at the end frames are compared.

The switch is whatever has the methods of `Target`: ours in memory (`Embedded`), or real BMv2.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..messages.matches import Match
from .language import Add, CheckCounter, Direct, Expect, NoPacket, RemoveAll, Send, SetDefault, Test, Wait
from .names import Names, NoSuchName

_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Left:
    """A frame that left the switch."""

    port: int
    frame: bytes
    line: int
    """Line of the packet that it comes of, or of the last one before it where the switch cannot tell."""


class Target(Protocol):
    """A switch that has loaded the program.  Names are whole; what it cannot do raises an exception."""

    def insert(self, table: str, match: tuple[Match, ...], priority: int, action: str, params: tuple[int, ...]) -> Any:
        """Add an entry and return what names it later; the largest priority wins, and is at least 1, or 0 for none."""

    def insert_group(
        self,
        table: str,
        match: tuple[Match, ...],
        members: Sequence[tuple[str, tuple[int, ...]]],
        *,
        priority: int = 0,
    ) -> Any:
        """Add an entry of a table with a selector, which chooses among actions; return what names the entry later."""

    def set_default(self, table: str, action: str, params: tuple[int, ...]) -> None:
        """Set a table's default action."""

    def clear(self, table: str) -> None:
        """Remove all entries of a table."""

    def entry_counter(self, table: str, entry: Any) -> tuple[int, int]:
        """Return packets and bytes that an entry has counted."""

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return packets and bytes of a cell."""

    def write_counter(self, name: str, index: int, packets: int, count_bytes: int) -> None:
        """Set a cell."""

    def read_register(self, name: str, index: int) -> int:
        """Return a cell's value."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell's value."""

    def set_meter(self, name: str, index: int, rates: Sequence[tuple[float, int]]) -> None:
        """Set the (units per microsecond, burst) of a cell, the committed ones first."""

    def add_member(self, value_set: str, value: int) -> None:
        """Add a member to a parser value set: the bits of its fields side by side."""

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group send to (port, instance) pairs."""

    def set_session(self, session: int, replicas: Sequence[tuple[int, int]] | None) -> None:
        """Make a clone session send to (port, instance) pairs, or to nothing with None."""

    def send(self, port: int, frame: bytes, line: int) -> None:
        """Let a frame arrive."""

    def wait(self) -> None:
        """Let a second pass."""

    def collect(self) -> list[Left]:
        """Return the frames that have left since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as the test says."""

    line: int
    text: str
    sent_line: int | None = None
    """Line of the packet that shows it, if one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a test."""

    name: str
    problems: tuple[Problem, ...]
    sent: int
    """Packets that went in."""
    left: int
    """Frames that came out at ports which the test names."""
    lines: tuple[str, ...]
    """Values that read commands have read."""

    @property
    def passed(self) -> bool:
        """Return whether all is as the test says."""
        return not self.problems


def run(test: Test, names: Names, target: Target) -> Outcome:
    """Run a test on a switch that has just loaded its program."""
    return _Runner(test, names, target).run()


class _Runner:
    """One run of a test."""

    def __init__(self, test: Test, names: Names, target: Target) -> None:
        self._test, self._names, self._target = test, names, target
        self._problems: list[Problem] = []
        self._lines: list[str] = []
        self._labels: dict[str, tuple[str, Any]] = {}
        self._groups: dict[int, list[int]] = {}
        self._nodes: list[tuple[int, list[int]]] = []
        self._mirrored: dict[int, dict[str, int]] = {}
        self._expected: dict[int, list[Expect]] = defaultdict(list)
        self._left: list[Left] = []
        self._last_line = 0

    def run(self) -> Outcome:
        """Run all statements, then compare."""
        for statement in self._test.statements:
            try:
                _DO[type(statement)](self, statement)
            except Exception as error:  # whatever a switch refuses fails the test at this line
                self._fail(statement.line, f"{type(error).__name__}: {error}")
        self._gather()
        self._compare()
        return Outcome(
            name=self._test.name,
            problems=tuple(sorted(self._problems, key=lambda problem: problem.line)),
            sent=sum(isinstance(one, Send) for one in self._test.statements),
            left=sum(frame.port in self._test.ports for frame in self._left),
            lines=tuple(self._lines),
        )

    def _fail(self, line: int, text: str, sent_line: int | None = None) -> None:
        self._problems.append(Problem(line=line, text=text, sent_line=sent_line))

    def _gather(self) -> None:
        self._left += self._target.collect()

    def _add(self, statement: Add) -> None:
        table = self._names.table(statement.table)
        match = self._names.matches(table, statement.keys)
        action, params = self._names.call(table, statement.call)
        priority = 1 + (statement.priority or 0) if self._names.prioritised(table) else 0
        entry = self._target.insert(table.name, match, priority, action, params)
        if statement.label is not None:
            self._labels[statement.label.lstrip("$")] = table.name, entry

    def _set_default(self, statement: SetDefault) -> None:
        table = self._names.table(statement.table)
        self._target.set_default(table.name, *self._names.call(table, statement.call))

    def _remove_all(self, statement: RemoveAll) -> None:
        for table in self._names.tables():
            if table.keys and not table.const_entries:
                self._target.clear(table.name)

    def _send(self, statement: Send) -> None:
        self._last_line = statement.line
        self._target.send(statement.port, statement.frame, statement.line)

    def _expect(self, statement: Expect) -> None:
        self._expected[statement.port].append(statement)

    def _no_packet(self, statement: NoPacket) -> None:
        self._gather()
        expected = sum(map(len, self._expected.values()))
        left = [frame for frame in self._left if frame.port in self._test.ports]
        for frame in left[expected:]:
            self._fail(statement.line, f"a frame left port {frame.port}: {frame.frame.hex()}", frame.line)

    def _wait(self, statement: Wait) -> None:
        self._target.wait()

    def _check_counter(self, statement: CheckCounter) -> None:
        self._gather()
        if isinstance(statement.index, str):
            label = statement.index.lstrip("$")
            if label not in self._labels:
                raise NoSuchName(f"no entry has the label {label}")
            counts = self._target.entry_counter(*self._labels[label])
        else:
            name = self._names.array("counter", statement.counter, self._names.counters)
            counts = self._target.read_counter(name, statement.index)
        found = counts[statement.unit == "bytes"]
        if not _COMPARE[statement.comparison](found, statement.number):
            wanted = f"{statement.comparison} {statement.number}"
            self._fail(statement.line, f"{statement.counter} has {found} {statement.unit}, not {wanted}")

    def _direct(self, statement: Direct) -> None:
        _DIRECT[statement.command](self, *statement.words)

    def _mirroring_add(self, session: str, port: str) -> None:
        self._mirrored.setdefault(int(session), {}).update(port=int(port))
        self._replicate()

    def _mirroring_add_mc(self, session: str, group: str) -> None:
        self._mirrored.setdefault(int(session), {}).update(group=int(group))
        self._replicate()

    def _mirroring_delete(self, session: str) -> None:
        if self._mirrored.pop(int(session), None) is None:
            raise NoSuchName(f"no mirroring session {session}")
        self._target.set_session(int(session), None)

    def _mirroring_get(self, session: str) -> None:
        self._lines.append(f"mirroring session {session}: {self._mirrored[int(session)]}")

    def _mc_mgrp_create(self, group: str) -> None:
        self._groups[int(group)] = []
        self._replicate()

    def _mc_node_create(self, instance: str, *ports: str) -> None:
        self._nodes.append((int(instance), [int(port) for port in ports]))

    def _mc_node_update(self, handle: str, *ports: str) -> None:
        instance, _ = self._nodes[int(handle)]
        self._nodes[int(handle)] = instance, [int(port) for port in ports]
        self._replicate()

    def _mc_node_associate(self, group: str, handle: str) -> None:
        if int(handle) >= len(self._nodes):
            raise NoSuchName(f"no replication node {handle}; there are {len(self._nodes)}")
        self._groups[int(group)].append(int(handle))
        self._replicate()

    def _replicate(self) -> None:
        """Set groups and sessions anew: a session may send to a group that has changed."""
        replicas = {
            group: [(port, self._nodes[node][0]) for node in nodes for port in sorted(self._nodes[node][1])]
            for group, nodes in self._groups.items()
        }
        for group, pairs in replicas.items():
            self._target.set_group(group, pairs)
        for session, to in self._mirrored.items():
            pairs = [(to["port"], 0)] if "port" in to else []
            self._target.set_session(session, pairs + replicas.get(to.get("group", 0), []))

    def _counter_read(self, name: str, index: str) -> None:
        self._gather()
        whole = self._names.array("counter", name, self._names.counters)
        packets, count = self._target.read_counter(whole, int(index))
        self._lines.append(f"{whole}[{index}]: {packets} packets, {count} bytes")

    def _counter_write(self, name: str, index: str, packets: str, count: str) -> None:
        whole = self._names.array("counter", name, self._names.counters)
        self._target.write_counter(whole, int(index), int(packets), int(count))

    def _register_read(self, name: str, index: str) -> None:
        self._gather()
        whole = self._names.array("register", name, self._names.registers)
        self._lines.append(f"{whole}[{index}]: {self._target.read_register(whole, int(index))}")

    def _register_write(self, name: str, index: str, value: str) -> None:
        whole = self._names.array("register", name, self._names.registers)
        self._target.write_register(whole, int(index), int(value, 0))

    def _register_reset(self, name: str) -> None:
        whole = self._names.array("register", name, self._names.registers)
        for index in range(self._names.registers[whole].size):
            self._target.write_register(whole, index, 0)

    def _meter_get_rates(self, name: str, index: str) -> None:
        self._names.array("meter", name, self._names.meters)

    def _meter_set_rates(self, name: str, index: str, *rates: str) -> None:
        whole = self._names.array("meter", name, self._names.meters)
        pairs = [(float(rate), int(burst)) for rate, _, burst in (text.partition(":") for text in rates)]
        self._target.set_meter(whole, int(index), pairs)

    def _meter_array_set_rates(self, name: str, *rates: str) -> None:
        whole = self._names.array("meter", name, self._names.meters)
        for index in range(self._names.meters[whole].size):
            self._meter_set_rates(whole, str(index), *rates)

    def _parse_vset_add(self, name: str, value: str) -> None:
        self._target.add_member(self._names.array("value set", name, self._names.value_sets), int(value, 0))

    def _compare(self) -> None:
        """Compare, port by port, the frames that were expected with those that left."""
        for port in sorted(self._test.ports):
            left = [frame for frame in self._left if frame.port == port]
            expected = self._expected[port]
            for wanted, got in zip(expected, left, strict=False):
                if (problem := _difference(wanted, got.frame)) is not None:
                    self._fail(wanted.line, f"port {port}: {problem}", got.line)
            for wanted in expected[len(left) :]:
                sent = [one.line for one in self._test.statements if isinstance(one, Send)]
                before = [line for line in sent if line < wanted.line] or sent
                text = f"no frame left port {port}; expected {wanted.digits or 'any'}"
                self._fail(wanted.line, text, before[-1] if before else None)
            for got in left[len(expected) :]:
                self._fail(got.line, f"port {port}: a frame that is not expected: {got.frame.hex()}", got.line)


def _difference(wanted: Expect, frame: bytes) -> str | None:
    """Return what is wrong with a frame; None if nothing is."""
    digits, got = wanted.digits, frame.hex()
    if digits is None:
        return None
    shown = f"\n  expected {digits}\n  got      {got}"
    if len(got) < len(digits) or (wanted.whole and len(got) > len(digits)):
        return f"a frame of {len(frame)} bytes, {len(digits) / 2:g} were expected{shown}"
    wrong = [at for at, (one, other) in enumerate(zip(digits, got, strict=False)) if one not in ("*", other)]
    if wrong:
        return f"byte {wrong[0] // 2} differs{shown}"
    return None


_DO: Final[dict[type, Callable[[_Runner, Any], None]]] = {
    Add: _Runner._add,
    SetDefault: _Runner._set_default,
    RemoveAll: _Runner._remove_all,
    Send: _Runner._send,
    Expect: _Runner._expect,
    NoPacket: _Runner._no_packet,
    Wait: _Runner._wait,
    CheckCounter: _Runner._check_counter,
    Direct: _Runner._direct,
}
_DIRECT: Final[dict[str, Callable[..., None]]] = {
    "mirroring_add": _Runner._mirroring_add,
    "mirroring_add_mc": _Runner._mirroring_add_mc,
    "mirroring_delete": _Runner._mirroring_delete,
    "mirroring_get": _Runner._mirroring_get,
    "mc_mgrp_create": _Runner._mc_mgrp_create,
    "mc_node_create": _Runner._mc_node_create,
    "mc_node_update": _Runner._mc_node_update,
    "mc_node_associate": _Runner._mc_node_associate,
    "counter_read": _Runner._counter_read,
    "counter_write": _Runner._counter_write,
    "register_read": _Runner._register_read,
    "register_write": _Runner._register_write,
    "register_reset": _Runner._register_reset,
    "meter_get_rates": _Runner._meter_get_rates,
    "meter_set_rates": _Runner._meter_set_rates,
    "meter_array_set_rates": _Runner._meter_array_set_rates,
    "parse_vset_add": _Runner._parse_vset_add,
}
