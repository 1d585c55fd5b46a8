"""How long p4c's samples take to load anew: `python -m checks.conformance.load P4C`, with p4c-bm2-ss on PATH.

Every program for v1model is loaded once, from JSON to native code, without a cache and in this process.  What counts is
processor time, so that other programs on the machine do not.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import track

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.codegen import compile_program
from switchsum_switch.execution.pipeline import make_state
from switchsum_switch.program.lower import lower
from switchsum_switch.program.reader import read_program

from .cases import FOLDERS, Case, compile_case, excluded

SLOWEST: Final = 10
"""How many programs are named."""


def load_seconds(program: bytes) -> float:
    """Return the processor time of a cold load; raises ProgramError."""
    started = time.process_time()
    lowered = lower(read_program(program))
    compile_program(lowered, make_state(lowered), cache=None)
    return time.process_time() - started


def samples(p4c: Path) -> Iterator[Case]:
    """Yield the programs of p4c's repository that may be for v1model, with or without a test."""
    for folder in FOLDERS:
        for source in sorted((p4c / "testdata" / folder).rglob("*.p4")):
            case = Case(
                name=source.relative_to(p4c / "testdata").with_suffix("").as_posix(),
                source=source,
                excluded=excluded(source),
            )
            if not case.excluded:
                yield case


def summary(seconds: dict[str, float], refused: int) -> Iterator[str]:
    """Yield lines that say how long programs took."""
    ordered = sorted(seconds.items(), key=lambda item: item[1])
    times = [time_s for _, time_s in ordered]
    yield (
        f"{len(times)} programs load, {refused} are refused: median {times[len(times) // 2]:.2f} s, "
        f"95 % within {times[int(0.95 * len(times))]:.2f} s, longest {times[-1]:.2f} s"
    )
    yield from (f"{time_s:.2f} s {name}" for name, time_s in ordered[-SLOWEST:])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.load", description=__doc__)
    parser.add_argument("p4c", type=Path, help="a clone of p4c")
    parser.add_argument("--only", default="", help="programs whose names have this word")
    options = parser.parse_args()
    seconds: dict[str, float] = {}
    refused = 0
    with tempfile.TemporaryDirectory(prefix="switchsum-load-") as scratch:
        for case in track(list(samples(options.p4c)), "programs", console=Console(stderr=True)):
            if options.only not in case.name or (text := compile_case(case, Path(scratch))) is None:
                continue
            try:
                seconds[case.name] = load_seconds(text)
            except SwitchsumError:
                refused += 1
    print("\n".join(summary(seconds, refused)))


if __name__ == "__main__":
    main()
