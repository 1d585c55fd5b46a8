"""Several links, watched: one that is dead is left out, and its slots go over the others.

A link is dead when its interface is down or gone or takes no whole frames any more, or when nothing is answered on it
while others answer.  Silence by itself says nothing: the switch may be away.  So frames of a link that has been silent
for a while, though the switch owes answers on it, go over another one as well.  If the switch answers there, and still
not here, that is the link's fault.

Rails lead to several switches, and no other link can prove anything.  There a link counts as dead when nothing was
answered on it for longer than a switch takes to restart, while not all others are silent.  Whether it is the link or
the switch is the same to its slots.  The controller says when all leave it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy.typing as npt

from switchsum_protocol.member_rpc import ReadyReply
from switchsum_switch.wires.messages import receive_bytes
from switchsum_switch.wires.packetsocket import is_running, longest_frame

from ..engine.engine import Engine, Outcome
from ..engine.loop import Driver
from ..engine.operation import Operation
from .base import LinkListener, Transport
from .names import split_links
from .several import NOWHERE, SeveralLinks, open_several, rates_of

if TYPE_CHECKING:
    from switchsum_switch.process.trace import Trace

_log: Final = logging.getLogger("switchsum.host.links.watching")

LOOK_S: Final = 0.1
"""Seconds between two looks."""
SILENT_S: Final = 2.0
"""Seconds without an answer after which a link is suspected: several repeats of each slot."""
PROOF_S: Final = 1.0
"""Seconds that the other links must answer, and this one not, before it is declared dead."""
PROOF_FRAMES: Final = 4
"""And so many of its frames must have gone without an answer."""
RAIL_SILENT_S: Final = 5.0
"""Seconds without an answer after which a rail is dead, unless all others are silent, too. Restarts take less."""
MOST_STRIKES: Final = 3
"""Number of times that a link may go on only after another one had to carry its frames: results may come where nothing
goes.
"""
FORGIVEN_S: Final = 60.0
"""Seconds without such a time after which they are forgotten."""


class _Silence:
    """What is known of one link's silence."""

    def __init__(self) -> None:
        self.came = self.sent = 0
        """Frames that had come when one came last, and that had been sent then."""
        self.silent_s = 0.0
        self.others = -1
        """Number of frames that had come over other links when this one came to be suspected. -1: it is not suspected.
        """
        self.mirrored = 0
        """Frames that had been sent then."""
        self.proof_s = 0.0
        """Seconds that others have answered since."""


