"""A switch written in Python, behind the seam at which the loop calls a compiled program.

The loop calls code by its address, with the frame's address and the columns of an output (`execution/entry.py`).  Here
that code is a callback: it hands the frame to a Python object, and writes what the object returns into the output.
A call without frames says that a time has come for which the object has asked.
"""

from __future__ import annotations

import ctypes
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import numpy as np

from switchsum_protocol.errors import UsageError
from switchsum_switch.execution.entry import ENTRY_WORDS
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.queues.batch import FRAME_ALIGN, CodeEntry, Output
from switchsum_switch.queues.queues import PORTS
from switchsum_switch.state.lock import StateLock

from .records import NEVER, PICOSECONDS

Made = list[tuple[int, bytes]]
"""The frames that leave a switch, each with its port."""
MOST_FRAMES: Final = PORTS
"""Most frames that a switch in Python may make of one frame: a copy for each port."""
_CODE: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 15)
"""What `call_program` calls: context, three columns of frames, their number, the time, and nine words of an output."""


class DataPlane(Protocol):
    """What somebody writes who has an idea for a switch: frames in, frames out.

    Example:
        >>> class Hub:
        ...     '''Sends each frame to all other ports.'''
        ...     def process(self, port, frame):
        ...         return [(other, frame) for other in (1, 2, 3) if other != port]

    """

    def process(self, port: int, frame: bytes) -> Iterable[tuple[int, bytes]] | None:
        """Take a frame that has come to a port; return the frames that leave, each with its port; None: none leaves.

        What the switch remembers is its own: numpy arrays are its registers.
        """
        ...


class ClockedPlane(Protocol):
    """A switch that knows the time."""

    def process(self, port: int, frame: bytes, now: float) -> Iterable[tuple[int, bytes]] | None:
        """Take a frame as `DataPlane.process` does, and the time in seconds."""
        ...


class TimedPlane(ClockedPlane, Protocol):
    """A switch that may do something when no frame comes.

    Example:
        >>> class Slow:
        ...     '''Sends each frame back after a millisecond.'''
        ...     until = None
        ...     def process(self, port, frame, now):
        ...         self.port, self.frame, self.until = port, frame, now + 1e-3
        ...     def tick(self, now):
        ...         return [(self.port, self.frame)]

    """

    until: float | None
    """When `tick` is called next, in seconds of virtual time; None: never.  It is None again when `tick` is called."""

    def tick(self, now: float) -> Iterable[tuple[int, bytes]] | None:
        """Return the frames that leave now that the time has come."""
        ...


Plane = DataPlane | ClockedPlane | TimedPlane
"""What a switch in Python may be."""


