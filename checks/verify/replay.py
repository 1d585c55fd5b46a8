"""What a switch and a controller have done, replayed in the model: slot.pml and controller.pml have to do the same."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from .hand_over import Gate, Move, What
from .relation import CONTROLLER, HAND_OVER, Data, Decision, Step
from .search import MODELS, SearchError
from .switches import MOST, NONE, NUMBERS, State
from .worker_rules import macros

MODEL: Final = "replay.pml"
TIMEOUT_S: Final = 300
POSSIBLE: Final = 7
Edits = Mapping[str, tuple[str, str]]
"""By name of a file of the model, what is to be another text there."""


def differences(steps: Iterable[Step], moves: Iterable[Move] = (), edits: Edits | None = None) -> str:
    """Return how the model goes wrong with a step, or nothing if it does as switch and controller did in all of them.

    What the controller asks a switch is no step of the model, which reads the cells without a frame.

    Raises SearchError when the model cannot be run.
    """
    chosen = [step for step in steps if step.what.incarnation != CONTROLLER or step.what == HAND_OVER]
    with tempfile.TemporaryDirectory(prefix="switchsum-replay-") as name:
        folder = Path(name)
        for source in MODELS.glob("*.pml"):
            text = source.read_text()
            if edits and source.name in edits:
                before, after = edits[source.name]
                if text.count(before) != 1:
                    raise SearchError(f"{source.name} has {before!r} {text.count(before)} times")
                text = text.replace(before, after)
            (folder / source.name).write_text(text)
        (folder / "steps.h").write_text(_header(chosen, list(moves)))
        definitions = [f"-D{macro}={value}" for macro, value in macros({}).items()]
        _run(["spin", "-a", *definitions, MODEL], folder)
        _run(["gcc", "-O0", "-DSAFETY", "-DNOREDUCE", "-w", "-o", "pan", "pan.c"], folder)
        text = _run(["./pan", f"-m{10 * len(chosen) + 1000}"], folder)
    if "errors: 0" in text:
        return ""
    said = [line for line in text.splitlines() if line.startswith(("differs", "pan:")) and "trail" not in line]
    return "\n".join(said) or text


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0 or "rror:" in done.stdout or "depth too small" in done.stdout:
        raise SearchError(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def _header(steps: list[Step], moves: list[Move]) -> str:
    """Return the steps as arrays of C."""
    idle = {move.workers: Data(workers=move.workers, blocks=(0,) * (2 * move.workers)) for move in moves}
    data = {each: place for place, each in enumerate(dict.fromkeys([*(step.data for step in steps), *idle.values()]))}
    all_rows = [_row(data[step.data], step) for step in steps]
    all_rows += [_row_of_move(data[idle[move.workers]], move) for move in moves]
    rows = ",\n".join(map(_braced, all_rows))
    chosen = ",\n".join(_braced(_choice(each)) for each in data)
    return (
        f"static const unsigned char DATA[][{3 + 2 * MOST}] = {{\n{chosen}\n}};\n"
        f"enum {{ STEP_COUNT = {len(all_rows)} }};\n"
        f"static const unsigned char STEPS[][54] = {{\n{rows}\n}};\n"
    )


def _braced(values: Iterable[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _choice(data: Data) -> list[int]:
    padding = [0] * (MOST - data.workers)
    blocks = [*data.blocks[: data.workers], *padding, *data.blocks[data.workers :], *padding]
    return [data.workers, data.odd_worker, data.odd_operation, *blocks]


def _row(place: int, step: Step) -> list[int]:
    gate, base = (Gate.HANDED_OVER, step.before.base % NUMBERS) if step.before.base >= 0 else (Gate.OPEN, 0)
    if step.what == HAND_OVER:
        gate, decision, results, what = Gate.CLOSED, POSSIBLE, step.after.base % NUMBERS, [int(What.HAND_OVER), 0, NONE]
    else:
        decision, what = int(step.decision), list(step.what)
        gets = (
            {port - 1 for port, _, _ in step.replies}
            if step.decision in (Decision.REPEATED, Decision.COMPLETED)
            else set()
        )
        results = sum(1 << rank for rank in gets)
    cells = [value for slot in (step.before, step.after) for cell in slot.cells for value in _cell(cell)]
    return [place, gate, base, *what, decision, results, *cells, 0, 0]


def _row_of_move(place: int, move: Move) -> list[int]:
    cells = 2 * [value for cell in move.cells for value in _cell(cell)]
    return [place, move.gate, 0, move.what, 0, NONE, POSSIBLE, move.number, *cells, move.left, move.lost]


def _cell(cell: State) -> list[int]:
    return [*cell[:7], *cell.added, cell.lanes_of]
