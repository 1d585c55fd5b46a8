"""What links give to `connect`: a worker's link, or its several links, as one object that a text names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from switchsum_protocol.member_rpc import ReadyReply

from ..engine.engine import Engine
from ..engine.loop import Driver
from .base import LinkListener, Transport
from .names import check_link, is_several, open_transport

if TYPE_CHECKING:
    from switchsum_switch.process.trace import Trace


class WorkerLink(Protocol):
    """How one worker reaches the switch; `open` comes first, then `take_slots`, then `drive`."""

    @property
    def rates(self) -> Sequence[float]:
        """Return the rates of several links in Mbit/s, 0 where one is not known; empty: there is one link."""
        ...

    def most_in_flight(self, world_size: int) -> Mapping[str, int]:
        """Return how many bytes may be in flight, as `Membership` takes it."""
        ...

    def open(self, **arguments: Any) -> Transport:
        """Open it, as `open_transport` opens a link; raises TransportError."""
        ...

    @property
    def transports(self) -> Sequence[Transport]:
        """Return each link by itself, open: a member says hello over all of them."""
        ...

    def take_slots(self, ready: ReadyReply) -> None:
        """Share the slots of an admitted member out among the links; raises UsageError."""
        ...

    def drive(self, engine: Engine, listener: LinkListener, trace: Trace | None) -> Driver:
        """Return the driver of an engine on it; `listener` is whom to tell of a link that is dead."""
        ...


def worker_link(text: str) -> WorkerLink:
    """Return the link, or the several links, that a text names; raises UsageError."""
    if is_several(text):
        from .watching import WatchedLinks  # noqa: PLC0415 - most workers have one link

        return WatchedLinks(text)
    return OneLink(text)


class OneLink:
    """The link of a worker that has one."""

    rates: Sequence[float] = ()

    def __init__(self, name: str) -> None:
        check_link(name)
        self._name = name
        self._kind = name.partition(":")[0]

    def most_in_flight(self, world_size: int) -> Mapping[str, int]:
        """Return what a socket's buffer holds, or a cache that all workers share."""
        if self._kind == "udp":
            from switchsum_switch.wires.messages import receive_bytes  # noqa: PLC0415 - a worker imports its own link

            return {"receive_bytes": receive_bytes()}
        if self._kind == "shm":
            from .shm import cached_bytes  # noqa: PLC0415

            return {"window_bytes": cached_bytes(world_size)}
        return {}

    def open(self, **arguments: Any) -> Transport:
        """Open it; raises TransportError."""
        self._transport = open_transport(self._name, **arguments)
        return self._transport

    @property
    def transports(self) -> Sequence[Transport]:
        """Return the link."""
        return [self._transport]

    def take_slots(self, ready: ReadyReply) -> None:
        """Do nothing: all slots are this link's."""

    def drive(self, engine: Engine, listener: LinkListener, trace: Trace | None) -> Driver:
        """Return the driver of an engine on it."""
        return Driver(engine, self._transport, trace=trace)
