"""A rank in virtual time: its collectives go to the process that simulates the network, and come back with the time.

The engine and its link are in that process (`switchsum_lab.simulation.ranks`).  What is here is what a communicator
asks of a driver.  One thread of the rank talks to the other process at a time; the rank's arrays go there and back in
files that both have mapped.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import CollectiveTimeout, LocalError, SwitchLost, SwitchsumError, UsageError

from ..engine.engine import Finished, Outcome
from ..engine.operation import Operation
from ..engine.state import OPERATIONS, Count

_LEAST_BYTES: Final = 1 << 12
_FACTS: Final = tuple(one.name for one in fields(Operation) if one.init)
"""Fields that make an `Operation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A rank is there; the answer is a `Joined` once all are."""

    rank: int
    world_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """All ranks are there."""

    lanes_per_frame: int
    timeout_s: float
    clock_factor: float
    """Computation takes this many times what it took on the clock; 0: only what the rank says."""
    folder: str
    """Folder for the files of arrays."""
    error: SwitchsumError | None = None
    """Why the rank cannot join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """A collective is begun; there is no answer."""

    facts: dict[str, Any]
    """Arguments of its `Operation`."""
    file: str
    """Name of the file that begins with its values; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The rank waits until something has happened or `most_s` are over; the answer is an `Answer`."""

    most_s: float
    what: str
    """For the one who is told of ranks that do not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """The rank computes for so long; the answer is an `Answer`."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AskCounts:
    """The rank wants the engine's counters; the answer, a list of them, comes at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The rank leaves, with `failed` as one that is lost."""

    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The rank goes on."""

    now_s: float
    events: list[Outcome] = field(default_factory=list)


def facts_of(operation: Operation) -> dict[str, Any]:
    """Return what makes the same operation in another process."""
    return {name: getattr(operation, name) for name in _FACTS}


class VirtualLink:
    """The connection to the process that simulates."""

    def __init__(self, path: str) -> None:
        """Connect; raises SwitchLost where nobody listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
            try:
                end.connect(path)
            except OSError as error:
                raise SwitchLost(f"no simulation answers at {path}: {error.strerror}") from error
            self._connection: Connection[Any, Any] | None = Connection(end.detach())
        self._turn = threading.RLock()  # a signal handler may leave while this thread waits for an answer

    @property
    def is_closed(self) -> bool:
        """Whether the rank has left."""
        return self._connection is None

    def tell(self, message: object) -> None:
        """Send a message; raises SwitchLost if the simulation has ended."""
        with self._turn:
            if self._connection is None:
                raise UsageError("this communicator is closed: switchsum.connect makes another one")
            try:
                self._connection.send(message)
            except OSError as error:
                raise SwitchLost("the simulation has ended") from error

    def ask(self, message: object) -> Any:
        """Send a message and return the answer, None where there is none any more."""
        with self._turn:
            try:
                self.tell(message)
                assert self._connection is not None
                return self._connection.recv()
            except (SwitchsumError, OSError, EOFError):
                return None

    def leave(self, *, failed: bool) -> None:
        """Say that the rank leaves, and hang up."""
        with self._turn:
            if self._connection is not None:
                try:
                    self._connection.send(End(failed=failed))
                except OSError:
                    pass  # the simulation has ended before
                self._connection.close()
                self._connection = None


@dataclass(slots=True, kw_only=True)
class Shared:
    """A file that this process and the simulating one have mapped."""

    name: str
    memory: mmap.mmap

    def values(self, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """View the beginning of it as an array."""
        return np.frombuffer(self.memory, like.dtype, like.size)


class SharedFiles:
    """Files for arrays, used again when an array has come back."""

    def __init__(self, folder: str, rank: int) -> None:
        self._folder, self._rank = Path(folder), rank
        self._free: dict[int, list[Shared]] = {}
        self._made = 0

    def take(self, size: int) -> Shared:
        """Return a file of at least so many bytes; raises LocalError where there is no room for it."""
        size = max(_LEAST_BYTES, 1 << (size - 1).bit_length())
        if self._free.get(size):
            return self._free[size].pop()
        name = f"rank{self._rank}-{self._made}"
        self._made += 1
        try:
            descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, size)
                return Shared(name=name, memory=mmap.mmap(descriptor, size))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise LocalError(f"cannot write {size} bytes of an array to {self._folder}: {error.strerror}") from error

    def give_back(self, shared: Shared) -> None:
        """Let the file be used again."""
        self._free.setdefault(len(shared.memory), []).append(shared)


class VirtualDriver:
    """A driver whose engine and link are in another process; `step` waits there.

    It has what a communicator asks of a driver (`switchsum_host.api.driver`).
    """

    moves_alone = True
    """Frames move while nobody drives."""
    trace = None
    awaits_switch = owes_switch = False
    """A switch in virtual time is not restarted."""

    def __init__(self, link: VirtualLink, joined: Joined, rank: int) -> None:
        self.lanes_per_frame, self.timeout_s = joined.lanes_per_frame, joined.timeout_s
        self.submitted = 0
        """Operations that were ever begun."""
        self._link = link
        self._under_way: dict[int, tuple[Operation, npt.NDArray[Any] | None, Shared | None]] = {}
        """Operations that have not ended, with their values and the file of these."""
        self._files = SharedFiles(joined.folder, rank)
        self._now_s = 0.0
        self._factor = joined.clock_factor
        self._back_at = time.monotonic()

    @property
    def is_full(self) -> bool:
        """Whether another operation must wait until the oldest has ended."""
        return self.submitted - min(self._under_way, default=self.submitted) >= OPERATIONS

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """What has happened so far, by `Count`."""
        found = self._link.ask(AskCounts())
        return np.zeros(len(Count), np.int64) if found is None else np.array(found, np.int64)

    def clock(self) -> float:
        """Return the virtual time at which the last call came back."""
        return self._now_s

    def compute(self, seconds: float) -> None:
        """Let so much virtual time pass; raises SwitchLost if the simulation has ended."""
        self._charge()
        self._block(Compute(seconds=seconds))

    def submit(
        self, operation: Operation, values: npt.NDArray[Any] | None, most_s: float, timeout_s: float | None = None
    ) -> deque[Outcome]:
        """Begin an operation; return nothing: `step` says what has happened, also to the simulation.

        The simulation has the time-outs, and none for single operations.
        """
        with suppress(SwitchLost):
            self._charge()
        shared = None
        if values is not None and values.nbytes:
            shared = self._files.take(values.nbytes)
            shared.values(values)[:] = values.reshape(-1)
        with suppress(SwitchLost):
            self._link.tell(Begin(facts=facts_of(operation), file="" if shared is None else shared.name))
        self._under_way[self.submitted] = operation, values, shared
        self.submitted += 1
        return deque()

    def step(self, most_s: float) -> deque[Outcome]:
        """Wait for up to `most_s` of virtual time until something has happened; return what has.

        Without time nothing happens: whoever polls stands still.
        """
        if most_s <= 0:
            return deque()
        self._charge()
        waited_for = next(iter(self._under_way.values()), None)
        answer = self._block(Wait(most_s=most_s, what="" if waited_for is None else str(waited_for[0])))
        for event in answer.events:
            if isinstance(event, Finished):
                self._take_back(event.operation)
        return deque(answer.events)

    def overdue(self, timeout_s: float) -> CollectiveTimeout:
        """Name nobody: the simulation knows who is missing."""
        return CollectiveTimeout(f"not done within {timeout_s:g} s")

    def close(self) -> None:
        """Do nothing: the rank leaves with its membership."""

    def note_wait(self) -> None:
        """Do nothing: the simulation sees each wait."""

    def note_restart(self) -> None:
        """Do nothing: a switch in virtual time is not restarted."""

    def note_departure(self) -> None:
        """Do nothing: the simulation says who waits in vain."""

    def held_slots(self, *, earlier: bool = True) -> list[tuple[int, int, list[int]]]:
        """Return nothing: the simulation knows it."""
        return []

    def _take_back(self, serial: int) -> None:
        _, values, shared = self._under_way.pop(serial)
        if shared is not None and values is not None:
            values.reshape(-1)[:] = shared.values(values)
            self._files.give_back(shared)

    def _charge(self) -> None:
        """Let what was computed since the last call cost what it took on the clock, if it is to."""
        if self._factor:
            self._block(Compute(seconds=self._factor * (time.monotonic() - self._back_at)))

    def _block(self, message: Wait | Compute) -> Answer:
        answer = self._link.ask(message)
        if not isinstance(answer, Answer):
            if self._link.is_closed:  # by a signal handler
                raise UsageError("this communicator was closed in the midst of a collective")
            raise SwitchLost("the simulation has ended")
        self._now_s = answer.now_s
        self._back_at = time.monotonic()
        return answer


class VirtualMembership:
    """A place in a job of virtual time; the process that simulates says what becomes of the others."""

    error: SwitchsumError | None = None
    loads = 0
    left: frozenset[int] = frozenset()

    def __init__(self, link: VirtualLink) -> None:
        self._link = link
        self.on_heartbeat: Callable[[], object] = lambda: None

    def explain(self, error: SwitchsumError) -> SwitchsumError:
        """Return the error: nobody knows more."""
        return error

    def leave(self, *, failed: bool = False) -> None:
        """Give the place up."""
        self._link.leave(failed=failed)

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """Refuse: raises UsageError."""
        raise UsageError("a job in virtual time cannot be formed anew: a lost rank ends it")


def join(path: str, rank: int, world_size: int) -> tuple[VirtualDriver, VirtualMembership]:
    """Join the job of a simulation, once all ranks have come; raises what the simulation refuses, or SwitchLost."""
    link = VirtualLink(path)
    joined = link.ask(Join(rank=rank, world_size=world_size))
    if not isinstance(joined, Joined):
        raise SwitchLost("the simulation has ended")
    if joined.error is not None:
        link.leave(failed=True)
        raise joined.error
    return VirtualDriver(link, joined, rank), VirtualMembership(link)
