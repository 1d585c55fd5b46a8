"""The switch around a program, by the interpreter: replication, clones, resubmission, recirculation.

This follows the pseudocode in docs/simple_switch.md of p4lang/behavioral-model.  Where the page is silent, it follows
BMv2's code.  When ingress ends:

1. If `clone` was called, the packet *as it arrived* is parsed anew and goes to egress, to each replica of the session.
2. If `resubmit` was called, the packet as it arrived enters ingress again, and step 3 is left out.
3. If `mcast_grp` is not 0, a copy goes to egress for each replica of the group; else the packet goes to egress with
   port `egress_spec`, unless that is the drop port.

When egress ends:

4. If `clone` was called, the packet *as egress left it* is kept for the clones (before checksums are updated).
5. Unless `egress_spec` is the drop port, checksums are updated and the packet is deparsed.  If `recirculate` was
   called, the frame enters ingress again; else it leaves.
6. The clones go to egress.

A packet whose egress port is held does not go to egress at once: it is parked, and `egress` takes it up when whoever
keeps the queues says so (`parking.py`).

A packet that enters again, or that is a clone, begins a new *life*: its metadata is 0 except for the fields of the
field list that the extern named and for `instance_type`.  `truncate` counts for one life and one copy: it does not
carry over.  Recursion ends, because ingress runs at most `Program.passes` times for a frame, and a clone of a clone in
egress is made at most `MAX_CLONE_DEPTH` times.

`codegen/driver.py` and `codegen/egress.py` do the same in native code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ..program import ir
from ..program.v1model import (
    EGRESS_CLONE,
    INGRESS_CLONE,
    MAX_CLONE_DEPTH,
    NORMAL,
    QUEUE_SHIFT,
    RECIRCULATED,
    REPLICATION,
    RESUBMITTED,
)
from ..queues.parking import Parked
from ..queues.queues import PORTS
from ..state.state import MOST_BEFORE, CloneSession, ProgramState
from .interpreter import Interpreter, Packet
from .trace import Step, Tracer

_SentFrame = tuple[int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A packet that is parked: it, and what is known of the frame that it was made of."""

    packet: Packet
    clone_depth: int
    passed: int
    """How often the frame has entered ingress again."""
    ingress_port: int


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A packet that is about to enter ingress."""

    data: bytes
    metadata: dict[int, int]
    """Values by slot; all other metadata is 0."""


class InterpretedSwitch:
    """Runs frames through a program one after the other."""

    def __init__(
        self, program: ir.Program, state: ProgramState, on_lookup: Callable[[str, bool, str], object] | None = None
    ) -> None:
        self._program = program
        self._names = program.intrinsics
        self._state = state
        self._interpreter = Interpreter(program, state)
        self._interpreter.on_lookup = on_lookup
        # Of the frame that runs now: its port and time, its packets that wait for ingress, the frames that leave.
        self._port = self._now_us = 0
        self._earlier: deque[Packet] = deque(maxlen=MOST_BEFORE)
        """The last packets, where fields that were never written have what they had in one of these."""
        self._waiting: deque[_Arrival] = deque()
        self._passed = 0
        self._outputs: list[_SentFrame] = []
        self._parked: list[Parked] = []
        self.parks = True
        """Packets of held ports wait.  If not, all packets go to egress at once, as in a trace that changes nothing."""

    def trace(self, port: int, frame: bytes, now_us: int) -> tuple[list[_SentFrame], Step]:
        """Do what `process` does; return what it returns, and all that was done to the frame."""
        return self._traced(port, frame, lambda: self.process(port, frame, now_us))

    def process(self, port: int, frame: bytes, now_us: int) -> list[_SentFrame]:
        """Run a frame that arrived on `port` through the switch; return the frames that leave, as (port, frame)."""
        names = self._names
        self._start(port, 0, now_us)
        metadata = {names.ingress_port: port, names.ingress_timestamp: now_us, names.instance_type: NORMAL}
        self._ingress(_Arrival(frame, metadata))
        self._run_waiting()
        return self._outputs

    def trace_egress(self, parked: Parked, now_us: int) -> tuple[list[_SentFrame], Step]:
        """Do what `egress` does; return what it returns, and all that was done to the packet."""
        waiting: _Waiting = parked.packet
        return self._traced(waiting.ingress_port, waiting.packet.data, lambda: self.egress(parked, now_us))

    def egress(self, parked: Parked, now_us: int) -> list[_SentFrame]:
        """Run a packet that was parked through egress; return the frames that leave, as (port, frame)."""
        names, waiting = self._names, parked.packet
        packet = waiting.packet
        self._start(waiting.ingress_port, waiting.passed, now_us)
        for slot, value in (
            (names.enq_qdepth, parked.enq_depth),
            (names.deq_qdepth, parked.deq_depth),
            (names.deq_timedelta, now_us - parked.enqueued_us),
            (names.enqueue_timestamp, parked.enqueued_us),
            (names.qid, parked.queue),
        ):
            packet.set(slot, value)
        self._finish(packet, parked.port, parked.queue, waiting.clone_depth)
        self._run_waiting()
        return self._outputs

    def parked(self) -> list[Parked]:
        """Return the packets that were parked since the last call, in order."""
        parked, self._parked = self._parked, []
        return parked

    def _traced(self, port: int, frame: bytes, run: Callable[[], list[_SentFrame]]) -> tuple[list[_SentFrame], Step]:
        tracer = self._interpreter.tracer = Tracer(self._program, port, frame)
        try:
            return run(), tracer.root
        finally:
            self._interpreter.tracer = None

    def _start(self, port: int, passed: int, now_us: int) -> None:
        self._port, self._passed, self._now_us, self._outputs = port, passed, now_us, []
        self._interpreter.now_us = now_us
        self._waiting.clear()

    def _wait(self, arrival: _Arrival) -> None:
        """Let a packet wait to enter ingress again, unless all passes are used."""
        if self._passed < self._program.passes - 1:
            self._passed += 1
            self._waiting.append(arrival)

    def _run_waiting(self) -> None:
        while self._waiting:
            self._ingress(self._waiting.popleft())

    def _begin(self, data: bytes) -> Packet:
        """Return a packet that begins a life."""
        undefined, earlier = self._state.undefined, self._earlier
        if undefined >= 0:
            return Packet(self._program, data, undefined)
        before = earlier[undefined] if len(earlier) >= -undefined else None
        earlier.append(Packet(self._program, data, 0, before))
        return earlier[-1]

    def _ingress(self, arrival: _Arrival) -> None:
        names = self._names
        packet = self._begin(arrival.data)
        for slot, value in arrival.metadata.items():
            packet.set(slot, value)
        packet.set(names.packet_length, len(arrival.data))
        packet.set(names.length, len(arrival.data))
        for graph in ("parser", "verify", "ingress"):
            self._run(packet, graph)
        self._clone_ingress(packet)
        if packet.fields[names.resubmit]:
            metadata = self._kept(packet, packet.fields[names.resubmit], RESUBMITTED)
            self._wait(_Arrival(arrival.data, metadata))
            self._again("resubmit", "the frame enters ingress again as it arrived", metadata)
        elif group := packet.fields[names.mcast_grp]:
            packet.set(names.instance_type, REPLICATION)
            replicas = self._state.multicast.copies(group)
            count = f"{len(replicas)} replicas" if replicas else "no replicas, so that nothing leaves"
            with self._inside("copy", f"multicast group {group}: {count}", group=group):
                self._replicate(packet, CloneSession(replicas=replicas))
        elif packet.fields[names.egress_spec] != self._program.drop_port:
            packet.set(names.instance_type, NORMAL)
            self._leave(packet, packet.fields[names.egress_spec])
        else:
            self._note("drop", "drop at the end of ingress")

    def _run(self, packet: Packet, name: str) -> None:
        """Run one of the program's graphs."""
        with self._inside(name, name):
            self._interpreter.run(packet, getattr(self._program, name))

    def _inside(self, kind: str, text: str, **detail: object) -> AbstractContextManager[None]:
        """Let a tracer, if there is one, write what follows below a step."""
        tracer = self._interpreter.tracer
        return nullcontext() if tracer is None else tracer.inside(kind, text, **detail)

    def _note(self, kind: str, text: str, **detail: object) -> None:
        if (tracer := self._interpreter.tracer) is not None:
            tracer.note(kind, text, **detail)

    def _again(self, kind: str, text: str, metadata: Mapping[int, int]) -> None:
        if (tracer := self._interpreter.tracer) is not None:
            tracer.note(kind, f"{kind}: {text}, and {tracer.kept(metadata)}")

    def _cloning(self, where: str, packet: Packet, metadata: Mapping[int, int]) -> AbstractContextManager[None]:
        number, tracer = packet.fields[self._names.clone] - 1, self._interpreter.tracer
        kept = "" if tracer is None else f", which {tracer.kept(metadata)}"
        return self._inside("clone", f"clone from {where} to session {number}{kept}", session=number)

    def _clones_nowhere(self, packet: Packet) -> None:
        """Note that a packet asks for a clone whose session does not exist or has no replicas."""
        if packet.fields[self._names.clone]:
            number = packet.fields[self._names.clone] - 1
            self._note("clone", f"clone to session {number}, which has no replicas", session=number)

    def _clone_ingress(self, packet: Packet) -> None:
        """Clone a packet as it arrived: parse its frame anew, with its ingress port but without other metadata."""
        names = self._names
        session = self._session(packet)
        if session.replicas:
            copy = self._begin(packet.data)
            self._forget(copy)
            copy.set(names.ingress_port, self._port)
            for graph in ("parser", "verify"):
                self._run(copy, graph)
            kept = self._kept(packet, packet.fields[names.clone_list], INGRESS_CLONE)
            self._restart(copy, kept)
            copy.set(names.length, len(packet.data))
            with self._cloning("ingress", packet, kept):
                self._replicate(copy, session)
        else:
            self._clones_nowhere(packet)
        packet.set(names.clone, 0)

    def _forget(self, packet: Packet) -> None:
        """Give metadata the bits of what was never written: in a clone that BMv2 parses it is another packet's."""
        if (undefined := self._state.undefined) > 0:
            for header in self._program.headers:
                for slot in header.slots if header.metadata and self._names.resubmit not in header.slots else ():
                    if slot not in self._program.stack_counts:
                        packet.set(slot, undefined)

    def _replicate(self, packet: Packet, session: CloneSession, depth: int = 0) -> None:
        names = self._names
        for replica in session.replicas:
            copy = self._copied(packet)
            for slot in (names.clone, names.resubmit, names.recirculate):
                copy.set(slot, 0)
            copy.set(names.cut, session.length_limit + 1 if session.length_limit else 0)
            if session.class_of_service:
                copy.set(names.priority, session.class_of_service)
            copy.set(names.egress_rid, replica.instance)
            self._leave(copy, replica.port, depth)

    def _copied(self, packet: Packet) -> Packet:
        """Return a copy: in BMv2 it has only the fields of valid headers, and what earlier packets had in others."""
        copy = packet.copy()
        if self._state.undefined:
            other = self._begin(packet.data)
            for header, valid in zip(self._program.headers, packet.valid, strict=True):
                for slot in () if valid else header.slots:
                    copy.set(slot, other.fields[slot])
            if self._state.undefined < 0:
                self._earlier[-1] = copy
        return copy

    def _leave(self, packet: Packet, port: int, depth: int = 0) -> None:
        names, fields = self._names, packet.fields
        queue = fields[names.priority]
        if queue >= self._program.queues:
            there = f"each port has {self._program.queues} (`priority_queues`)"
            self._note("drop", f"drop: there is no queue for priority {queue}, {there}")
            return
        queues = self._state.queues
        if self.parks and port < PORTS and queues.held[port]:
            waiting = _Waiting(packet=packet.copy(), clone_depth=depth, passed=self._passed, ingress_port=self._port)
            self._park(port, queue, waiting)
            self._note("wait", f"wait in queue {queue} of port {port}", port=port, queue=queue)
            return
        frames, waited_us = queues.state(port, queue, self._now_us)
        for slot, value in ((names.enq_qdepth, frames), (names.deq_qdepth, frames), (names.deq_timedelta, waited_us)):
            packet.set(slot, value)
        packet.set(names.qid, queue)
        packet.set(names.enqueue_timestamp, self._now_us + self._state.later_us)
        self._finish(packet, port, queue, depth)

    def _park(self, port: int, queue: int, waiting: _Waiting) -> None:
        packet = waiting.packet
        parked = Parked(
            port=port,
            queue=queue,
            bytes=packet.fields[self._names.length],
            frame_bytes=len(packet.data),
            enqueued_us=self._now_us,
            packet=waiting,
        )
        self._parked.append(parked)

    def _finish(self, packet: Packet, port: int, queue: int, depth: int) -> None:
        names, fields = self._names, packet.fields
        packet.set(names.egress_timestamp, self._now_us + 3 * self._state.later_us)
        packet.set(names.egress_port, port)
        # Any value but the drop port: egress drops a packet by setting egress_spec, and ingress may have left it there.
        packet.set(names.egress_spec, self._program.drop_port + 1)
        packet.set(names.packet_length, fields[names.length])
        with self._inside("egress", f"egress to port {port}", port=port, instance=fields[names.egress_rid]):
            self._interpreter.run(packet, self._program.egress)
        session = self._session(packet) if depth < MAX_CLONE_DEPTH else CloneSession(replicas=())
        copy = self._copied(packet) if session.replicas else packet  # before `_send` updates checksums
        if fields[names.egress_spec] != self._program.drop_port:
            self._send(packet, port | queue << QUEUE_SHIFT)
        else:
            self._note("drop", "drop at the end of egress")
        if session.replicas:
            kept = self._kept(copy, fields[names.clone_list], EGRESS_CLONE)
            self._restart(copy, kept)
            copy.set(names.length, fields[names.length])
            with self._cloning("egress", packet, kept):
                self._replicate(copy, session, depth + 1)
        elif depth < MAX_CLONE_DEPTH:
            self._clones_nowhere(packet)

    def _send(self, packet: Packet, port: int) -> None:
        names = self._names
        self._run(packet, "update")
        frame = self._interpreter.deparse(packet)
        if again := packet.fields[names.recirculate]:
            metadata = self._kept(packet, again, RECIRCULATED)
            self._wait(_Arrival(frame, metadata))
            self._again("recirculate", "the frame enters ingress again as it would leave", metadata)
            return
        cut = packet.fields[names.cut]
        sent = frame[: cut - 1] if cut else frame
        self._outputs.append((port, sent))
        if self._interpreter.tracer is not None:
            number = port & ((1 << QUEUE_SHIFT) - 1)
            self._note("send", f"send {len(sent)} bytes to port {number}: {sent.hex()}", port=number, frame=sent.hex())

    def _session(self, packet: Packet) -> CloneSession:
        """Return the session that a packet is cloned to, as it is now; no session: one without replicas."""
        return self._state.clones.copies(packet.fields[self._names.clone] - 1)

    def _kept(self, packet: Packet, number: int, instance_type: int) -> dict[int, int]:
        """Return the metadata with which a new life begins: the values of a field list, and the instance type."""
        kept = {slot: packet.fields[slot] for slot in self._program.field_lists[number]}
        return {**kept, self._names.instance_type: instance_type}

    def _restart(self, packet: Packet, metadata: dict[int, int]) -> None:
        """Set all metadata to 0, except `metadata` and the next index of each header stack."""
        for header in self._program.headers:
            for slot in header.slots if header.metadata else ():
                if slot not in self._program.stack_counts:
                    packet.set(slot, metadata.get(slot, 0))
