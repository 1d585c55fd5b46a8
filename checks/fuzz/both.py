"""Our program in native code beside the interpreter, which says what is right."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np

from checks.fuzz.guard import Guarded
from switchsum.testing.embedded import Embedded
from switchsum_switch.queues.batch import Output

REGISTERS: Final = ("tags", "seen_members", "outcomes")


class Both:
    """Two switches that get the same frames."""

    def __init__(self, lanes: int) -> None:
        self.native = Embedded(lanes, "native", debug=True)
        self.interpreted = Embedded(lanes, "interpreter")
        self._memory = Guarded(65536)

    @cached_property
    def _output(self) -> Output:
        """Made with the first frame, as the multicast groups that stand by then say how much room it takes."""
        return Output(*self.native.pipeline.room(65536))

    def run(self, port: int, frame: bytes) -> None:
        """Run a frame through both, and compare what comes out."""
        view = self._memory.place(frame)
        lengths, ports = (np.array([number], np.uint32) for number in (len(frame), port))
        columns = np.array([view.ctypes.data], np.uint64), lengths, ports
        assert self.native.pipeline.process_batch(*columns, 1, self._output) == 1
        assert self._output.frames() == self.interpreted.process(port, frame), (port, frame.hex())

    def compare(self) -> None:
        """Compare what stays in both."""
        for name in REGISTERS:
            register = f"SwitchIngress.dispatch.cells.{name}"
            one, other = (engine.pipeline.registers[register] for engine in (self.native, self.interpreted))
            assert np.array_equal(one.memory, other.memory), name
