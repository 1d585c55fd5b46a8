"""Exercises: from a switch that forwards to one that adds, on a network that loses frames."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchsum_protocol.errors import UsageError

FOLDER: Final = Path(__file__).parent
_STARTED: Final = {"README.md": "README.md", "skeleton.py": "switch.py", "skeleton.p4": "switch.p4"}
"""What a learner gets, and under which name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One exercise."""

    number: int
    name: str
    """Of its folder and module."""
    title: str
    has_p4: bool = False
    """It can be done in P4 as well as in Python."""

    @property
    def folder(self) -> Path:
        """Where its page, skeleton, solution and check are."""
        return FOLDER / self.name


EXERCISES: Final = (
    Exercise(number=1, name="forwarder", title="a switch that only forwards", has_p4=True),
    Exercise(number=2, name="one_slot", title="one slot: add, and give everybody the sum", has_p4=True),
    Exercise(number=3, name="loss", title="loss: repeats and versions"),
    Exercise(number=4, name="blocks", title="blocks of zeros are skipped"),
    Exercise(number=5, name="floats", title="floats: exponents, rounding, overflow"),
    Exercise(number=6, name="tree", title="a tree: the leaf"),
)


def find(number: int) -> Exercise:
    """Return an exercise; raises UsageError if there is none with that number."""
    for exercise in EXERCISES:
        if exercise.number == number:
            return exercise
    raise UsageError(f"there is no exercise {number}: 1 to {len(EXERCISES)} (switchsum exercise list)")


def start(exercise: Exercise, folder: Path) -> list[Path]:
    """Copy an exercise's page and skeletons into a folder; raises UsageError rather than overwrite a file."""
    copies = {exercise.folder / name: folder / made for name, made in _STARTED.items()}
    copies = {source: made for source, made in copies.items() if source.is_file()}
    for made in copies.values():
        if made.exists():
            raise UsageError(f"{made} is there already: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source, made in copies.items():
            shutil.copyfile(source, made)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    return list(copies.values())
