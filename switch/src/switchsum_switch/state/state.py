"""The state of a program that outlives a packet: registers, counters, multicast groups, clone sessions.

There is one Python object for each P4 object.  The memory behind it is a numpy array, and native code works on that
very memory: no copy has to be kept up to date.  Every method holds the pipeline's lock, so that a change falls between
two batches of packets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ..errors import BadEntry, EntryMissing
from ..queues.queues import Queues
from .counts import Counts
from .digests import Digest
from .liveness import Liveness
from .lock import StateLock
from .meters import Meter
from .profiles import Profile
from .tables import Table
from .value_sets import ValueSet

MAX_GROUP = (1 << 16) - 1
"""Largest multicast group: `standard_metadata.mcast_grp` has 16 bits."""

MAX_SESSION = (1 << 15) - 1
"""Largest clone session of simple_switch."""

WIDE_BITS = 128
"""Values of this width or more are kept in memory in network byte order, narrower ones as machine integers.

LLVM makes straight-line code for each 64-bit word of an operation on integers of 2,048 bits, without vector
instructions; wide values are computed by vector loops instead (`codegen/wide.py`)."""


AS_BEFORE: Final = -1
MOST_BEFORE: Final = 64


class Counter:
    """A counter array: packets and bytes by index."""

    def __init__(self, name: str, size: int, lock: StateLock) -> None:
        self.name = name
        self.size = size
        self._lock = lock
        self.counted = Counts(size)

    @property
    def counts(self) -> npt.NDArray[np.uint64]:
        """Packets and bytes by index, shared with the native engine."""
        return self.counted.all()

    def read(self, index: int) -> tuple[int, int]:
        """Return packets and bytes; raises BadEntry."""
        with self._lock:
            return self.counted.read(self._checked(index))

    def read_all(self) -> npt.NDArray[np.uint64]:
        """Return a copy of packets and bytes by index."""
        with self._lock:
            return self.counts.copy()

    def write(self, index: int, packets: int, count_bytes: int) -> None:
        """Set packets and bytes; raises BadEntry."""
        with self._lock:
            self.counts[self._checked(index)] = packets, count_bytes

    def clear(self) -> None:
        """Set all cells to 0."""
        with self._lock:
            self.counts[:] = 0

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise BadEntry(f"counter {self.name} has {self.size} cells, none of index {index}")
        return index


class Register:
    """A register array: big-endian values, one behind the other in memory that the native engine shares."""

    def __init__(self, name: str, size: int, width: int, lock: StateLock) -> None:
        self.name = name
        self.size = size
        self.width = width
        self.stride = cell_bytes(width)
        self._lock = lock
        self.memory = np.zeros(size * self.stride, dtype=np.uint8)

    def read(self, index: int) -> int:
        """Return the value of a cell; raises BadEntry."""
        with self._lock:
            start = self._checked(index) * self.stride
            return int.from_bytes(self.memory[start : start + self.stride].tobytes(), "big")

    def read_many(self, part: slice) -> list[int]:
        """Return the values of several cells, all as they are between the same two batches of packets."""
        with self._lock:
            data = self.memory.reshape(self.size, self.stride)[part].tobytes()
        return [int.from_bytes(data[start : start + self.stride], "big") for start in range(0, len(data), self.stride)]

    def write_many(self, values: Mapping[int, int]) -> None:
        """Set several cells between two batches of packets; raises BadEntry, and then may have set some."""
        with self._lock:
            for index, value in values.items():
                self.write(index, value)

    def write(self, index: int, value: int) -> None:
        """Set the value of a cell; raises BadEntry."""
        if not 0 <= value < 1 << self.width:
            raise BadEntry(f"register {self.name}: {value:#x} does not fit {self.width} bits")
        with self._lock:
            start = self._checked(index) * self.stride
            cell = self.memory[start : start + self.stride]
            cell[:] = np.frombuffer(value.to_bytes(self.stride, "big"), dtype=np.uint8)

    def _checked(self, index: int) -> int:
        if not 0 <= index < self.size:
            raise BadEntry(f"register {self.name} has {self.size} cells, none of index {index}")
        return index


def cell_bytes(width: int) -> int:
    """Return the bytes of a register cell: below `WIDE_BITS` a power of two, else the width in whole bytes."""
    count = (width + 7) // 8
    return 1 << (count - 1).bit_length() if width < WIDE_BITS else count


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a packet that the replication engine makes."""

    port: int
    """Egress port, 0 to 511."""
    instance: int
    """16 bits; egress reads it as `standard_metadata.egress_rid`."""
    backups: tuple[Replica, ...] = ()
    """Backups for the copy while the port is down: the first of these whose port is up."""

    def live(self, ports: Liveness) -> Replica:
        """Return the replica itself or a backup, whichever is first with its port up; itself if all are down.

        Args:
            ports: Which ports are up.

        Returns:
            The replica that gets the copy.

        """
        return next((one for one in (self, *self.backups) if ports.is_up(one.port)), self)


