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

    def call(self, name: str, array: Array) -> None: ...

    def ask(self, name: str) -> Any: ...

    def compute(self, seconds: float) -> None: ...


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
        if array.dtype != np.float32 or not array.flags.c_contiguous or not array.flags.writeable:
            raise UsageError("another protocol's allreduce takes a contiguous array of float32 that can be written")
        self._calls.call("allreduce", array.reshape(-1))
        return array

    def barrier(self) -> None:
        """Wait for all ranks; raises RemoteError if they do not come in time."""
        self._calls.call("barrier", np.zeros(0, np.float32))

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

    def call(self, name: str, array: Array) -> None:
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
        self._now = 0.0

    def call(self, name: str, array: Array) -> None:
        self._meeting.send((name, array.tobytes()))
        result = self._answer()
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
