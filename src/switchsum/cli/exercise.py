"""`switchsum exercise`: exercises for learners, and what says whether an attempt is right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from switchsum.launch.waiting import waiting_for

app = typer.Typer(name="exercise", no_args_is_help=True, help="Exercises: write a switch that adds, step by step.")

NumberArgument = Annotated[int, typer.Argument(metavar="NUMBER", help="Of the exercise; see the list.")]
FolderArgument = Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Default: the exercise's name, here.")]
SolutionOption = Annotated[bool, typer.Option("--solution", help="Check the solution that comes with switchsum.")]
P4Option = Annotated[bool, typer.Option("--p4", help="Check switch.p4 on the embedded switch; needs p4c-bm2-ss.")]


@app.command("list")
def list_() -> None:
    """List the exercises."""
    from switchsum.exercises import EXERCISES

    for one in EXERCISES:
        typer.echo(f"{one.number}  {one.title} ({'Python or P4' if one.has_p4 else 'Python'})")


@app.command()
def start(number: NumberArgument, folder: FolderArgument = None) -> None:
    """Copy an exercise's page and skeleton into a folder."""
    from switchsum import exercises

    exercise = exercises.find(number)
    folder = folder or Path(exercise.name)
    for made in exercises.start(exercise, folder):
        typer.echo(made)
    typer.echo(f"read {folder / 'README.md'}; then: switchsum exercise check {number} {folder}")


@app.command()
def check(
    number: NumberArgument, folder: FolderArgument = None, solution: SolutionOption = False, p4: P4Option = False
) -> None:
    """Say whether an attempt is right, or in a sentence what is wrong; exit code 1 if anything is."""
    from switchsum import exercises
    from switchsum.exercises import driver

    exercise = exercises.find(number)
    folder = exercise.folder if solution else folder or Path(exercise.name)
    try:
        if p4:
            from switchsum.exercises.p4 import attempt_of

            attempt = attempt_of(exercise, folder, "solution" if solution else "switch")
        else:
            path = folder / ("solution.py" if solution else driver.PYTHON)
            attempt = driver.Attempt(driver.load(path), path.name)
        with waiting_for("the checks"):
            passed = driver.check(exercise, attempt)
    except driver.Wrong as wrong:
        typer.echo(f"exercise {number}: not yet. {wrong}")
        raise typer.Exit(1) from None
    typer.echo(f"exercise {number}: right, {passed} checks passed")
