"""A learner's P4 program on a switch, behind the interface of a switch in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final, Protocol

from switchsum_protocol.errors import UsageError
from switchsum_switch.errors import ProgramError, StateError
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry

from . import Exercise
from .driver import Attempt, Wrong
from .frames import BROADCAST, GROUP, WORKERS, Answers, Frame, decode, encode, port_of

COMPILER: Final = "p4c-bm2-ss"
STATIONS: Final = "SwitchIngress.stations"
COMPILE_TIMEOUT_S: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A program as p4c has compiled it."""

    document: str
    """BMv2's JSON."""
    p4info: str
    """P4Info in protobuf's text format, which BMv2 needs and the embedded switch does not."""


class Engine(Protocol):
    """A switch that runs a P4 program; its multicast group GROUP has the ports of all ranks."""

    def insert_station(self, address: int, action: str, parameter: int) -> None:
        """Add an entry to the table of stations; raises Wrong where the program has no such table or action."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run a frame through the program; return what leaves."""


class Stations(dict[int, int]):
    """Which address is behind which port, written to the program's table as well."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        engine.insert_station(BROADCAST, "flood", GROUP)

    def __setitem__(self, address: int, port: int) -> None:
        super().__setitem__(address, port)
        self._engine.insert_station(address, "forward", port)


class Embedded:
    """The embedded switch; its interpreter runs the program, which compiles nothing."""

    def __init__(self, program: Compiled) -> None:
        try:
            self._pipeline = Pipeline.load(program.document, engine="interpreter")
        except ProgramError as error:
            raise Wrong(f"the switch does not take the program: {error}") from None
        self._pipeline.multicast.set(GROUP, [(port_of(rank), rank) for rank in range(WORKERS)])

    def insert_station(self, address: int, action: str, parameter: int) -> None:
        """Add an entry to the table of stations."""
        if STATIONS not in self._pipeline.tables:
            raise no_stations()
        entry = Entry(match=(Exact(address),), action=f"SwitchIngress.{action}", params=(parameter,))
        try:
            self._pipeline.tables[STATIONS].insert(entry)
        except StateError as error:
            raise no_such_entry(action, str(error)) from None

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run a frame through the program; return what leaves."""
        return self._pipeline.process(port, frame)


def no_stations() -> Wrong:
    """Say that a program has no table of stations."""
    return Wrong(f"the program never applies table {STATIONS}; the skeleton has it")


def no_such_entry(action: str, reason: str) -> Wrong:
    """Say that the table of stations does not take an entry."""
    return Wrong(f"table {STATIONS} does not take an entry with SwitchIngress.{action}: {reason}")


class P4Switch:
    """A P4 program on a switch, behind the interface of a switch in Python."""

    def __init__(self, engine: Engine, *, has_stations: bool) -> None:
        self._engine = engine
        if has_stations:
            self.stations = Stations(engine)

    def process(self, port: int, frame: Frame) -> Answers:
        """Run a frame through the program; return what leaves."""
        answers = []
        for left, data in self._engine.process(port, encode(frame)):
            try:
                answers.append((left, decode(data)))
            except ValueError as error:
                raise Wrong(f"what left port {left} is no frame of this exercise: {error}") from None
        return answers


def compile_program(source: Path) -> Compiled:
    """Return what p4c makes of a program; raises Wrong with p4c's words, UsageError without p4c or the file."""
    if not source.is_file():
        raise UsageError(f"{source} is not there: switchsum exercise start makes it")
    if shutil.which(COMPILER) is None:
        raise UsageError(f"{COMPILER} is not on PATH: install p4c; --solution --p4 and the form in Python do without")
    with tempfile.TemporaryDirectory() as folder:
        made, p4info = Path(folder) / "made.json", Path(folder) / "made.p4info.txtpb"
        command = [COMPILER, "--std", "p4-16", "--p4runtime-files", str(p4info), "-o", str(made), source.name]
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
        if done.returncode != 0 or not made.is_file():
            first = [line for line in done.stderr.splitlines() if "error" in line] or ["p4c says nothing more"]
            raise Wrong(f"p4c does not take {source.name}: {first[0]}")
        document = json.loads(made.read_text()) | {"program": source.name}
        return Compiled(document=json.dumps(document, separators=(",", ":")) + "\n", p4info=p4info.read_text())


def attempt_of(exercise: Exercise, folder: Path, name: str, load: Callable[[Compiled], Engine] = Embedded) -> Attempt:
    """Return an attempt in P4; a compiled program beside the source is used for the solution, which comes with one.

    `load` makes the switch that runs it, afresh each time.
    """
    if not exercise.has_p4:
        raise UsageError(f"exercise {exercise.number} is in Python alone: leave --p4 out")
    compiled = folder / f"{name}.json"
    if folder == exercise.folder and compiled.is_file():
        p4info = compiled.with_suffix(".p4info.txtpb").read_text()
        program = Compiled(document=compiled.read_text(), p4info=p4info)
    else:
        program = compile_program(folder / f"{name}.p4")
    has_stations = exercise.name == "forwarder"

    def switch(_: int) -> P4Switch:
        return P4Switch(load(program), has_stations=has_stations)

    return Attempt(SimpleNamespace(Switch=switch), f"{name}.p4")
