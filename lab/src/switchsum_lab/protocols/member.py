"""What a rank's program calls when it runs under `switchsum run --baseline`: the protocol's collectives."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, Protocol

import numpy as np

from switchsum_protocol.errors import RemoteError, UsageError

from .seam import Array, Baseline, World, load, statistics_of
from .sockets import PacketLink, Service

VARIABLE: Final = "SWITCHSUM_BASELINE"
"""Environment variable with a `HostAssignment` as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAssignment:
    """Where a host of a protocol is: written by `switchsum run --baseline`, and read by the host's process."""

    directory: str
    host: int
    meeting: str
    """Unix socket at which hosts begin and end together; in virtual time it takes the calls."""
    workers: int
    servers: int
    lanes: int
    slots: int
    seed: int
    least_timeout_s: float
    interface: str = ""
    """Empty: virtual time."""
    loss: float = 0.0
    timeout_s: float = 60.0

    def write(self) -> dict[str, str]:
        """Return it as an environment."""
        return {VARIABLE: json.dumps(asdict(self))}

    def world(self) -> World:
        """Return what the protocol is told."""
        return World(
            workers=self.workers,
            servers=self.servers,
            lanes=self.lanes,
            slots=self.slots,
            seed=self.seed,
            least_timeout_s=self.least_timeout_s,
        )


def read_assignment() -> HostAssignment:
    """Return this process's place; raises UsageError."""
    if (text := os.environ.get(VARIABLE)) is None:
        raise UsageError("other protocols run under `switchsum run --baseline DIR`, which starts the ranks")
    return HostAssignment(**json.loads(text))


class _Calls(Protocol):
    """How calls are carried out."""

    def begin(self, name: str, array: Array, priority: int) -> int: ...

    def wait(self, serial: int) -> None: ...

    def ask(self, name: str) -> Any: ...

    def compute(self, seconds: float) -> None: ...


class Pending:
    """A call that has begun and may go on while the rank computes."""

    def __init__(self, calls: _Calls, serial: int, array: Array) -> None:
        self._calls, self._serial, self._array, self._is_done = calls, serial, array, False

    def wait(self) -> Array:
        """Wait until the call has ended, and return its array.

        Raises:
            RemoteError: The protocol has not finished in time.

        """
        if not self._is_done:
            self._calls.wait(self._serial)
            self._is_done = True
        return self._array


class ProtocolMember:
    """One rank of a job that another system's protocol adds for.

    Example:
        >>> from switchsum_lab.protocols.member import join
        >>> with join() as member:  # doctest: +SKIP
        ...     member.allreduce(gradient)

    """

    def __init__(self, place: HostAssignment, calls: _Calls) -> None:
        self._calls = calls
        self.rank = place.host
        self.world_size = place.workers

    def allreduce(self, array: Array) -> Array:
        """Sum an array over all ranks.

        Args:
            array: float32, contiguous; it gets the sum.

        Returns:
            The same array.

        Raises:
            UsageError: It is no such array.
            RemoteError: The protocol has not finished in time.

        """
        return self.allreduce_async(array).wait()

    def allreduce_async(self, array: Array, *, priority: int = 0) -> Pending:
        """Begin to sum an array over all ranks, and return at once.

        A protocol carries out one call at a time.  In virtual time it goes on while the ranks compute.  Of the calls
        that all ranks have begun, the one with the highest priority is next, and of equal ones the first.  On real
        links a call moves only while its rank waits, and calls keep their order.

        Args:
            array: float32, contiguous; it has the sum when the call has ended, and must stay as it is until then.
            priority: Greater ones go first; the same on all ranks.

        Returns:
            The call, whose `wait()` returns the array.

        Raises:
            UsageError: It is no such array.

        Example:
            >>> def step(member, last, first):
            ...     sums = [member.allreduce_async(last), member.allreduce_async(first, priority=1)]
            ...     member.compute(1e-3)
            ...     return [one.wait() for one in sums]

        """
        if array.dtype != np.float32 or not array.flags.c_contiguous or not array.flags.writeable:
            raise UsageError("another protocol's allreduce takes a contiguous array of float32 that can be written")
        return Pending(self._calls, self._calls.begin("allreduce", array.reshape(-1), priority), array)

    def barrier(self) -> None:
        """Wait for all ranks; raises RemoteError if they do not come in time."""
        self._calls.wait(self._calls.begin("barrier", np.zeros(0, np.float32), 0))

    def compute(self, seconds: float) -> None:
        """Let a computation take so long in virtual time; on real links nothing happens."""
        self._calls.compute(seconds)

    def statistics(self) -> Mapping[str, int]:
        """Return what the protocol has counted, with the frames and bytes that this rank has sent."""
        found: dict[str, int] = self._calls.ask("statistics")
        return found

    def now(self) -> float:
        """Return the time in seconds: of the machine's monotonic clock, or virtual."""
        return float(self._calls.ask("now"))


