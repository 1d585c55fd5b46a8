"""Tests that p4testgen makes of p4c's samples for v1model: `python -m checks.conformance.generated P4C`.

P4C is a clone of p4c; p4testgen, p4c-bm2-ss and simple_switch_grpc are on PATH.  Each test runs on both engines.  BMv2
runs the first test of each program, and every test that does not pass here.  The record is written after each program:
run the command again, and it goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.stf import parse

from .cases import PASSED, Case, SwitchName, cell, compile_case, outcome
from .load import samples

RECORD: Final = Path(__file__).with_name("generated.json")
TESTS: Final = 10
SECONDS: Final = 10.0
"""Seconds of processor time in which p4testgen makes the tests of a program."""
MOST_SAID: Final = 150
"""Characters of what a test says that are kept: it may have a whole frame."""
GENERATOR: Final = "p4testgen"
OUT_OF_TIME: Final = "no test in"
"""How the reason begins if p4testgen was ended before it had all tests; those that it had made are there."""
REFUSED: Final = "p4c-bm2-ss refuses it"
"""How the reason of a program begins that is for another architecture, or that p4c does not compile."""
ENGINES: Final[tuple[SwitchName, ...]] = ("interpreter", "native")


@dataclass(slots=True, kw_only=True)
class Tested:
    """The tests of a program, and what came of them."""

    made: int = 0
    interpreter: int = 0
    """Tests that pass there."""
    native: int = 0
    bmv2: int = 0
    """Tests that pass on BMv2, of those that it ran."""
    bmv2_ran: int = 0
    why: str = ""
    """Why there are no tests."""
    failed: list[str] = field(default_factory=list)
    """Switches, name and first line of what is wrong with each test that does not pass here."""


def make(source: Path, folder: Path, tests: int, seconds: float, seed: int = 1, options: Sequence[str] = ()) -> str:
    """Let p4testgen write tests of a program into a folder; return what it says of why there are none.

    `options` are the program's, as p4c gets them.
    """
    command = [
        *(GENERATOR, "--target", "bmv2", "--arch", "v1model", "--test-backend", "STF", "--seed", str(seed)),
        *("--max-tests", str(tests), "--path-selection", "RANDOM_BACKTRACK", "--disable-info-logging"),
        *("--out-dir", str(folder), *options, str(source)),
    ]
    # Processor time, so that the outcome does not depend on what else the machine does.
    limited = ["sh", "-c", f'ulimit -t {math.ceil(seconds)} && exec "$@"', "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"{OUT_OF_TIME} {seconds:.0f} s of processor time"
    lines = [line.strip() for line in done.stderr.splitlines() if "rror" in line or "Bug" in line]
    lines = [line for line in lines if "] warning: " not in line]
    return _short(lines[0] if lines else "no path that ends in a test")


def _short(why: str) -> str:
    """Return a reason without the folders of this machine."""
    return re.sub(r"(?<!\S)/\S*/", "", why)[:160]


def run(program: bytes, folder: Path) -> Tested:
    """Run the tests of a folder."""
    files = sorted(folder.glob("*.stf"))
    made = Tested(made=len(files))
    for number, file in enumerate(files):
        try:
            test = parse(file.read_text(), file.stem)
        except SwitchsumError as error:
            made.failed.append(f"{file.stem}: not read: {error}")
            continue
        said = {engine: outcome(program, test, engine) for engine in ENGINES}
        for engine, words in said.items():
            setattr(made, engine, getattr(made, engine) + (words == PASSED))
        wrong = {engine: words for engine, words in said.items() if words != PASSED}
        if number and not wrong:
            continue
        said["bmv2"] = outcome(program, test, "bmv2")
        made.bmv2_ran += 1
        made.bmv2 += said["bmv2"] == PASSED
        if wrong:
            engines = " and ".join(wrong)
            made.failed.append(f"{file.stem}, {engines}: {_first(*wrong.values())}; BMv2: {_first(said['bmv2'])}")
    return made


def _first(*words: str) -> str:
    line = words[0].splitlines()[0]
    return line if len(line) <= MOST_SAID else f"{line[:MOST_SAID]}..."


def section(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the part of docs/results/conformance.md that has these tests."""
    rows: dict[str, Mapping[str, Any]] = record["programs"]
    compiled = {name: row for name, row in rows.items() if not row["why"].startswith(REFUSED)}
    tested = {name: row for name, row in compiled.items() if row["made"]}
    made, native, interpreted, ran, bmv2 = (
        sum(row[which] for row in tested.values()) for which in ("made", "native", "interpreter", "bmv2_ran", "bmv2")
    )
    yield "\n## Tests that p4testgen makes\n"
    yield f"p4testgen of p4c {record['p4c']} made {made:,} tests of {len(tested)} of the {len(compiled)} samples that"
    yield f"p4c compiles for v1model, at most {record['tests']} of each ({record['date']}). 4ward publishes 500, all of"
    yield "SAI P4."
    yield "`python -m checks.conformance.generated P4C` does it again, and goes on where it was ended.\n"
    yield "| switch | passed |"
    yield "|---|---|"
    yield f"| embedded switch, interpreter | {interpreted:,} of {made:,} |"
    yield f"| embedded switch, native | {native:,} of {made:,} |"
    yield f"| BMv2: the first test of each program, and every one that fails above | {bmv2:,} of {ran:,} |"
    reasons = Counter(_reason(row["why"]) for row in compiled.values() if not row["made"])
    if reasons:
        yield "\nThe other samples have no tests:\n"
        yield "| why | samples |"
        yield "|---|---|"
        yield from (f"| {cell(reason)} | {count} |" for reason, count in reasons.most_common())
    # Tests of a program often fail for the same reason.
    failed = Counter(
        (name.rpartition("/")[2], text.partition(", ")[2] or text)
        for name, row in tested.items()
        for text in row["failed"]
    )
    if failed:
        yield f"\n{failed.total()} tests do not pass here. {record.get('about_failed', '')}\n"
        yield "| sample | tests | what they say |"
        yield "|---|---|---|"
        yield from (f"| {name} | {count} | {cell(text)} |" for (name, text), count in failed.items())