class LinkWatch:
    """Looks after the links of one worker."""

    def __init__(
        self,
        links: SeveralLinks,
        listener: LinkListener,
        runs: Callable[[str], bool] = is_running,
        longest: Callable[[str], int] = longest_frame,
    ) -> None:
        """Look after `links`; `listener` is whom to tell of one that is dead.

        `runs` tells whether an interface does, and `longest` the bytes of the longest frame that one takes.
        """
        self._links = links
        self._listener = listener
        self._runs = runs
        self._longest = longest
        self._silences = [_Silence() for _ in links.links]
        self._strikes: list[list[float]] = [[] for _ in links.links]
        """When each link went on only with the help of another."""
        self._looked_at = 0.0
        self._dead: set[int] = set()
        """Links of which the others were told."""

    def look(self, now: float) -> bool:
        """Look at all links, now and then; return whether slots have got other links."""
        passed_s = now - self._looked_at
        if passed_s < LOOK_S:
            return False
        self._looked_at = now
        links = self._links
        down = set(links.down) | set(self._listener.links_down)
        if len(down) == len(links.names):  # the others have lost just what is left here: for this one it works
            down = set(links.down)
        for link, name in enumerate(links.names):
            if link in down | self._dead or len(down) + 1 == len(links.names):  # the last one is never left out
                continue
            if reason := self._fault(link, name, now, min(passed_s, LOOK_S), down):
                self._dead.add(link)
                self._listener.tell_down(link, reason)
                if links.has_rails:
                    _log.warning("link %s is dead: %s", name, reason)
                    continue
                _log.warning("goes on without link %s: %s", name, reason)
                down.add(link)
        if down == links.down:
            return False
        for link in down:
            links.mirror(link, NOWHERE)
        links.do_without(sorted(down))
        return True

    def _fault(self, link: int, name: str, now: float, passed_s: float, down: Collection[int]) -> str:
        """Say why a link is dead; empty if it is not, as far as one can tell."""
        kind, _, interface = name.partition(":")
        if kind == "packet" and (reason := self._interface_fault(interface)):
            return reason
        links, silence = self._links, self._silences[link]
        came, sent = int(links.came[link]), int(links.sent[link])
        others = int(links.came.sum()) - came
        if came != silence.came or sent == silence.sent:
            if 0 <= silence.others < others:
                strikes = [at for at in self._strikes[link] if now - at < FORGIVEN_S]
                self._strikes[link] = [*strikes, now]
                if len(strikes) + 1 >= MOST_STRIKES:
                    return "its frames reach the switch only over another link"
            self._silences[link] = silence = _Silence()
            silence.came, silence.sent = came, sent
            links.mirror(link, NOWHERE)
            return ""
        silence.silent_s += passed_s
        if links.has_rails:
            return self._rail_fault(link, sent, down)
        if silence.others < 0:
            other = self._other(link, down)
            if silence.silent_s >= SILENT_S and other != NOWHERE:
                silence.others, silence.mirrored = others, sent
                links.mirror(link, other)
            return ""
        if others > silence.others:
            silence.proof_s += passed_s
        if silence.proof_s >= PROOF_S and sent - silence.mirrored >= PROOF_FRAMES:
            return f"no answer for {silence.silent_s:.1f} s, while other links have answers"
        return ""

    def _interface_fault(self, interface: str) -> str:
        if not self._runs(interface):
            return f"interface {interface} is down, or has no carrier"
        # Frames without lanes still pass, and their answers come.
        if (longest := self._longest(interface)) < self._links.max_frame_bytes:
            return f"interface {interface} takes frames of {longest} bytes, not {self._links.max_frame_bytes}"
        return ""

    def _rail_fault(self, link: int, sent: int, down: Collection[int]) -> str:
        """Say why a rail is dead; empty if it is not, as far as one can tell."""
        silence = self._silences[link]
        others = [one for other, one in enumerate(self._silences) if other != link and other not in down]
        if all(one.silent_s >= RAIL_SILENT_S / 2 for one in others):  # this worker's machine, or all switches
            silence.silent_s = min(silence.silent_s, RAIL_SILENT_S / 2)
        if silence.silent_s < RAIL_SILENT_S or sent - silence.sent < PROOF_FRAMES:
            return ""
        return f"no answer for {silence.silent_s:.1f} s, while another link is not silent"

    def _other(self, link: int, down: Collection[int]) -> int:
        """Return the best link beside one that is suspected: the fastest of those that are not."""
        fit = [
            other
            for other in range(len(self._silences))
            if other != link and other not in down and self._silences[other].others < 0
        ]
        return max(fit, key=lambda other: self._links.rates[other], default=NOWHERE)


class WatchedLinks:
    """The links of a worker that has several, as `connect` uses them (a `WorkerLink`)."""

    def __init__(self, text: str) -> None:
        self._named = split_links(text)
        self.rates = rates_of(self._named)
        """Rates in Mbit/s. 0: not known."""

    def most_in_flight(self, world_size: int) -> Mapping[str, int]:
        """Return what a socket's buffer holds: each link may have to carry all."""
        return {"receive_bytes": receive_bytes()} if any(link.name.startswith("udp:") for link in self._named) else {}

    def open(self, **arguments: Any) -> SeveralLinks:
        """Open all of them; raises TransportError, and then none is open."""
        self._links = open_several(self._named, **arguments)
        return self._links

    @property
    def transports(self) -> Sequence[Transport]:
        """Return each link by itself."""
        return self._links.links

    def take_slots(self, ready: ReadyReply) -> None:
        """Share the slots out among the links; raises UsageError."""
        self._links.take_slots(ready)

    def drive(self, engine: Engine, listener: LinkListener, trace: Trace | None) -> Driver:
        """Return a driver that looks after the links as well."""
        return WatchingDriver(engine, self._links, listener, trace=trace)


class WatchingDriver(Driver):
    """A driver of several links, which looks after them as well."""

    transport: SeveralLinks

    def __init__(
        self, engine: Engine, transport: SeveralLinks, listener: LinkListener, *, trace: Trace | None = None
    ) -> None:
        super().__init__(engine, transport, trace=trace)
        self._watch = LinkWatch(transport, listener)
        self._links = transport
        self._share_out()

    def step(self, most_s: float) -> deque[Outcome]:
        """Do what a driver does, and look at the links."""
        self._look()
        return super().step(most_s)

    def submit(
        self, operation: Operation, values: npt.NDArray[Any] | None, most_s: float, timeout_s: float | None = None
    ) -> deque[Outcome]:
        """Do what a driver does, and look at the links."""
        self._look()
        return super().submit(operation, values, most_s, timeout_s)

    def _look(self) -> None:
        if self._watch.look(self.clock()):
            self._share_out()
            if self._links.has_rails:  # slots have got cells that know nothing of their rounds
                self.engine.restarted(self.clock())

    def _share_out(self) -> None:
        """Tell the engine which way each slot has: it takes a slot for overtaken by results of its own way alone."""
        self.engine.share_out(self._links.ways[: len(self.engine.state.slots)])