@contextmanager
def join() -> Iterator[ProtocolMember]:
    """Begin together with all ranks, and end together with them.

    Yields:
        The rank's side of the job.

    Raises:
        UsageError: The process was not started by `switchsum run --baseline`.

    """
    place = read_assignment()
    if not place.interface:
        with meet(place) as meeting:
            yield ProtocolMember(place, _VirtualCalls(meeting))
            meeting.send(("end",))
        return
    link = PacketLink(place.host, place.interface, loss=place.loss, seed=place.seed)
    calls = _RealCalls(load(place.directory), place, link)
    try:
        with meet(place) as meeting:
            meeting.recv()  # all have opened their links
            yield ProtocolMember(place, calls)
            meeting.send(("end",))
            meeting.recv()  # nobody waits for this rank's answers any more
    finally:
        calls.service.close()
        link.close()


@contextmanager
def meet(place: HostAssignment) -> Iterator[Connection[Any, Any]]:
    """Tell the launcher that this host is there; yields the connection."""
    end = socket.socket(socket.AF_UNIX)
    end.connect(place.meeting)
    with Connection(end.detach()) as meeting:
        meeting.send(place.host)
        yield meeting


class _RealCalls:
    """Calls on a real link."""

    def __init__(self, baseline: Baseline, place: HostAssignment, link: PacketLink) -> None:
        self._baseline, self._place, self._link = baseline, place, link
        self._peer = baseline.peer(place.world(), link)
        self.service = Service(link, self._peer.unasked)
        self._begun: list[tuple[str, Array]] = []
        self._ended = 0

    def begin(self, name: str, array: Array, priority: int) -> int:
        """Note a call: it moves when somebody waits for it, in the order of calls."""
        self._begun.append((name, array))
        return len(self._begun) - 1

    def wait(self, serial: int) -> None:
        """Carry out all calls up to this one."""
        while self._ended <= serial:
            name, array = self._begun[self._ended]
            self._begun[self._ended] = name, array[:0]  # an ended call keeps no array
            self._ended += 1
            self._call(name, array)

    def _call(self, name: str, array: Array) -> None:
        steps = self._peer.allreduce(array) if name == "allreduce" else self._peer.barrier()
        try:
            self.service.call(steps, self._place.timeout_s)
        except TimeoutError:
            raise late(self._baseline.name, name, self._place.timeout_s) from None

    def ask(self, name: str) -> Any:
        if name == "now":
            return time.monotonic()
        return {**statistics_of(self._peer), "frames": self._link.frames, "bytes": self._link.bytes}

    def compute(self, seconds: float) -> None:
        pass


class _VirtualCalls:
    """Calls that the launcher carries out in virtual time."""

    def __init__(self, meeting: Connection[Any, Any]) -> None:
        self._meeting = meeting
        self._arrays: dict[int, Array] = {}
        self._begun = 0

    def begin(self, name: str, array: Array, priority: int) -> int:
        """Hand a call to the launcher, which answers when this rank waits for it."""
        self._meeting.send(("begin", name, priority, array.tobytes()))
        self._arrays[self._begun] = array
        self._begun += 1
        return self._begun - 1

    def wait(self, serial: int) -> None:
        """Wait for a call's result."""
        self._meeting.send(("wait", serial))
        result, array = self._answer(), self._arrays.pop(serial)
        if result:
            array[:] = np.frombuffer(result, np.float32)

    def ask(self, name: str) -> Any:
        self._meeting.send((name,))
        return self._answer()

    def compute(self, seconds: float) -> None:
        self._meeting.send(("compute", seconds))
        self._answer()

    def _answer(self) -> Any:
        answer = self._meeting.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def late(protocol: str, call: str, seconds: float) -> RemoteError:
    """Return the error of a call that takes too long."""
    return RemoteError(f"{protocol} has not finished its {call} within {seconds:g} s: has another rank ended?")