Destination = int | tuple[int, int] | Replica
"""What a group or session may be given: a port, whose copy has instance 0; (port, instance); or a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneSession:
    """The destinations of the clones of a session."""

    replicas: tuple[Replica, ...]
    length_limit: int = 0
    """Clones are cut to this many bytes; 0 leaves them whole."""
    class_of_service: int = 0
    """The queue in which clones wait, by its priority; 0: the one that the program chooses."""


class Multicast:
    """Multicast groups; replicas leave in the order in which the control plane gave them."""

    def __init__(self, lock: StateLock, ports: Liveness) -> None:
        self._lock = lock
        self._ports = ports
        ports.follow(self)
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._cells: dict[int, np.ndarray] = {}
        self.largest = 0
        """Number of replicas of the largest group."""
        self.directory = np.zeros((MAX_GROUP + 1, 2), dtype=np.uint64)
        """Directory by group, for native code: address of its (port, instance) pairs of 32 bits each, and their
        number.
        """

    def set(self, group: int, replicas: Sequence[Destination]) -> None:
        """Create or replace a group of ports, (port, instance) pairs or replicas with backups; raises BadEntry."""
        _check_number("multicast group", group, MAX_GROUP)
        made = _replicas(replicas)
        with self._lock:
            cells = _cells(made, self._ports)
            self._groups[group] = made
            self._cells[group] = cells
            self.directory[group] = cells.ctypes.data, len(made)
            self._measure()

    def delete(self, group: int) -> None:
        """Remove a group; raises EntryMissing."""
        with self._lock:
            self.get(group)
            self.directory[group] = 0
            del self._groups[group], self._cells[group]
            self._measure()

    def get(self, group: int) -> tuple[Replica, ...]:
        """Return a group's replicas; raises EntryMissing."""
        with self._lock:
            if group not in self._groups:
                raise EntryMissing(f"no multicast group {group}")
            return self._groups[group]

    def groups(self) -> dict[int, tuple[Replica, ...]]:
        """Return all groups."""
        with self._lock:
            return dict(self._groups)

    def copies(self, group: int) -> tuple[Replica, ...]:
        """Return where the copies of a packet to a group go now; none if there is no such group."""
        return tuple(replica.live(self._ports) for replica in self._groups.get(group, ()))

    def ports_changed(self) -> None:
        """Send copies to ports that are up."""
        with self._lock:
            for group, replicas in self._groups.items():
                self._cells[group][:] = _cells(replicas, self._ports)

    def _measure(self) -> None:
        self.largest = max(map(len, self._groups.values()), default=0)

    def __repr__(self) -> str:
        """List the groups."""
        return f"<multicast groups: {_listed(self.groups())}>"


class CloneSessions:
    """Clone sessions, which simple_switch calls mirroring sessions."""

    def __init__(self, lock: StateLock, ports: Liveness) -> None:
        self._lock = lock
        self._ports = ports
        ports.follow(self)
        self._sessions: dict[int, CloneSession] = {}
        self._cells: dict[int, np.ndarray] = {}
        self.largest = 0
        """Number of replicas of the largest session."""
        self.directory = np.zeros((MAX_SESSION + 2, 3), dtype=np.uint64)
        """Directory by session, for native code: the two words of `Multicast.directory`, and the length limit in 32
        bits below the class of service.  The last one is no session, and has no replicas.
        """

    def set(
        self,
        session: int,
        replicas: Sequence[Destination],
        length_limit: int = 0,
        class_of_service: int = 0,
    ) -> None:
        """Create or replace a session of ports, (port, instance) pairs or replicas with backups; raises BadEntry.

        Session 0 is one as any other; P4Runtime alone does not have it.
        """
        _check_number("clone session", session, MAX_SESSION, least=0)
        for what, number in (("length limit", length_limit), ("class of service", class_of_service)):
            if not 0 <= number < 1 << 32:
                raise BadEntry(f"clone session {session}: {number} is no {what}")
        made = CloneSession(replicas=_replicas(replicas), length_limit=length_limit, class_of_service=class_of_service)
        with self._lock:
            cells = _cells(made.replicas, self._ports)
            self._sessions[session] = made
            self._cells[session] = cells
            self.directory[session] = cells.ctypes.data, len(made.replicas), class_of_service << 32 | length_limit
            self._measure()

    def delete(self, session: int) -> None:
        """Remove a session; raises EntryMissing."""
        with self._lock:
            self.get(session)
            self.directory[session] = 0
            del self._sessions[session], self._cells[session]
            self._measure()

    def get(self, session: int) -> CloneSession:
        """Return a session; raises EntryMissing."""
        with self._lock:
            if session not in self._sessions:
                raise EntryMissing(f"no clone session {session}")
            return self._sessions[session]

    def sessions(self) -> dict[int, CloneSession]:
        """Return all sessions."""
        with self._lock:
            return dict(self._sessions)

    def copies(self, session: int) -> CloneSession:
        """Return a session with the replicas to which clones go now; without replicas if there is no such session."""
        found = self._sessions.get(session, CloneSession(replicas=()))
        return replace(found, replicas=tuple(replica.live(self._ports) for replica in found.replicas))

    def ports_changed(self) -> None:
        """Send clones to ports that are up."""
        with self._lock:
            for number, session in self._sessions.items():
                self._cells[number][:] = _cells(session.replicas, self._ports)

    def _measure(self) -> None:
        self.largest = max((len(session.replicas) for session in self._sessions.values()), default=0)

    def __repr__(self) -> str:
        """List the sessions."""
        return f"<clone sessions: {_listed({number: one.replicas for number, one in self.sessions().items()})}>"


