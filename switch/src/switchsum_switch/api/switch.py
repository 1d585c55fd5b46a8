"""A P4 switch in Python: load a v1model program, write its tables, give it frames, look at what it has done."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from ..errors import ProgramError
from ..execution.pipeline import EngineName, Pipeline
from ..execution.trace import Step
from ..names.named import Named
from ..names.named_profiles import NamedProfile
from ..names.named_sets import NamedValueSet
from ..names.named_tables import NamedTable, TableRules
from ..names.views import CounterView, DigestView, RegisterView
from ..program.p4c import compile_p4
from ..program.v1model import DROP_PORT, MAX_PASSES, MAX_QUEUES, PASSES, QUEUE_SHIFT
from ..queues.queue_views import QueueView
from ..queues.queues import PORTS, Queues
from ..queues.traffic_manager import TrafficManager
from ..state.clock import Clock
from ..state.meters import Meter
from ..state.snapshots import Snapshot, restore, save
from ..state.state import CloneSessions, Multicast

KEPT_TRACES: Final = 8
"""Traces that a switch with `traced=True` keeps."""
_PORT_MASK: Final = (1 << QUEUE_SHIFT) - 1


class Switch:
    """A switch that runs one program, in memory: frames go in and come out as bytes.

    Tables, registers and counters are found by their P4 names: `switch.tables["ingress.ipv4"]`, or `["ipv4"]` if no
    other table's name ends so.  The clock stands at 0 until the test lets time pass (`switch.clock.advance(seconds)`).

    Example:
        >>> switch = Switch.from_file("router.json", "router.p4info.txtpb")  # doctest: +SKIP
        >>> switch.tables["ipv4"].insert({"hdr.ipv4.dst": "10.0.0.0/8"}, "forward", port=3)  # doctest: +SKIP
        >>> switch.process(1, frame)  # doctest: +SKIP
        [(3, b'...')]

    """

    def __init__(
        self,
        program: str | bytes,
        p4info: str = "",
        *,
        engine: EngineName = "native",
        traced: bool = False,
        drop_port: int = DROP_PORT,
        priority_queues: int = 1,
        max_passes: int = PASSES,
    ) -> None:
        """Load a program.

        Args:
            program: The text of the JSON that p4c's BMv2 back end writes.
            p4info: The text of the P4Info; it adds optional keys, signed registers, and which actions are for entries
                or the default alone.  Without it every name comes from the JSON.
            engine: `"native"`: machine code; or `"interpreter"`, which loads at once and is slow.
            traced: Run each frame by the interpreter, and keep the last traces in `traces`.
            drop_port: The egress port that means drop, 0 to 511.
            priority_queues: Queues of each port; `standard_metadata.priority` chooses one.
            max_passes: How often ingress may run for one frame that is resubmitted or recirculated.

        Raises:
            ProgramError: The JSON is no program of BMv2, uses what this switch lacks, or differs from the P4Info.
            ValueError: There is no such engine, or a number is out of range.

        """
        if engine not in get_args(EngineName):
            raise ValueError(f"there is no engine {engine!r}: there are {' and '.join(get_args(EngineName))}")
        _check("drop_port", drop_port, 0, PORTS - 1)
        _check("priority_queues", priority_queues, 1, MAX_QUEUES)
        _check("max_passes", max_passes, 1, MAX_PASSES)
        self.program, self.p4info = program.encode() if isinstance(program, str) else program, p4info
        """What it has loaded: the JSON, and the text of the P4Info."""
        queues = Queues(priority_queues)
        self.traffic_manager = TrafficManager(queues)
        """The queues of all ports; `queue` is the way to set them."""
        self.pipeline = Pipeline.load(
            program,
            engine="interpreter" if traced else engine,
            drop_port=drop_port,
            queues=queues,
            passes=max_passes,
        )
        self.clock = Clock()
        """The time that timestamps, meters and queues see; it stands at 0 until `advance` or `run` is called."""
        self.clock.stop(at_s=0)
        self.traces: deque[Step] = deque(maxlen=KEPT_TRACES)
        """Traces of the last frames, if the switch is traced."""
        self._traced = traced
        said = _read_p4info(p4info, self.pipeline) if p4info else None
        rules = None if said is None else said.rules
        state = self.pipeline.state
        shown = state.tables.values() if rules is None else [state.tables[name] for name in rules]
        tables = {table.spec.name: NamedTable(table, (rules or {}).get(table.spec.name)) for table in shown}
        self.tables: Named[NamedTable] = Named("table", tables)
        """The tables; with P4Info, those that it lists."""
        signed, digest_names = (said.signed, said.digest_names) if said else (frozenset(), {})
        registers = {
            name: RegisterView(found, signed=name in signed)
            for name, found in state.registers.items()
            if not name.startswith("$")  # the switch's own
        }
        self.registers: Named[RegisterView] = Named("register", registers)
        """The register arrays."""
        counters = {name: CounterView(found) for name, found in state.counters.items()}
        self.counters: Named[CounterView] = Named("counter", counters)
        """The counter arrays; direct counters are read with their table's entries."""
        profiles = {name: NamedProfile(found) for name, found in state.profiles.items()}
        self.profiles: Named[NamedProfile] = Named("action profile", profiles)
        """The action profiles and selectors."""
        digests = {name: DigestView(found, digest_names.get(name, ())) for name, found in state.digests.items()}
        self.digests: Named[DigestView] = Named("digest", digests)
        """The digests: `switch.digests["learn_t"].take()` returns the records since the last call."""
        value_sets = {name: NamedValueSet(found) for name, found in state.value_sets.items()}
        self.value_sets: Named[NamedValueSet] = Named("value set", value_sets)
        """The parser value sets: `switch.value_sets["ports"].add(7000)`."""

    @classmethod
    def from_file(cls, program: str | Path, p4info: str | Path | None = None, **options: Any) -> Switch:
        """Load a program that p4c has compiled.

        Args:
            program: Path of the JSON.
            p4info: Path of the P4Info in text format; None: there is none.
            options: As the class itself takes them (`engine`, `traced`, ...).

        Returns:
            The switch.

        Raises:
            ProgramError: As the class raises it, and for a P4 source.
            OSError: A file cannot be read.

        """
        if Path(program).suffix in (".p4", ".p4_14"):
            raise ProgramError(f"{program} is P4 source: Switch.from_p4 compiles it")
        return cls(Path(program).read_bytes(), Path(p4info).read_text() if p4info is not None else "", **options)

    @classmethod
    def from_p4(cls, source: str | Path, *, compiler_options: tuple[str, ...] = (), **options: Any) -> Switch:
        """Compile a P4 program by the p4c that is on PATH, and load it.

        Args:
            source: Path of the `.p4` file.
            compiler_options: Further options of p4c, such as `("-DDEBUG", "-Iinclude")`.
            options: As the class itself takes them.

        Returns:
            The switch.

        Raises:
            ProgramError: There is no p4c, it reports errors (which the text has), or the class raises it.

        """
        return cls(*compile_p4(Path(source), compiler_options), **options)

    @property
    def meters(self) -> Named[Meter]:
        """The meter arrays; direct meters belong to their tables."""
        return self.pipeline.meters

    @property
    def multicast(self) -> Multicast:
        """The multicast groups: `switch.multicast.set(1, [2, 3])` with ports, or pairs (port, instance)."""
        return self.pipeline.multicast

    @property
    def clones(self) -> CloneSessions:
        """The clone sessions: `switch.clones.set(5, [9])` with ports, or pairs (port, instance)."""
        return self.pipeline.clones

    def process(self, port: int | np.integer[Any], frame: Any) -> list[tuple[int, bytes]]:
        """Run one frame through the switch.

        Args:
            port: Port on which it arrives, 0 to 511.
            frame: Bytes, an array of uint8, or a Scapy packet.

        Returns:
            The frames that leave now, in order, each as (port, bytes).  Frames to a port whose queue has a rate may
            have to wait; `advance` returns them.

        Raises:
            ValueError: There is no such port.
            TypeError: `frame` is no bytes.

        """
        data = _bytes_of(frame)
        with self.pipeline.lock:
            now_us = self.clock.now_us()
            before = self._depart(now_us)
            if self._traced:
                sent, trace = self.pipeline.trace(port, data, now_us)
                self.traces.append(trace)
            else:
                sent = self.pipeline.process(port, data, now_us)
            now = [(number & _PORT_MASK, made) for number, made in sent]
            self._queue()
            return [*(left[1:] for left in before), *now, *(left[1:] for left in self._depart(now_us))]

    def advance(self, seconds: float) -> list[tuple[float, int, bytes]]:
        """Let time pass: frames that wait in queues leave when it is their turn.

        Args:
            seconds: How much time passes; 0 or more.

        Returns:
            The frames that leave meanwhile, in order, each as (time in seconds, port, bytes).

        Raises:
            ValueError: `seconds` is negative, no number, or more than the clock counts; or the clock runs by itself.

        Example:
            >>> switch.queue(3).rate_pps = 1000  # doctest: +SKIP
            >>> switch.process(1, frame), switch.process(1, frame)  # doctest: +SKIP
            ([(3, b'...')], [])
            >>> switch.advance(0.01)  # doctest: +SKIP
            [(0.001, 3, b'...')]

        """
        with self.pipeline.lock:
            self.clock.advance(seconds)
            return self._depart(self.clock.now_us())

    def queue(self, port: int, priority: int | None = None) -> QueueView:
        """Return the queues of a port, to set rates and lengths.  Without rates, as at the start, frames do not wait.

        Args:
            port: Port, 0 to 511.
            priority: Which one of the port's queues; None: all of them together.

        Returns:
            A view; what is written to its attributes holds at once.

        Raises:
            ValueError: There is no such port or queue.

        """
        with self.pipeline.lock:  # the first look at a port adds it to those that `restore` goes through
            return QueueView(self.traffic_manager, port, priority)

    def set_port(self, port: int, *, up: bool) -> None:
        """Take a port down or up; all are up at first.

        A replica whose port is down goes to its first backup whose port is up.  Other frames to a port that is down
        leave nevertheless, for the test to see.

        Args:
            port: Port, 0 to 511.
            up: Whether it is up.

        Raises:
            ValueError: There is no such port.

        """
        self.pipeline.state.ports.set(port, up=up)

    def _queue(self) -> None:
        """Let the packets wait that ingress has parked."""
        if parked := self.pipeline.parked():
            self.pipeline.discard(self.traffic_manager.put(parked))

    def _depart(self, now_us: int) -> list[tuple[float, int, bytes]]:
        """Run the packets through egress whose turn comes by `now_us`; return the frames that leave."""
        left: list[tuple[float, int, bytes]] = []
        while (found := self.traffic_manager.pop(now_us)) is not None:
            due_us, packet = found
            if self._traced:
                sent, trace = self.pipeline.trace_egress(packet, int(due_us))
                self.traces.append(trace)
            else:
                sent = self.pipeline.egress(packet, int(due_us))
            left += ((due_us / 1e6, number & _PORT_MASK, made) for number, made in sent)
            self._queue()
        return left

    def trace(self, port: int | np.integer[Any], frame: Any) -> Step:
        """Return what `process` would do to a frame, as if no frame had to wait.  Nothing in the switch changes.

        Args:
            port: As in `process`.
            frame: As in `process`.

        Returns:
            A step, which prints as an indented text.  `trace.as_json()` has it as data, and `trace.find("lookup")`
            parts of it.

        Raises:
            ValueError: There is no such port.
            TypeError: `frame` is no bytes.

        """
        data = _bytes_of(frame)
        with self.pipeline.lock:  # what another thread writes may not be undone with what the trace has changed
            before = self.snapshot()
            try:
                return self.pipeline.trace(port, data, self.clock.now_us(), parks=False)[1]
            finally:
                restore(self.pipeline.state, before)

    def snapshot(self) -> Snapshot:
        """Return a copy of all entries, registers, counters, meters, groups and sessions, and of which ports are up."""
        return save(self.pipeline.state)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot.  Frames that wait in queues are dropped; the clock and the rates of queues stay.

        Args:
            snapshot: Of this switch, or of another one with the same program.

        Raises:
            ValueError: It is a snapshot of another program.

        """
        with self.pipeline.lock:
            restore(self.pipeline.state, snapshot)
            self.pipeline.discard(self.traffic_manager.clear())

    def __repr__(self) -> str:
        """Say what is in the switch."""
        tables, entries = len(self.tables), sum(len(table) for table in self.tables.values())
        return (
            f"<Switch: {tables} tables with {entries} entries, {len(self.registers)} registers, "
            f"{len(self.counters)} counters>"
        )

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(repr(self)[1:-1])}</p>", self.tables._repr_html_()]
        arrays = [*self.registers.values(), *self.counters.values()]
        return "".join([*parts, *(f"<p><code>{escape(repr(array)[1:-1])}</code></p>" for array in arrays)])


def _check(name: str, number: int, low: int, high: int) -> None:
    if not low <= number <= high:
        raise ValueError(f"{name} is {low} to {high}, not {number}")


def _bytes_of(frame: Any) -> bytes:
    if isinstance(frame, np.ndarray):
        if frame.dtype != np.uint8:
            raise TypeError(f"a frame is an array of uint8, not of {frame.dtype}")
        return frame.tobytes()
    # bytes(5) would be five zeros, and bytes([1, 300]) an error about something else.
    if not isinstance(frame, (bytes, bytearray, memoryview)) and not hasattr(frame, "__bytes__"):
        raise TypeError(f"a frame is bytes, an array of uint8 or a Scapy packet, not {type(frame).__name__}")
    return bytes(frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a P4Info says beyond the program."""

    rules: Mapping[str, TableRules]
    """Of each table."""
    signed: frozenset[str]
    """Names of the registers of signed values."""
    digest_names: Mapping[str, tuple[str, ...]]
    """Of each digest, the names of its values."""


def _read_p4info(text: str, pipeline: Pipeline) -> _Said:
    """Return what P4Info says of a program; raises ProgramError."""
    # Imported late: protobuf and P4Runtime's messages take time that a program without P4Info does not need.
    from switchsum_switch.errors import SwitchsumError  # noqa: PLC0415
    from switchsum_switch.messages.p4runtime import parse_p4info  # noqa: PLC0415

    from ..p4runtime.schema import bind  # noqa: PLC0415

    try:
        schema = bind(parse_p4info(text), pipeline.state)
    except SwitchsumError as error:
        raise ProgramError(str(error)) from error
    rules = {}
    for table in schema.tables.values():
        actions = table.actions.values()
        rules[table.name] = TableRules(
            optional=frozenset(
                key.name for key, one in zip(table.table.spec.keys, table.fields, strict=True) if one.optional
            ),
            entry_actions=frozenset(action.spec.name for action in actions if action.in_entries),
            default_actions=frozenset(action.spec.name for action in actions if action.as_default),
        )
    return _Said(
        rules=rules,
        signed=frozenset(one.register.name for one in schema.registers.values() if one.type.signed),
        digest_names={one.name: one.names for one in schema.digests.values()},
    )
