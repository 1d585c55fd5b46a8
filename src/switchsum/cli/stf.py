"""`switchsum stf`, `differ` and `trace`: tests in p4c's format, differences between switches, and what was done."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from switchsum.cli.fields import takes
from switchsum.cli.output import JsonOption, check_seconds, print_json
from switchsum_protocol.errors import UsageError

if TYPE_CHECKING:
    from switchsum_switch.differ.search import Finding, Tally
    from switchsum_switch.execution.trace import Step
    from switchsum_switch.stf import Outcome, Test

SUFFIX: Final = ".stf"
WIDEST: Final = 1 << 20
_STYLES: Final = {
    **dict.fromkeys(("frame", "parser", "verify", "ingress", "egress", "update", "copy"), "bold"),
    **dict.fromkeys(("lookup",), "cyan"),
    **dict.fromkeys(("set", "valid", "extract"), "green"),
    **dict.fromkeys(("register", "counter", "meter"), "magenta"),
    **dict.fromkeys(("drop", "clone", "resubmit", "recirculate"), "red"),
    "log": "blue",
    "assert": "bold red",
    "send": "bold yellow",
}
"""Style of each kind of step that `trace` shows on a terminal."""


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
        typer.Argument(
            metavar="PROGRAM.json [P4INFO] TEST.stf...", help="The program, optionally its P4Info, and the tests."
        ),
    ],
    engine: Annotated[TargetChoice, typer.Option(help="What runs the program.")] = TargetChoice.NATIVE,
) -> None:
    """Run tests in p4c's STF format on a P4 program (exit code 1 if one fails).

    Each test runs on a switch that has just loaded the program. If a P4Info is given, it is first compared with the
    program. A test that fails is printed with the trace of the packet that shows the failure.
    """
    program, p4info, tests = _sort(files)
    from switchsum_switch.stf import parse, traces_of

    text = _read(program)
    if p4info is not None:
        _check(text, _read(p4info).decode())
    failed = False
    for path in tests:
        test = parse(_read(path).decode(errors="replace"), path.name)
        outcome = _run(text, test, engine)
        failed |= not outcome.passed
        typer.echo(_verdict(outcome))
        lines = {problem.sent_line for problem in outcome.problems if problem.sent_line is not None}
        if lines and engine is not TargetChoice.BMV2:
            traces = traces_of(text, test)
            for line in sorted(lines & traces.keys()):
                _show(traces[line], f"{path.name}:{line}: ")
    if failed:
        raise typer.Exit(1)


def _sort(files: list[Path]) -> tuple[Path, Path | None, list[Path]]:
    """Return the program, the P4Info and the tests of a command line; raises UsageError."""
    tests = [path for path in files if path.suffix == SUFFIX]
    others = [path for path in files if path.suffix != SUFFIX]
    if not tests or len(others) not in (1, 2):
        raise UsageError(f"stf takes a PROGRAM.json, optionally its P4Info, and tests whose names end in {SUFFIX}")
    return others[0], others[1] if len(others) > 1 else None, tests


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _check(program: bytes, p4info: str) -> None:
    """Compare a program with its P4Info; raises an error that says how they differ."""
    from switchsum_switch.execution.pipeline import Pipeline
    from switchsum_switch.messages.p4runtime import parse_p4info
    from switchsum_switch.p4runtime.schema import bind

    bind(parse_p4info(p4info), Pipeline.load(program, engine="interpreter").state)


def _run(program: bytes, test: Test, engine: TargetChoice) -> Outcome:
    from switchsum_switch.stf import run_embedded

    if engine is TargetChoice.BMV2:
        from switchsum_switch.bmv2.simple_switch import run_bmv2

        return run_bmv2(program, test)
    return run_embedded(program, test, "native" if engine is TargetChoice.NATIVE else "interpreter")


def _verdict(outcome: Outcome) -> str:
    counts = f"{outcome.sent} packets in, {outcome.left} out"
    problems = [f"{outcome.name}:{problem.line}: {problem.text}" for problem in outcome.problems]
    verdict = f"{outcome.name}: {'passed' if outcome.passed else 'FAILED'} ({counts})"
    return "\n".join([*outcome.lines, *problems, verdict])


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferOptions:
    """What is compared, and for how long."""

    files: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM.json [P4INFO]", help="The program, and optionally its P4Info.")
    ]
    seconds: Annotated[
        float, typer.Option(help="Stop after this many seconds without a difference. 0: after one case.")
    ] = 60.0
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first case; the same seed gives the same cases.")] = 0
    bmv2: Annotated[
        bool | None, typer.Option("--bmv2/--no-bmv2", help="Compare with BMv2, too. Default: yes if it is on PATH.")
    ] = None
    save: Annotated[Path | None, typer.Option(help="Write a case that differs to this STF file.")] = None
    as_json: JsonOption = False


@takes(DifferOptions)
def differ(options: DifferOptions) -> None:
    """Compare interpreter, native code and BMv2 with random packets (exit code 1 if any differ).

    Packets follow the program's parser, and entries match the packets. A difference is cut down to the fewest and
    shortest packets and entries, and printed as an STF test, with what each side did.
    """
    check_seconds("--seconds", options.seconds)
    if not 1 <= len(options.files) <= 2:
        raise UsageError("differ takes a PROGRAM.json and optionally its P4Info")
    from switchsum_switch.bmv2.process import PROGRAM
    from switchsum_switch.differ.search import Differ

    program, *p4info = map(_read, options.files)
    for text in p4info:
        _check(program, text.decode())
    bmv2 = shutil.which(PROGRAM) is not None if options.bmv2 is None else options.bmv2
    until = time.monotonic() + options.seconds if options.seconds else math.inf
    compared = Differ(program, bmv2=bmv2, until_s=until)
    finding, seed = compared.try_seed(options.seed), options.seed + 1
    while finding is None and options.seconds and time.monotonic() < until:
        finding = compared.try_seed(seed)
        seed += 1
    if not compared.tally.cases:
        raise UsageError(f"no case ended within {options.seconds:g} s; --seconds 0 runs one case to its end")
    if finding is not None and options.save is not None:
        options.save.write_text(finding.stf)
    if options.as_json:
        print_json(_as_json(finding, compared.tally))
    else:
        typer.echo("".join(f"{line}\n" for line in _report(finding, compared.tally, bmv2)), nl=False)
        for trace in compared.traces(finding) if finding else ():
            _show(trace, "interpreter: ")
        for line in compared.bmv2_log(finding) if finding and bmv2 else ():
            typer.echo(f"bmv2: {line}")
    if finding is not None:
        raise typer.Exit(1)


def _as_json(finding: Finding | None, tally: Tally) -> dict[str, object]:
    made: dict[str, object] = {
        "cases": tally.cases,
        "packets": tally.packets,
        "entries": tally.entries,
        "frames": tally.frames,
        "bmv2_ended": len(tally.ended),
        "left_out": tally.left_out,
        "difference": None,
    }
    if finding is not None:
        seen = {
            name: {port: [frame.hex() for frame in frames] for port, frames in one.ports.items()}
            for name, one in finding.seen.items()
        }
        made["difference"] = {
            "what": finding.what,
            "sides": finding.sides,
            "seed": finding.seed,
            "stf": finding.stf,
            "frames": seen,
        }
    return made


def _report(finding: Finding | None, tally: Tally, bmv2: bool) -> Iterator[str]:
    sides = "interpreter, native code and BMv2" if bmv2 else "interpreter and native code (BMv2 is not on PATH)"
    counts = f"{tally.packets} packets and {tally.entries} entries in {tally.cases} cases"
    yield from (f"left out: {what}" for what in tally.left_out)
    if tally.ended:
        yield f"BMv2 ended itself at {len(tally.ended)} packets, which are left out; the first:"
        yield from tally.ended[0].splitlines()
    if finding is None:
        yield f"no difference between {sides}: {counts}"
        return
    yield f"{finding.sides[0]} and {finding.sides[1]} differ: {finding.what} (seed {finding.seed}; {counts})"
    yield from finding.stf.splitlines()
    for name, seen in finding.seen.items():
        for port, frames in sorted(seen.ports.items()):
            yield from (f"{name}: port {port}: {frame.hex()}" for frame in frames)
        yield from (f"{name}: refuses step {number + 1}: {text}" for number, text in seen.refused.items())


def trace(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM.json [P4INFO] FRAME",
            help="The program, optionally its P4Info, and a frame in hexadecimal.",
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=511, help="Port at which the frame arrives.")] = 0,
    stf_file: Annotated[
        Path | None, typer.Option("--stf", help="STF test with entries, groups and packets that come before the frame.")
    ] = None,
    bmv2: Annotated[
        Path | None,
        typer.Option("--bmv2", help="Write the trace into this folder, in the form of BMv2's packet_trace.proto."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show as a tree what a P4 program does to a frame: states, lookups, fields, registers and copies."""
    if not 2 <= len(files) <= 3:
        raise UsageError("trace takes a PROGRAM.json, optionally its P4Info, and a frame in hexadecimal")
    from switchsum_switch.program.reader import read_program
    from switchsum_switch.stf import Embedded, Names, parse
    from switchsum_switch.stf import run as run_test

    program = _read(Path(files[0]))
    for name in files[1:-1]:
        _check(program, _read(Path(name)).decode())
    try:
        frame = bytes.fromhex(files[-1])
    except ValueError as error:
        raise UsageError(f"a frame must be hexadecimal digits, not {files[-1]!r}") from error
    switch = Embedded(program, "interpreter")
    if stf_file is not None:
        test = parse(_read(stf_file).decode(errors="replace"), stf_file.name)
        outcome = run_test(test, Names(read_program(program)), switch)
        for problem in outcome.problems:
            typer.echo(f"{stf_file.name}:{problem.line}: {problem.text}", err=True)
    _, step = switch.pipeline.trace(port, frame)
    if bmv2 is not None:
        from switchsum_switch.execution.packet_trace import write_packet_traces

        write_packet_traces(step, bmv2)
    if as_json:
        print_json(step.as_json())
    else:
        _show(step)


def _show(step: Step, before: str = "") -> None:
    """Print a trace as a tree, in colours on a terminal."""
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    def below(tree: Tree, step: Step) -> None:
        for inner in step.steps:
            below(tree.add(Text(inner.text, style=_STYLES.get(inner.kind, ""))), inner)

    tree = Tree(Text(before + step.text, style=_STYLES.get(step.kind, "")))
    below(tree, step)
    # In a pipe lines are not broken: who reads them there looks for words.
    Console(width=None if sys.stdout.isatty() else WIDEST).print(tree)