class PythonSwitch:
    """A switch whose data plane is a Python object.

    Example:
        >>> network = Network()  # doctest: +SKIP
        >>> network.python_switch("s1", Hub())  # doctest: +SKIP

    """

    queue_count: Final = 1
    sees_waiting: Final = False
    """Its packets wait behind it, on their links."""

    def __init__(self, plane: Plane) -> None:
        self.plane = plane
        self.now_s: Callable[[], float] = float
        """Returns the time: 0 until the switch is in a network."""
        self.timer = np.full(1, NEVER, np.int64)
        """When it is called without a frame next, in picoseconds."""
        self.error: BaseException | None = None
        """What the data plane has raised; from then on the switch drops every frame."""
        self.on_error: Callable[[], object] = bool
        """Called when the data plane has raised: no exception passes through the loop."""
        self.lock = StateLock()
        self._output = Output(0, 0)
        self._result = np.zeros(2, np.uint64)
        self._code = _CODE(self._run)
        self._process: Callable[..., Iterable[tuple[int, bytes]] | None] = plane.process
        self._takes_time = _takes_time(plane)

    def process(self, port: int, frame: bytes) -> Made:
        """Run one frame, as `Switch.process` does; raises UsageError where the data plane returns something else."""
        times = (self.now_s(),) if self._takes_time else ()
        return _checked("process", self._process(port, frame, *times))

    def tick(self) -> Made:
        """Call the data plane if the time has come for which it has asked; raises UsageError as `process` does."""
        now_s = self.now_s()
        if self.due() > round(now_s * PICOSECONDS):
            return []
        tick: Callable[[float], Iterable[tuple[int, bytes]] | None] | None = getattr(self.plane, "tick", None)
        if tick is None:
            raise UsageError("a switch that sets until has a method tick(now), which is called at that time")
        self.plane.until = None  # type: ignore[union-attr]
        made = _checked("tick", tick(now_s))
        if self.due() <= round(now_s * PICOSECONDS):
            raise UsageError(f"a switch's tick sets until to a time that is over: {self.plane.until} s")  # type: ignore[union-attr]
        return made

    def due(self) -> int:
        """Return when the data plane wants to be called, in picoseconds; raises UsageError for what is no time."""
        until: Any = getattr(self.plane, "until", None)
        if until is None or until == math.inf:
            return NEVER
        if not isinstance(until, int | float | np.number) or not math.isfinite(until):
            raise UsageError(f"a switch's until is a time in seconds or None, not {until!r}")
        return min(NEVER, round(until * PICOSECONDS))

    # What the loop needs of a program.

    def room(self, frame_bytes: int) -> tuple[int, int]:
        """Return how many frames and bytes of an output one frame may need."""
        return MOST_FRAMES, MOST_FRAMES * (frame_bytes + FRAME_ALIGN)

    def entry(self, output: Output) -> CodeEntry:
        """Return how the loop calls this switch with `output`."""
        self._output = output
        arguments = np.zeros(ENTRY_WORDS, np.int64)
        arguments[0] = ctypes.cast(self._code, ctypes.c_void_p).value or 0
        return CodeEntry(arguments, self._result)

    def park_in(self, pool: int) -> None:
        """Do nothing: no packet waits between ingress and egress, for there is no egress."""

    def place_bytes(self, frame_bytes: int) -> int:
        """Raise UsageError: there is no egress, before which packets could wait."""
        raise UsageError("a switch in Python has no egress, before which packets could wait")

    def _run(self, _context: int, addresses: int, lengths: int, ports: int, count: int, *_: int) -> int:
        """Run frames, whose columns lie at three addresses, and put into the output what comes of them."""
        made: Made = []
        try:
            if count == 0 and self.error is None:
                made = self.tick()
            for row in range(count) if self.error is None else ():
                length = ctypes.c_uint32.from_address(lengths + 4 * row).value
                frame = ctypes.string_at(ctypes.c_uint64.from_address(addresses + 8 * row).value, length)
                made += self.process(ctypes.c_uint32.from_address(ports + 4 * row).value, frame)
            self._put(made)
            self.timer[0] = self.due() if self.error is None else NEVER
        except BaseException as error:  # Ctrl-C, too
            self.error = error
            self.timer[0] = NEVER
            self._result[:] = 0
            self.on_error()
        return count

    def _put(self, made: Made) -> None:
        """Write frames into the output, one behind the other."""
        output, used = self._output, 0
        start, size = address_of(output.arena), len(output.arena)
        if len(made) > MOST_FRAMES or sum(len(frame) + FRAME_ALIGN for _, frame in made) > size:
            raise UsageError(
                f"a switch's process makes {len(made)} frames at once, which is more than there is room for"
            )
        for row, (port, frame) in enumerate(made):
            ctypes.memmove(start + used, frame, len(frame))
            output.ports[row], output.addresses[row], output.lengths[row] = port, start + used, len(frame)
            output.heads[row], output.bodies[row] = len(frame), 0
            used += -(-len(frame) // FRAME_ALIGN) * FRAME_ALIGN
        self._result[0], self._result[1] = len(made), 0


def _takes_time(plane: Plane) -> bool:
    """Whether a data plane's process has a third argument, the time."""
    arguments = inspect.signature(plane.process).parameters.values()
    return len(arguments) > 2 or any(one.kind == one.VAR_POSITIONAL for one in arguments)


def _checked(method: str, given: Iterable[tuple[int, bytes]] | None) -> Made:
    """Return the frames that a method of a data plane has returned; raises UsageError where it returns others."""
    made: Made = []
    for out in given or ():
        try:
            number, data = out
            number, data = int(number), bytes(data)
        except (TypeError, ValueError):
            raise UsageError(f"a switch's {method} returns pairs of a port and a frame, not {out!r}") from None
        if not 0 <= number < PORTS or not data:
            raise UsageError(
                f"a switch's {method} sends {len(data)} bytes to port {number}: ports are 0 to {PORTS - 1}, and no "
                "frame is empty"
            )
        made.append((number, data))
    return made
