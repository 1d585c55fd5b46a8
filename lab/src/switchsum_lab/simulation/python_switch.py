"""A switch written in Python, behind the seam at which the loop calls a compiled program.

The loop calls code by its address, with the frame's address and the columns of an output (`execution/entry.py`).  Here
that code is a callback: it hands the frame to a Python object, and writes what the object returns into the output.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import numpy as np

from switchsum_protocol.errors import UsageError
from switchsum_switch.execution.entry import ENTRY_WORDS
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.queues.batch import FRAME_ALIGN, CodeEntry, Output
from switchsum_switch.queues.queues import PORTS
from switchsum_switch.state.lock import StateLock

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


class PythonSwitch:
    """A switch whose data plane is a Python object.

    Example:
        >>> network = Network()  # doctest: +SKIP
        >>> network.python_switch("s1", Hub())  # doctest: +SKIP

    """

    queue_count: Final = 1
    sees_waiting: Final = False
    """Its packets wait behind it, on their links."""

    def __init__(self, plane: DataPlane) -> None:
        self.plane = plane
        self.error: BaseException | None = None
        """What the data plane has raised; from then on the switch drops every frame."""
        self.on_error: Callable[[], object] = bool
        """Called when the data plane has raised: no exception passes through the loop."""
        self.lock = StateLock()
        self._output = Output(0, 0)
        self._result = np.zeros(2, np.uint64)
        self._code = _CODE(self._run)

    def process(self, port: int, frame: bytes) -> Made:
        """Run one frame, as `Switch.process` does; raises UsageError where the data plane returns something else."""
        made: Made = []
        for out in self.plane.process(port, frame) or ():
            try:
                number, data = out
                number, data = int(number), bytes(data)
            except (TypeError, ValueError):
                raise UsageError(f"a switch's process returns pairs of a port and a frame, not {out!r}") from None
            if not 0 <= number < PORTS or not data:
                raise UsageError(
                    f"a switch's process sends {len(data)} bytes to port {number}: ports are 0 to {PORTS - 1}, and no "
                    "frame is empty"
                )
            made.append((number, data))
        return made

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

    def park_in(self, lot: int) -> None:
        """Do nothing: no packet waits between ingress and egress, for there is no egress."""

    def place_bytes(self, frame_bytes: int) -> int:
        """Raise UsageError: there is no egress, before which packets could wait."""
        raise UsageError("a switch in Python has no egress, before which packets could wait")

    def _run(self, _context: int, addresses: int, lengths: int, ports: int, count: int, *_: int) -> int:
        """Run frames, whose columns lie at three addresses, and put into the output what comes of them."""
        made: Made = []
        try:
            for row in range(count) if self.error is None else ():
                length = ctypes.c_uint32.from_address(lengths + 4 * row).value
                frame = ctypes.string_at(ctypes.c_uint64.from_address(addresses + 8 * row).value, length)
                made += self.process(ctypes.c_uint32.from_address(ports + 4 * row).value, frame)
            self._put(made)
        except BaseException as error:  # Ctrl-C, too
            self.error = error
            self._result[:] = 0
            self.on_error()
        return count

    def _put(self, made: Made) -> None:
        """Write frames into the output, one behind the other."""
        output, used = self._output, 0
        start, room = address_of(output.arena), len(output.arena)
        if len(made) > MOST_FRAMES or sum(len(frame) + FRAME_ALIGN for _, frame in made) > room:
            raise UsageError(
                f"a switch's process makes {len(made)} frames of one, which is more than there is room for"
            )
        for row, (port, frame) in enumerate(made):
            ctypes.memmove(start + used, frame, len(frame))
            output.ports[row], output.addresses[row], output.lengths[row] = port, start + used, len(frame)
            output.heads[row], output.bodies[row] = len(frame), 0
            used += -(-len(frame) // FRAME_ALIGN) * FRAME_ALIGN
        self._result[0], self._result[1] = len(made), 0
