"""The exercises' P4 programs on real BMv2; needs root."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Final

from switchsum.testing.bmv2 import Bmv2Program
from switchsum_exercises.driver import Wrong
from switchsum_exercises.frames import GROUP, WORKERS, port_of
from switchsum_exercises.p4 import STATIONS, Compiled, no_stations, no_such_entry
from switchsum_protocol.errors import LocalError
from switchsum_switch.messages.p4runtime import P4RuntimeError
from switchsum_switch.process.start_limit import start_limit

IDLE_S: Final = 0.2
"""BMv2 has done all when its threads have slept for so long."""
LONGEST_S: Final = 10.0
"""Longest time that one frame may take, in seconds."""


class Bmv2Loader:
    """Runs programs on a BMv2, usable in a `with` block; each call gives it the program afresh."""

    def __init__(self) -> None:
        if shutil.which("simple_switch_grpc") is None:
            raise LocalError("simple_switch_grpc is not on PATH: install BMv2, or leave --switch out")
        if os.geteuid() != 0:
            raise LocalError("BMv2 has its ports in a network namespace, which needs root: sudo")
        self._engine: _Engine | None = None

    def __enter__(self) -> Bmv2Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._engine is not None:
            self._engine.bmv2.close()

    def __call__(self, program: Compiled) -> _Engine:
        """Give BMv2 a program; raises Wrong where it does not take it."""
        try:
            if self._engine is None:
                self._engine = _Engine(program)
            else:
                self._engine.bmv2.reset()
        except P4RuntimeError as error:
            raise Wrong(f"BMv2 does not take the program: {error.message}") from None
        self._engine.bmv2.set_group(GROUP, [(port_of(rank), rank) for rank in range(WORKERS)])
        return self._engine


class _Engine:
    """BMv2 with a program of an exercise."""

    def __init__(self, program: Compiled) -> None:
        self.bmv2 = Bmv2Program(program.document.encode(), program.p4info)
        self._tasks = Path(f"/proc/{self.bmv2.child.process.pid}/task")

    def insert_station(self, address: int, action: str, parameter: int) -> None:
        """Add an entry to the table of stations."""
        if STATIONS not in self.bmv2.schema.tables:
            raise no_stations()
        try:
            self.bmv2.insert(STATIONS, [address], f"SwitchIngress.{action}", [parameter])
        except P4RuntimeError as error:
            raise no_such_entry(action, error.message) from None

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run a frame through the program; return what leaves."""
        self.bmv2.send(port, frame)
        self._await_idle()
        return self.bmv2.collect(lambda _: False, 0.001)

    def _await_idle(self) -> None:
        """Wait until BMv2 has done all: its threads sleep, and go on sleeping.

        A program of a learner's answers no probe.  A thread that has work and waits for a processor does not sleep, so
        that a busy machine makes no difference.
        """
        limit_s = start_limit(LONGEST_S)
        asleep_s = now = time.monotonic()
        deadline = now + limit_s
        while now - asleep_s < IDLE_S:
            if now > deadline:
                raise LocalError(f"BMv2 has been busy with one frame for {limit_s:g} s")
            time.sleep(0.002)
            now = time.monotonic()
            if not self._sleeps():
                asleep_s = now

    def _sleeps(self) -> bool:
        # The state stands behind the thread's name, which is in parentheses (proc(5)).
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in self._tasks.iterdir()]
        return all(state in "SI" for state in states)
