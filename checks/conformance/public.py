"""Public programs beside p4c's own: `python -m checks.conformance.public FOLDER`, and what came of each on the page.

FOLDER has what a compiler made of them: `NAME.json` and `NAME.p4info.txtpb`, and perhaps `NAME.tests/*.stf` of
p4testgen, or `NAME.why`, which says why it made none.  `python -m checks.conformance.public_tests` makes these files.
A name begins with the name of its project.  None of them is part of this repository: the record has names and results
alone.  `NAME.done` says that a program is in the record: run the command again, and it goes on where it ended.

Three things of the record are written by hand: `refused_by_p4c`, programs that p4c does not take and why,
`about_missing`, programs of ours of which p4testgen makes no tests and why, and `about_failed`, why tests fail.

Each program is loaded with its P4Info as `Switch.from_file` does it, on native code.  Then the cases of
`switchsum differ` go through both engines, and through BMv2 where it is on PATH.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from switchsum.view.words import listed
from switchsum_protocol.errors import LocalError, SwitchsumError
from switchsum_switch import Switch
from switchsum_switch.bmv2.process import PROGRAM
from switchsum_switch.bmv2.simple_switch import SimpleSwitch
from switchsum_switch.differ.search import Differ
from switchsum_switch.stf import parse

from .cases import PASSED, SWITCHES, SwitchName, cell, outcome
from .load import load_seconds

RECORD: Final = Path(__file__).with_name("public.json")
P4INFO: Final = ".p4info.txtpb"
TESTS: Final = ".tests"
WHY: Final = ".why"
BEGUN: Final = ".begun"
DONE: Final = ".done"
SAI: Final = "sai."
NAMES: Final = {"bmv2": "BMv2"}
OF_ONE_TEST: Final = {
    r"^line [0-9]+: |; expected .*": "",
    r"^port [0-9]+: byte [0-9]+ differs": "a frame differs",
    r"^port [0-9]+: a frame of [0-9]+ bytes, [0-9]+ were expected": "a frame has another length",
    r"^no frame left port [0-9]+": "no frame left the port",
}
"""What is left out of what a test says, and what stands in its place."""
CASES: Final = 3
"""Cases of `switchsum differ`, of 60 packets each."""


@dataclass(slots=True, kw_only=True)
class Program:
    """A program and what came of it."""

    name: str
    loaded: str = PASSED
    """"passed", or why it is refused."""
    load_s: float = 0.0
    """Processor time from JSON to native code, without a cache and without the P4Info."""
    packets: int = 0
    """Packets that went through all switches."""
    entries: int = 0
    """Entries that these looked up."""
    frames: int = 0
    """Frames that left."""
    difference: str = ""
    """What two switches do not agree about, and which ones; nothing if they do."""
    bmv2: str = "not run"
    """"passed" if BMv2 runs the program, or why not."""
    tests: dict[str, int] = field(default_factory=dict)
    """Tests of p4testgen: how many there are, and how many each switch passes."""
    why: str = ""
    """Why p4testgen made none, if it was tried."""
    failed: list[str] = field(default_factory=list)
    """The first line of what each failed test says, with its switch and name."""


def programs(folder: Path) -> Iterator[Path]:
    """Yield the JSON of every program of a folder."""
    yield from sorted(folder.glob("*.json"))


def check(path: Path, cases: int, bmv2: bool) -> Program:
    """Load a program and run it."""
    made = Program(name=path.name.removesuffix(".json"))
    p4info = path.with_name(made.name + P4INFO)
    text = path.read_bytes()
    try:
        made.load_s = round(load_seconds(text), 2)
        Switch.from_file(path, p4info if p4info.exists() else None)
    except SwitchsumError as error:
        made.loaded = str(error).splitlines()[0]
        return made
    if bmv2:
        made.bmv2 = _bmv2_takes(text)
    _compare(made, text, cases)
    _generated(made, path)
    return made


def _bmv2_takes(program: bytes) -> str:
    try:
        with SimpleSwitch(program):
            return PASSED
    except LocalError as error:
        return str(error).splitlines()[0]


def _compare(made: Program, program: bytes, cases: int) -> None:
    differ = Differ(program, bmv2=made.bmv2 == PASSED)
    for seed in range(cases):
        finding = differ.try_seed(seed)
        if finding is not None:
            made.difference = f"{' and '.join(finding.sides)}: {finding.what} (seed {finding.seed})"
            break
    made.packets, made.entries, made.frames = differ.tally.packets, differ.tally.entries, differ.tally.frames


def _generated(made: Program, path: Path) -> None:
    """Run the tests that p4testgen made, on each switch."""
    files = sorted(path.with_name(f"{made.name}{TESTS}").glob("*.stf"))
    if not files:
        why = path.with_name(f"{made.name}{WHY}")
        made.why = why.read_text() if why.exists() else ""
        return
    text = path.read_bytes()
    switches: tuple[SwitchName, ...] = SWITCHES if made.bmv2 == PASSED else ("interpreter", "native")
    made.tests = {"made": len(files), **dict.fromkeys(switches, 0)}
    for file in files:
        try:
            test = parse(file.read_text(), file.stem)
        except SwitchsumError as error:
            made.failed += [f"{switch}: {file.stem}: not read: {error}" for switch in switches]
            continue
        for switch in switches:
            said = outcome(text, test, switch)
            made.tests[switch] += said == PASSED
            if said != PASSED:
                made.failed.append(f"{switch}: {file.stem}: {said.splitlines()[0]}")


def section(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the part of docs/results/conformance.md that has public programs."""
    rows = record["programs"]
    loaded = [row for row in rows if row["loaded"] == PASSED]
    agreed = [row for row in loaded if not row["difference"]]
    made = sum(row["tests"].get("made", 0) for row in rows)
    of_sai = sum(row["tests"].get("made", 0) for row in rows if row["name"].startswith(SAI))
    packets = sum(row["packets"] for row in loaded)
    yield "\n## Public programs\n"
    yield f"{len(loaded)} of {len(rows)} load with their P4Info ({record['date']}). {packets:,} random packets went"
    yield "through interpreter, native code and BMv2, with entries that these packets look up:"
    yield f"{len(agreed)} programs show no difference. p4testgen made {made:,} tests for"
    yield f"{sum(bool(row['tests']) for row in rows)} of them, {of_sai:,} for SAI P4, of which 4ward publishes 500."
    yield "None of the programs is part of this repository. `python -m checks.conformance.public_tests CLONES FOLDER`"
    yield "compiles them and lets p4testgen make tests, and `python -m checks.conformance.public FOLDER` runs all. Both"
    yield "go on where they were ended.\n"
    yield "| program | cold load | packets in, out | entries | difference | p4testgen's tests: native, BMv2 |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        if row["loaded"] != PASSED:
            yield f"| {row['name']} | refused: {cell(row['loaded'])} | | | | |"
            continue
        tests = row["tests"]
        said = f"{tests['native']}, {tests.get('bmv2', 'not run')} of {tests['made']}" if tests else ""
        beside = "none" if row["bmv2"] == PASSED else f"none; BMv2: {cell(row['bmv2'])}"
        cells = [row["name"], f"{row['load_s']:.2f} s", f"{row['packets']}, {row['frames']}", str(row["entries"])]
        yield f"| {' | '.join([*cells, cell(row['difference']) or beside, said])} |"
    yield "\nngsdn, stratum.main, and fabric and int of onos call `clone3`, which p4c 1.2.5 refuses. They were compiled"
    yield "with `clone` in its place. What is called published is what a project has compiled itself."
    if record.get("refused_by_p4c"):
        yield "\np4c 1.2.5 refuses these programs, so there is nothing to load:\n"
        yield from (f"- {name}: {cell(reason)}" for name, reason in record["refused_by_p4c"].items())
    missing = {row["name"]: row["why"] for row in rows if row.get("why")} | record.get("about_missing", {})
    if missing:
        yield "\np4testgen makes no tests for these programs:\n"
        yield from (f"- {name}: {cell(reason)}" for name, reason in missing.items())
    failed = Counter((row["name"], said) for row in rows for said in _failures(row["failed"]))
    if failed:
        yield f"\n{failed.total()} of p4testgen's tests do not pass. {record.get('about_failed', '')}\n"
        yield "| program | tests | what they say |"
        yield "|---|---|---|"
        yield from (f"| {name} | {count} | {cell(said)} |" for (name, said), count in failed.items())


