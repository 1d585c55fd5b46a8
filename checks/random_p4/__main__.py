"""Compile random programs and compare the switches with each."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.differ.search import Differ, Finding, Tally

from .generate import generate
from .tree import Program

COMPILER: Final = "p4c-bm2-ss"
COMPILE_S: Final = 120
CASES: Final = 2
"""Cases of entries and packets for each program."""
SHRINK_S: Final = 120
LOAD_S: Final = 10
NO_PROGRAM: Final = "BMv2 does not load what p4c has written"
SHOWN: Final = 50
"""Programs from one line to the next."""


def compiled(text: str) -> tuple[bytes | None, str]:
    """Return what p4c makes of a source, and what it says if that is nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "random.p4", Path(folder) / "random.json"
        source.write_text(text)
        command = [COMPILER, "-o", str(made), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
        except subprocess.TimeoutExpired:  # on a machine with much else to do
            return None, f"error: no end within {COMPILE_S} s"
        return (made.read_bytes(), "") if done.returncode == 0 and made.exists() else (None, done.stderr)


def compare(text: bytes, bmv2: bool, cases: int = CASES, tally: Tally | None = None) -> Finding | str | None:
    """Return what the switches differ about, why one alone refuses the program, or None."""
    try:
        differ = Differ(text, bmv2=bmv2)
        for seed in range(cases):
            if (finding := differ.try_seed(seed)) is not None:
                return finding
    except SwitchsumError as error:
        return NO_PROGRAM if bmv2 and bmv2_refuses(text) else str(error)
    if tally is not None:
        tally.packets += differ.tally.packets
        tally.entries += differ.tally.entries
        tally.frames += differ.tally.frames
    return None


def bmv2_refuses(text: bytes) -> bool:
    """Return whether BMv2 does not load a program, since p4c has written what is no program."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "random.json"
        program.write_bytes(text)
        command = ["simple_switch", "--log-level", "off", "--use-files", "0", "--thrift-port", "0", str(program)]
        try:
            return subprocess.run(command, capture_output=True, timeout=LOAD_S, check=False).returncode != 0
        except subprocess.TimeoutExpired:  # it runs
            return False


def shrunk(program: Program, holds: Callable[[Collection[int]], bool], seconds: float = SHRINK_S) -> set[int]:
    """Return as many statements as can be left out while `holds` is true of the rest."""
    numbers, dropped, until = program.numbers(), set[int](), time.monotonic() + seconds
    size = max(1, len(numbers) // 2)
    while size:
        for at in range(0, len(numbers), size):
            more = dropped | set(numbers[at : at + size])
            if more != dropped and time.monotonic() < until and holds(more):
                dropped = more
        size //= 2
    return dropped


def report(folder: Path, seed: int, program: Program, found: Finding | str, bmv2: bool) -> None:
    """Cut a program down to what shows the difference, and write it with its packets."""

    def same(dropped: Collection[int]) -> bool:
        text, _ = compiled(program.text(dropped))
        outcome = None if text is None else compare(text, bmv2)
        if isinstance(found, str):
            return isinstance(outcome, str)
        return isinstance(outcome, Finding) and outcome.sides == found.sides

    dropped = shrunk(program, same)
    text, _ = compiled(program.text(dropped))
    final = found if text is None else compare(text, bmv2) or found
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{seed}.p4").write_text(program.text(dropped))
    if text is not None:
        (folder / f"{seed}.json").write_bytes(text)
    if isinstance(final, Finding):
        (folder / f"{seed}.stf").write_text(final.stf)
        print(f"{seed}: {final.sides[0]} and {final.sides[1]} differ: {final.what}\n{final.stf}", flush=True)
        for side in final.sides:
            left = {
                port: [frame.hex() for frame in frames] for port, frames in final.seen[side].ports.items() if frames
            }
            print(f"  {side}: {left}", flush=True)
    else:
        print(f"{seed}: {final}", flush=True)


class Record:
    """What came of each program, in a file from which a later run goes on; None: nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.counts: Counter[str] = Counter()
        self.tally = Tally()
        self.following = 0
        """The first seed behind those of the file."""
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            seed, outcome, packets, entries, frames = json.loads(line)
            self.counts[outcome] += 1
            self.tally.packets, self.tally.entries, self.tally.frames = packets, entries, frames
            self.following = seed + 1

    def add(self, seed: int, outcome: str) -> None:
        """Note a program; the sums of packets, entries and frames are those up to now."""
        self.counts[outcome] += 1
        if self._path is not None:
            tally = self.tally
            with self._path.open("a") as file:
                file.write(json.dumps([seed, outcome, tally.packets, tally.entries, tally.frames]) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Run the check; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks.random_p4", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--programs", type=int, default=1 << 30, help="most programs")
    parser.add_argument("--seconds", type=float, default=600, help="no program begins later")
    parser.add_argument("--show", action="store_true", help="print the source of the first program, and end")
    parser.add_argument("--small", action="store_true", help="programs of a few statements")
    parser.add_argument("--no-bmv2", action="store_true", help="compare interpreter and native code alone")
    parser.add_argument("--out", type=Path, default=Path("build/random_p4"), help="where programs that differ go")
    parser.add_argument(
        "--record", type=Path, help="add a line for each program to this file, and go on behind its last"
    )
    parser.add_argument("--keep", type=Path, help="add each compiled program to this file, a line of JSON each")
    options = parser.parse_args(arguments)
    if options.show:
        print(generate(options.seed, options.small).text(), end="")
        return 0
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not on PATH")
        return 2
    bmv2 = not options.no_bmv2 and shutil.which("simple_switch_grpc") is not None
    record = Record(options.record)
    tally, until = record.tally, time.monotonic() + options.seconds
    for seed in range(max(options.seed, record.following), options.seed + options.programs):
        if time.monotonic() >= until:
            break
        program = generate(seed, options.small)
        text, said = compiled(program.text())
        if text is None:
            record.add(seed, "refused")
            lines = [line for line in said.splitlines() if "error" in line or "Bug" in line]
            print(f"{seed}: p4c: {(lines or ['nothing'])[0]}", flush=True)
            continue
        if options.keep is not None:
            with options.keep.open("a") as kept:
                kept.write(json.dumps(json.loads(text), separators=(",", ":")) + "\n")
        if (found := compare(text, bmv2, tally=tally)) == NO_PROGRAM:
            record.add(seed, "refused")
            print(f"{seed}: {found}", flush=True)
            continue
        if found is None:
            record.add(seed, "same")
            if record.counts["same"] % SHOWN == 0:
                print(f"{seed}: {record.counts['same']} without a difference, {tally.packets} packets", flush=True)
            continue
        record.add(seed, "different")
        report(options.out, seed, program, found, bmv2)
    sides, counts = "interpreter, native code and BMv2" if bmv2 else "interpreter and native code", record.counts
    print(f"{sides}: {counts['same']} programs without a difference, {counts['different']} with one; ", end="")
    print(f"p4c or BMv2 refuses {counts['refused']}")
    print(f"{tally.packets} packets, {tally.entries} entries, {tally.frames} frames that left")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