def _reason(why: str) -> str:
    """Return the kind of a reason, without a program's own names."""
    return "p4testgen ends with an error" if "rror" in why or "Bug" in why else why


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.generated", description=__doc__)
    parser.add_argument("p4c", type=Path, help="a clone of p4c")
    parser.add_argument("--only", default="", help="run samples whose names have this word again")
    parser.add_argument("--tests", type=int, default=TESTS, help=f"most tests of a program ({TESTS})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for making them ({SECONDS:.0f})")
    parser.add_argument("--within", type=float, default=float("inf"), help="no program begins after so many seconds")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"programs": {}}
    until, rows = time.monotonic() + options.within, record["programs"]
    with tempfile.TemporaryDirectory(prefix="switchsum-generated-") as scratch:
        for case in samples(options.p4c):
            wanted = options.only in case.name if options.only else case.name not in rows
            if not wanted or time.monotonic() > until or case.language == "P4_14":
                continue
            rows[case.name] = asdict(_of(case, Path(scratch), options.tests, options.seconds))
            print(case.name, rows[case.name], flush=True)
            record |= {"p4c": _version(), "tests": options.tests, "date": datetime.now(UTC).date().isoformat()}
            RECORD.write_text(json.dumps(record, indent=None, separators=(",", ":")).replace("},", "},\n") + "\n")
    total = Counter(_total(row) for row in rows.values())
    print(f"{len(rows)} samples: {', '.join(f'{count} {kind}' for kind, count in total.most_common())}")
    return int(any(row["failed"] for row in rows.values()))


def _of(case: Case, scratch: Path, tests: int, seconds: float) -> Tested:
    with suppress(subprocess.TimeoutExpired):
        if (program := compile_case(case, scratch)) is None:
            return Tested(why=_short(f"{REFUSED}: {case.excluded.removeprefix('p4c refuses it: ')}"))
        folder = scratch / case.name.replace("/", "+")
        why = make(case.source, folder, tests, seconds)
        made = run(program, folder)
        return made if made.made else Tested(why=why)
    return Tested(why="p4c-bm2-ss takes too long")


def _total(row: Mapping[str, Any]) -> str:
    if not row["made"]:
        return "without tests"
    return "with a test that fails" if row["failed"] else "pass all tests"


def _version() -> str:
    """Return the version of p4c; p4testgen, which is built with it, may not know its own."""
    done = subprocess.run(["p4c-bm2-ss", "--version"], capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).rpartition("Version ")[2].split(" ")[0]


if __name__ == "__main__":
    raise SystemExit(main())
