"""`switchsum stf`: run tests in STF, p4c's format, on a program."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from switchsum.protocol.errors import UsageError

if TYPE_CHECKING:
    from switchsum.switch.stf import Outcome, Test

SUFFIX: Final = ".stf"


class TargetChoice(StrEnum):
    """The switch that runs the test."""

    NATIVE = "native"
    """The embedded switch, machine code."""
    INTERPRETER = "interpreter"
    """The embedded switch, interpreted."""
    BMV2 = "bmv2"
    """The `simple_switch_grpc` that is on PATH."""


def stf(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PROGRAM.json [P4INFO] TEST.stf...", help="Program, its P4Info if wanted, and tests."),
    ],
    engine: Annotated[TargetChoice, typer.Option(help="What runs the program.")] = TargetChoice.NATIVE,
) -> None:
    """Run STF tests on a program; exit code 1 if one fails.

    Each test runs on a switch that has just loaded the program. With P4Info, the program and it are checked against
    each other first.
    """
    program, p4info, tests = _sort(files)
    from switchsum.switch.stf import parse

    text = _read(program)
    if p4info is not None:
        _check(text, _read(p4info).decode())
    failed = False
    for path in tests:
        outcome = _run(text, parse(_read(path).decode(errors="replace"), path.name), engine)
        failed |= not outcome.passed
        typer.echo(_verdict(outcome))
    if failed:
        raise typer.Exit(1)


def _sort(files: list[Path]) -> tuple[Path, Path | None, list[Path]]:
    """Return the program, the P4Info and the tests of a command line; raises UsageError."""
    tests = [path for path in files if path.suffix == SUFFIX]
    others = [path for path in files if path.suffix != SUFFIX]
    if not tests or len(others) not in (1, 2):
        raise UsageError(f"stf takes PROGRAM.json, perhaps a P4Info, and tests whose names end in {SUFFIX}")
    return others[0], others[1] if len(others) > 1 else None, tests


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _check(program: bytes, p4info: str) -> None:
    """Compare a program with its P4Info; raises an error that says how they differ."""
    from switchsum.protocol.p4runtime import parse_p4info
    from switchsum.switch.p4runtime.schema import bind
    from switchsum.switch.pipeline import Pipeline

    bind(parse_p4info(p4info), Pipeline.load(program, engine="interpreter").state)


def _run(program: bytes, test: Test, engine: TargetChoice) -> Outcome:
    from switchsum.switch.stf import run_embedded

    if engine is TargetChoice.BMV2:
        from switchsum.testing.simple_switch import run_bmv2

        return run_bmv2(program, test)
    return run_embedded(program, test, "native" if engine is TargetChoice.NATIVE else "interpreter")


def _verdict(outcome: Outcome) -> str:
    counts = f"{outcome.sent} packets in, {outcome.left} out"
    problems = [f"{outcome.name}:{problem.line}: {problem.text}" for problem in outcome.problems]
    verdict = f"{outcome.name}: {'passed' if outcome.passed else 'FAILED'} ({counts})"
    return "\n".join([*outcome.told, *problems, verdict])
