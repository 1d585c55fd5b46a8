"""A learner's P4 program on the embedded switch, behind the interface of a switch in Python."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from switchsum.protocol.errors import UsageError
from switchsum.switch.errors import ProgramError, StateError
from switchsum.switch.pipeline import EngineName, Pipeline
from switchsum.switch.tables import Entry, Exact

from . import Exercise
from .driver import Attempt, Wrong
from .frames import BROADCAST, GROUP, WORKERS, Answers, Frame, decode, encode, port_of

COMPILER: Final = "p4c-bm2-ss"
STATIONS: Final = "SwitchIngress.stations"
COMPILE_TIMEOUT_S: Final = 300


class Stations(dict[int, int]):
    """Which address is behind which port, written to the program's table as well."""

    def __init__(self, pipeline: Pipeline) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._insert(BROADCAST, "flood", GROUP)

    def __setitem__(self, address: int, port: int) -> None:
        super().__setitem__(address, port)
        self._insert(address, "forward", port)

    def _insert(self, address: int, action: str, parameter: int) -> None:
        if STATIONS not in self._pipeline.tables:
            raise Wrong(f"the program never applies table {STATIONS}; the skeleton has it")
        entry = Entry(match=(Exact(address),), action=f"SwitchIngress.{action}", params=(parameter,))
        try:
            self._pipeline.tables[STATIONS].insert(entry)
        except StateError as error:
            raise Wrong(f"table {STATIONS} does not take an entry with SwitchIngress.{action}: {error}") from None


class P4Switch:
    """A P4 program and its state; the interpreter runs it unless told otherwise, which compiles nothing."""

    def __init__(self, document: str, *, has_stations: bool, engine: EngineName = "interpreter") -> None:
        try:
            self._pipeline = Pipeline.load(document, engine=engine)
        except ProgramError as error:
            raise Wrong(f"the switch does not take the program: {error}") from None
        self._pipeline.multicast.set(GROUP, [(port_of(rank), rank) for rank in range(WORKERS)])
        if has_stations:
            self.stations = Stations(self._pipeline)

    def process(self, port: int, frame: Frame) -> Answers:
        """Run a frame through the program; return what leaves."""
        answers = []
        for left, data in self._pipeline.process(port, encode(frame)):
            try:
                answers.append((left, decode(data)))
            except ValueError as error:
                raise Wrong(f"what left port {left} is no frame of this exercise: {error}") from None
        return answers


def compile_program(source: Path) -> dict[str, Any]:
    """Return what p4c makes of a program; raises Wrong with p4c's words, UsageError without p4c or the file."""
    if not source.is_file():
        raise UsageError(f"{source} is not there: switchsum exercise start makes it")
    if shutil.which(COMPILER) is None:
        raise UsageError(f"{COMPILER} is not on PATH: install p4c; --solution --p4 and the form in Python do without")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.json"
        command = [COMPILER, "--std", "p4-16", "-o", str(made), source.name]
        done = subprocess.run(
            command, cwd=source.parent, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
        )
        if done.returncode != 0 or not made.is_file():
            first = [line for line in done.stderr.splitlines() if "error" in line] or ["p4c says nothing more"]
            raise Wrong(f"p4c does not take {source.name}: {first[0]}")
        document: dict[str, Any] = json.loads(made.read_text())
    document["program"] = source.name
    return document


def attempt_of(exercise: Exercise, folder: Path, name: str, engine: EngineName = "interpreter") -> Attempt:
    """Return an attempt in P4; a compiled program beside the source is used for the solution, which comes with one."""
    if not exercise.has_p4:
        raise UsageError(f"exercise {exercise.number} is in Python alone: leave --p4 out")
    compiled = folder / f"{name}.json"
    if folder == exercise.folder and compiled.is_file():
        document = compiled.read_text()
    else:
        document = json.dumps(compile_program(folder / f"{name}.p4"))
    has_stations = exercise.name == "forwarder"

    def switch(_: int) -> P4Switch:
        return P4Switch(document, has_stations=has_stations, engine=engine)

    return Attempt(SimpleNamespace(Switch=switch), f"{name}.p4")
