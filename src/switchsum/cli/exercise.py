"""`switchsum exercise`: exercises for learners, and what says whether an attempt is right."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from switchsum_protocol.errors import UsageError
from switchsum_switch.notices import waiting_for

if TYPE_CHECKING:
    from switchsum_exercises import Exercise
    from switchsum_exercises.driver import Attempt

app = typer.Typer(name="exercise", no_args_is_help=True, help="Write a switch that adds, step by step.")

NumberArgument = Annotated[
    int, typer.Argument(metavar="NUMBER", help="Number of the exercise, from `switchsum exercise list`.")
]
FolderArgument = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="Folder of the exercise. Default: its name, in this directory.")
]
SolutionOption = Annotated[bool, typer.Option("--solution", help="Check the solution that comes with switchsum.")]
P4Option = Annotated[bool, typer.Option("--p4", help="Check switch.p4 instead of switch.py; needs p4c-bm2-ss.")]
SwitchOption = Annotated[str, typer.Option("--switch", help="With --p4: embedded or bmv2; bmv2 needs root.")]


SWITCHES: Final = ("embedded", "bmv2")


@app.command("list")
def list_() -> None:
    """List the exercises."""
    from switchsum_exercises import EXERCISES

    for one in EXERCISES:
        typer.echo(f"{one.number}  {one.title} ({'Python or P4' if one.has_p4 else 'Python'})")


@app.command()
def start(number: NumberArgument, folder: FolderArgument = None) -> None:
    """Copy an exercise's page and skeleton into a folder."""
    import switchsum_exercises as exercises

    exercise = exercises.find(number)
    folder = folder or Path(exercise.name)
    for made in exercises.start(exercise, folder):
        typer.echo(made)
    typer.echo(f"read {folder / 'README.md'}; then: switchsum exercise check {number} {folder}")


@app.command()
def check(
    number: NumberArgument,
    folder: FolderArgument = None,
    solution: SolutionOption = False,
    p4: P4Option = False,
    switch: SwitchOption = "embedded",
) -> None:
    """Check your solution, and say in a sentence what is wrong (exit code 1 if anything is)."""
    import switchsum_exercises as exercises
    from switchsum_exercises import driver

    exercise = exercises.find(number)
    folder = exercise.folder if solution else folder or Path(exercise.name)
    if switch not in SWITCHES or (switch == "bmv2" and not p4):
        raise UsageError(f"--switch must be {' or '.join(SWITCHES)}, and bmv2 needs --p4")
    name = "solution" if solution else "switch"
    try:
        with ExitStack() as stack:
            stack.enter_context(waiting_for("p4c, BMv2 and the checks" if p4 else "the checks"))
            attempt = _p4_attempt(exercise, folder, name, switch, stack) if p4 else _attempt(folder / f"{name}.py")
            passed = driver.check(exercise, attempt)
    except driver.Wrong as wrong:
        typer.echo(f"exercise {number}: not yet. {wrong}")
        raise typer.Exit(1) from None
    typer.echo(f"exercise {number}: right, {passed} checks passed")


def _attempt(path: Path) -> Attempt:
    from switchsum_exercises import driver

    return driver.Attempt(driver.load(path), path.name)


def _p4_attempt(exercise: Exercise, folder: Path, name: str, switch: str, stack: ExitStack) -> Attempt:
    from switchsum_exercises.p4 import attempt_of

    if switch == "embedded":
        return attempt_of(exercise, folder, name)
    from switchsum.testing.exercises import Bmv2Loader

    return attempt_of(exercise, folder, name, stack.enter_context(Bmv2Loader()))
