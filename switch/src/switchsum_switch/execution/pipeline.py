"""A loaded program: frames that arrive go in, frames that leave come out.

This is the seam between the compiler and the rest of the switch.  On one side stand the reader, the lowering, the
passes and two engines; on the other side the ports, the loop and the P4Runtime server, which know `Pipeline` only.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_switch.errors import UsageError
from switchsum_switch.kernels.cache import open_store

from ..errors import LARGER_THAN_MEMORY, ProgramError, StateError
from ..names.named import Named
from ..program import ir
from ..program.lower import lower
from ..program.passes.analysis import multiplies, sees_waiting
from ..program.reader import read_program
from ..program.v1model import DROP_PORT, PASSES
from ..program.verify import MalformedProgram, verify
from ..queues.batch import DEFAULT_ARENA_BYTES, DEFAULT_FRAMES, FRAME_ALIGN, CodeEntry, Output
from ..queues.parking import Parked
from ..queues.queues import PORTS, Queues
from ..state.digests import Digest
from ..state.liveness import Liveness
from ..state.lock import StateLock
from ..state.meters import Meter
from ..state.profiles import Profile
from ..state.state import CloneSessions, Counter, Multicast, ProgramState, Register
from ..state.tables import Table
from ..state.value_sets import ValueSet
from .trace import Step
from .traffic import InterpretedSwitch

EngineName = Literal["native", "interpreter"]


class Engine(Protocol):
    """Runs a program; `Pipeline` holds the lock around every call."""

    def process_batch(
        self,
        addresses: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
        ports: npt.NDArray[np.uint32],
        count: int,
        output: Output,
        now_us: int,
    ) -> int:
        """Run frames, and stop if `output` may have no room for the copies of the next one; return how many ran."""
        ...

    def egress(self, packets: Sequence[Parked], output: Output, now_us: int) -> int:
        """Run packets that have waited for egress, as `process_batch` does frames; return how many ran."""
        ...

    def parked(self) -> list[Parked]:
        """Return the packets that wait for egress since the last call, in order."""
        ...

    def discard(self, packets: Sequence[Parked]) -> None:
        """Free the memory of packets that wait."""
        ...

    def entry(self, output: Output) -> CodeEntry | None:
        """Return how a kernel calls this engine with `output`; None if it cannot."""
        ...

    def place_bytes(self, frame_bytes: int) -> int:
        """Return the bytes of a place for a packet made of a frame of that length."""
        ...

    def park_in(self, pool: int) -> None:
        """Let packets wait in a pool that a kernel keeps; 0: no longer."""
        ...


class Pipeline:
    """A loaded program, its state, and the engine that runs it."""

    def __init__(self, program: ir.Program, state: ProgramState, engine: Engine) -> None:
        self.state = state
        self.lock: StateLock = state.lock
        self.tables: Named[Table] = Named("table", state.tables)
        self.counters: Named[Counter] = Named("counter", state.counters)
        self.registers: Named[Register] = Named("register", state.registers)
        self.meters: Named[Meter] = Named("meter", state.meters)
        self.profiles: Named[Profile] = Named("action profile", state.profiles)
        self.value_sets: Named[ValueSet] = Named("value set", state.value_sets)
        self.digests: Named[Digest] = Named("digest", state.digests)
        self.multicast: Multicast = state.multicast
        self.clones: CloneSessions = state.clones
        self._engine = engine
        self._program = program
        self._last_port = min(PORTS, 1 << program.fields[program.intrinsics.ingress_port].width) - 1
        self._growth = program.growth_bytes
        self._multiplies = multiplies(program)
        self._output = Output(0, 0)
        self._tracing = InterpretedSwitch(program, state)

    @classmethod
    def load(
        cls,
        device_config: str | bytes,
        *,
        engine: EngineName = "native",
        drop_port: int = DROP_PORT,
        queues: Queues | None = None,
        ports: Liveness | None = None,
        passes: int = PASSES,
        debug: bool = False,
        on_lookup: Callable[[str, bool, str], object] | None = None,
    ) -> Pipeline:
        """Load the text of a BMv2 JSON file; raises ProgramError if it is none or needs a feature that is missing.

        `queues` hold the frames that wait for their port; the port number of a frame that leaves names its queue (see
        QUEUE_SHIFT).  `ports` says which ports are up.  `passes` is how often ingress may run for one frame, 1 to
        MAX_PASSES.  With `debug`, native code stops the process when an index is beyond the end of an array.  The
        interpreter tells `on_lookup` the table, whether it hit, and the action of each lookup.
        """
        queues = queues or Queues()
        try:
            program = _lowered(device_config, drop_port, queues.count, passes)
        except RecursionError:
            raise ProgramError("not a BMv2 program that this switch can take: it is nested too deeply") from None
        try:
            state = make_state(program, queues, ports)
        except MemoryError:
            raise ProgramError(LARGER_THAN_MEMORY) from None
        if engine == "interpreter":
            return cls(program, state, _InterpretedEngine(program, state, on_lookup))
        # Imported late: the interpreter does not need it.
        from ..codegen import compile_program  # noqa: PLC0415

        cache = open_store("switch")
        return cls(program, state, compile_program(program, state, cache=cache, debug=debug))

    def room(self, frame_bytes: int) -> tuple[int, int]:
        """Return how many frames and bytes of an `Output` one frame of that length may need."""
        return room(self._growth, self.state.copies(), frame_bytes)

    def process(self, port: int | np.integer[Any], frame: bytes, now_us: int = 0) -> list[tuple[int, bytes]]:
        """Run one frame; return the frames that leave, as (port, frame).

        Raises ValueError for a port that cannot be.
        """
        self._check_port(port)
        # numpy has no buffer of no bytes; the length says that the frame is empty.
        data = np.frombuffer(frame or b"\0", np.uint8)
        with self.lock:
            columns = np.array([data.ctypes.data], np.uint64), _word(len(frame)), _word(int(port))
            output = self._output_for(len(frame))
            self._engine.process_batch(*columns, 1, output, now_us)
            return output.frames()

    def parked(self) -> list[Parked]:
        """Return the packets that wait for egress since the last call: those to ports that `state.queues` holds."""
        with self.lock:
            return [*self._engine.parked(), *self._tracing.parked()]

    def egress(self, packet: Parked, now_us: int) -> list[tuple[int, bytes]]:
        """Run a packet that has waited through egress; return the frames that leave, as (port, frame)."""
        with self.lock:
            output = self._output_for(packet.frame_bytes)
            self._engine.egress([packet], output, now_us)
            return output.frames()

    def egress_batch(self, packets: Sequence[Parked], output: Output, now_us: int) -> int:
        """Run packets that have waited, and put the frames that leave into `output`, as `process_batch` does."""
        with self.lock:
            return self._engine.egress(packets, output, now_us)

    def discard(self, packets: Sequence[Parked]) -> None:
        """Free the memory of packets that are dropped while they wait."""
        with self.lock:
            self._engine.discard([packet for packet in packets if isinstance(packet.packet, int)])

    def _output_for(self, frame_bytes: int) -> Output:
        """Return an output with room for what becomes of a frame of that length."""
        frames, size = self.room(frame_bytes)
        # Clones and recirculated packets may need more than `room` counts.
        if self._multiplies:
            frames, size = max(frames, DEFAULT_FRAMES), max(size, DEFAULT_ARENA_BYTES)
        if len(self._output.ports) < frames or len(self._output.arena) < size:
            self._output = Output(frames, size)
        return self._output

    def trace(
        self, port: int | np.integer[Any], frame: bytes, now_us: int = 0, *, parks: bool = True
    ) -> tuple[list[tuple[int, bytes]], Step]:
        """Run one frame by the interpreter; return what `process` does, and all that was done to the frame.

        Without `parks` no packet waits for egress.
        """
        self._check_port(port)
        with self.lock:
            self._tracing.parks = parks
            return self._tracing.trace(int(port), frame, now_us)

    def trace_egress(self, packet: Parked, now_us: int) -> tuple[list[tuple[int, bytes]], Step]:
        """Do what `egress` does with a packet that a trace has parked; return also all that was done to the packet."""
        with self.lock:
            self._tracing.parks = True
            return self._tracing.trace_egress(packet, now_us)

    def _check_port(self, port: int | np.integer[Any]) -> None:
        if not isinstance(port, (int, np.integer)) or isinstance(port, bool):
            raise TypeError(f"a port is a number from 0 to {self._last_port}, not {port!r}")
        if not 0 <= port <= self._last_port:
            raise ValueError(f"there is no port {port}: ports are numbered from 0 to {self._last_port}")

    def process_batch(
        self,
        addresses: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
        ports: npt.NDArray[np.uint32],
        count: int,
        output: Output,
        now_us: int = 0,
    ) -> int:
        """Run `count` frames that lie at `addresses`, and put the frames that leave into `output`; return how many ran.

        Stops before a frame whose copies might not fit into `output` any more in the worst case (`room`).  The caller
        then sends the output and calls again with the rest.  Raises UsageError if not even the first frame fits.
        """
        with self.lock:
            done = self._engine.process_batch(addresses, lengths, ports, count, output, now_us)
        if count and not done:
            frames, size = self.room(int(lengths[0]))
            raise UsageError(f"an output for frames of {lengths[0]} bytes needs {frames} rows and {size} bytes")
        return done

    def entry(self, output: Output) -> CodeEntry | None:
        """Return how a kernel runs batches into `output` while the caller holds `lock`; None if it cannot."""
        return self._engine.entry(output)

    @property
    def queue_count(self) -> int:
        """Queues of a port."""
        return self.state.queues.count

    @functools.cached_property
    def sees_waiting(self) -> bool:
        """Whether it matters to the program that packets wait between ingress and egress."""
        return sees_waiting(self._program)

    def place_bytes(self, frame_bytes: int) -> int:
        """Return the bytes of a place (`parking.py`) for a packet made of a frame of that length, a multiple of 64."""
        return self._engine.place_bytes(frame_bytes)

    def park_in(self, pool: int) -> None:
        """Let packets wait in the places of a pool that a kernel keeps, given the address of its record; 0: no longer.

        The pool's own `HELD` says of which ports, and `parked` does not know of these packets.
        """
        self._engine.park_in(pool)


@functools.lru_cache(maxsize=4)
def _lowered(device_config: str | bytes, drop_port: int, queues: int, passes: int) -> ir.Program:
    """Read, lower and verify a program; P4Runtime clients VERIFY a program and then load it, so results are kept."""
    lowered = lower(read_program(device_config), drop_port, queues, passes)
    try:
        return verify(lowered)
    except MalformedProgram as error:  # headers of different types that are copied, say: no P4 compiler writes that
        raise ProgramError(f"not a BMv2 program: {error}") from error


def room(growth_bytes: int, copies: int, frame_bytes: int) -> tuple[int, int]:
    """Return how many frames and bytes one frame may become."""
    return copies, copies * (frame_bytes + growth_bytes + FRAME_ALIGN)


def make_state(program: ir.Program, queues: Queues | None = None, ports: Liveness | None = None) -> ProgramState:
    """Return the initial state of a program; raises ProgramError if an entry that it declares is impossible."""
    lock, ports = StateLock(), ports or Liveness()
    tables = {}
    for info in (*program.fixed_tables, *program.tables):
        table = Table(info.spec, lock, info.default)
        for entry in info.entries:
            try:
                table.load(entry)
            except StateError as error:
                raise ProgramError(f"not a BMv2 program: {error}") from None
        tables[info.spec.name] = table
    profiles = {
        info.name: Profile(info, [table for table in tables.values() if table.spec.profile == info.name], lock, ports)
        for info in program.profiles
    }
    return ProgramState(
        lock=lock,
        profiles=profiles,
        tables=tables,
        counters={counter.name: Counter(counter.name, counter.size, lock) for counter in program.counters},
        registers={
            register.name: Register(register.name, register.size, register.width, lock)
            for register in program.registers
        },
        meters={meter.name: Meter(meter.name, meter.size, meter.unit, lock) for meter in program.meters if meter.unit},
        value_sets={
            name: ValueSet(name, [tables[program.tables[number].spec.name] for number in numbers], lock)
            for name, numbers in program.value_sets
        },
        digests={digest.name: Digest(digest.name, digest.widths, lock) for digest in program.digests},
        multicast=Multicast(lock, ports),
        clones=CloneSessions(lock, ports),
        ports=ports,
        headers=[
            {
                program.fields[slot].name.removeprefix(f"{header.name}."): program.fields[slot].width
                for slot in header.wire
            }
            for header in program.headers
            if not header.metadata
        ],
        queues=queues or Queues(program.queues),
    )


class _InterpretedEngine:
    """Runs the interpreter behind the interface of an engine."""

    def __init__(
        self, program: ir.Program, state: ProgramState, on_lookup: Callable[[str, bool, str], object] | None
    ) -> None:
        self._switch = InterpretedSwitch(program, state, on_lookup)
        self._state = state
        self._growth = program.growth_bytes

    def process_batch(
        self,
        addresses: npt.NDArray[np.uint64],
        lengths: npt.NDArray[np.uint32],
        ports: npt.NDArray[np.uint32],
        count: int,
        output: Output,
        now_us: int,
    ) -> int:
        """Run frames one by one."""

        def run(index: int) -> list[tuple[int, bytes]]:
            frame = ctypes.string_at(int(addresses[index]), int(lengths[index]))
            return self._switch.process(int(ports[index]), frame, now_us)

        return self._fill(output, lengths[:count].tolist(), run)

    def egress(self, packets: Sequence[Parked], output: Output, now_us: int) -> int:
        """Run packets one by one."""
        lengths = [packet.frame_bytes for packet in packets]
        return self._fill(output, lengths, lambda index: self._switch.egress(packets[index], now_us))

    def parked(self) -> list[Parked]:
        """Return the packets that wait for egress since the last call, in order."""
        return self._switch.parked()

    def discard(self, packets: Sequence[Parked]) -> None:
        """Do nothing: the packets are Python objects."""

    def _fill(self, output: Output, lengths: Sequence[int], run: Callable[[int], list[tuple[int, bytes]]]) -> int:
        """Put into `output` what `run` makes of each frame, given its number; return how many ran."""
        output.count = output.dropped = used = 0
        for index, length in enumerate(lengths):
            # As in native code: the frame runs only if there is room for all copies that `room` counts.
            frames, size = room(self._growth, self._state.copies(), length)
            if output.count + frames > len(output.ports) or used + size > len(output.arena):
                return index
            for port, made in run(index):
                if output.count == len(output.ports) or used + len(made) > len(output.arena):
                    output.dropped += 1
                    continue
                output.arena[used : used + len(made)] = np.frombuffer(made, np.uint8)
                output.ports[output.count] = port
                output.addresses[output.count] = output.arena.ctypes.data + used
                output.lengths[output.count] = len(made)
                output.count += 1
                used += -(-len(made) // FRAME_ALIGN) * FRAME_ALIGN
        return len(lengths)

    def entry(self, output: Output) -> None:
        """Return None: the interpreter is Python, which kernels cannot call."""

    def place_bytes(self, frame_bytes: int) -> int:
        """Raise UsageError: the interpreter's packets are Python objects."""
        raise UsageError("packets of the interpreter have no places in memory: use the native engine")

    def park_in(self, pool: int) -> None:
        """Raise UsageError as `place_bytes` does."""
        self.place_bytes(pool)


def _word(value: int) -> npt.NDArray[np.uint32]:
    return np.array([value], np.uint32)