def _failures(failed: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with each test, on which switches; what belongs to one test alone is left out."""
    tests: dict[str, dict[str, list[str]]] = {}
    for text in failed:
        switch, test, said = text.split(": ", 2)
        for pattern, words in OF_ONE_TEST.items():
            said = re.sub(pattern, words, said)
        tests.setdefault(test, {}).setdefault(said, []).append(NAMES.get(switch, switch))
    for said_by in tests.values():
        yield "; ".join(f"{listed(switches)}: {said}" for said, switches in said_by.items())


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.public", description=__doc__)
    parser.add_argument("folder", type=Path, help="what p4c made of the programs")
    parser.add_argument("--only", default="", help="programs whose names have this word; the results of others stay")
    parser.add_argument("--cases", type=int, default=CASES, help=f"cases of 60 packets ({CASES})")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"programs": []}
    kept = {row["name"]: row for row in record["programs"]}
    bmv2 = shutil.which(PROGRAM) is not None
    paths = [path for path in programs(options.folder) if options.only in path.name]
    for path in track(paths, "programs", console=Console(stderr=True)):
        done = path.with_suffix(DONE)
        if done.exists() or path.with_suffix(BEGUN).exists():  # its tests are being made
            continue
        made = check(path, options.cases, bmv2)
        print(made, flush=True)
        kept[made.name] = asdict(made)
        record |= {"date": datetime.now(UTC).date().isoformat(), "programs": [kept[name] for name in sorted(kept)]}
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        done.touch()


if __name__ == "__main__":
    main()