def _replicas(given: Sequence[Destination]) -> tuple[Replica, ...]:
    if isinstance(given, int):
        raise TypeError(f"replicas are a list of ports or of pairs (port, instance), not {given!r}")
    made = tuple(_replica(one) for one in given)
    pairs = [(one.port, one.instance) for replica in made for one in (replica, *replica.backups)]
    for port, instance in pairs:
        if not (0 <= port < 512 and 0 <= instance < 1 << 16):
            raise BadEntry(f"replica to port {port}, instance {instance}: ports are 0 to 511, instances 0 to 65535")
    for port, instance in pairs:
        if pairs.count((port, instance)) > 1:
            raise BadEntry(f"a replica to port {port}, instance {instance} is named twice")
    return made


def _replica(given: Destination) -> Replica:
    if isinstance(given, Replica):
        return given
    return Replica(*given) if isinstance(given, tuple) else Replica(given, 0)


def _cells(replicas: Sequence[Replica], ports: Liveness) -> np.ndarray:
    live = [replica.live(ports) for replica in replicas]
    return np.array([(replica.port, replica.instance) for replica in live], dtype=np.uint32).reshape(-1, 2)


def _listed(replicas: Mapping[int, Sequence[Replica]]) -> str:
    parts = (
        f"{number} to {', '.join(f'port {one.port} instance {one.instance}' for one in some) or 'nowhere'}"
        for number, some in replicas.items()
    )
    return "; ".join(parts) or "none"


def _check_number(what: str, number: int, largest: int, least: int = 1) -> None:
    if not least <= number <= largest:
        raise BadEntry(f"{what} {number} is not between {least} and {largest}")


@dataclass(slots=True, kw_only=True)
class ProgramState:
    """The state of one loaded program."""

    lock: StateLock
    """The data plane holds it while it runs a batch, the control plane while it makes a change."""
    tables: Mapping[str, Table]
    counters: Mapping[str, Counter]
    registers: Mapping[str, Register]
    meters: Mapping[str, Meter]
    profiles: Mapping[str, Profile]
    value_sets: Mapping[str, ValueSet]
    digests: Mapping[str, Digest]
    multicast: Multicast
    clones: CloneSessions
    ports: Liveness
    """Which ports are up."""
    headers: Sequence[Mapping[str, int]] = ()
    """The widths of the fields of each of the program's headers, by name."""
    queues: Queues = field(default_factory=Queues)
    random: np.ndarray = field(default_factory=lambda: np.array([RANDOM_SEED], dtype=np.uint64))
    """ProgramState of the generator behind `random()`: xorshift64* (Vigna 2016), one word, never 0."""

    undefined: int = 0
    """The interpreter gives fields of headers these bits until they are written; AS_BEFORE: those of the packet before,
    2 * AS_BEFORE those of the one before that, and so on, up to MOST_BEFORE packets back.  P4 leaves such fields
    undefined, and BMv2 has there what some earlier packet had.  Members of a stack that are shifted get them, too."""
    later_us: int = 0
    """The interpreter lets a packet enter its queue so much later than it came, and leave it twice as much later."""
    beyond: int = 0
    """How often the interpreter was given an index beyond the end of an array, at which BMv2 ends itself."""

    def copies(self) -> int:
        """Return how many frames one frame may become, if none is recirculated and no clone is cloned again."""
        # Ingress may clone the packet once; egress may clone each replica once.
        clones = self.clones.largest
        return max(1, self.multicast.largest) * (1 + clones) + clones

    def next_random(self) -> int:
        """Advance the random number generator and return its next 64 bits; native code computes the same."""
        state = int(self.random[0])
        state ^= state >> 12
        state ^= (state << 25) & _WORD
        state ^= state >> 27
        self.random[0] = state
        return (state * RANDOM_FACTOR) & _WORD


# A fixed seed: a run with the same frames has the same random numbers, on both engines.
RANDOM_SEED = 0x5DEECE66D1CE4E5B
RANDOM_FACTOR = 0x2545F4914F6CDD1D
_WORD = (1 << 64) - 1
