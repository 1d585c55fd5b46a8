"""Tests that p4testgen makes of our own small programs, for CI: `python -m checks.conformance.ours`.

With p4testgen and simple_switch_grpc on PATH.  They go into `switch/tests/generated_tests.jsonl`, a line of JSON for
each: program, name, and the test in STF without its comments.  p4testgen expects of some tests what no switch does,
such as other lengths of packets or colours of meters.  Those with which BMv2 does what our switch does are left out,
and named.  Programs that have tests in the file keep them; remove the file to make all anew.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Final

from switchsum_switch.bmv2.simple_switch import run_bmv2
from switchsum_switch.errors import LocalError
from switchsum_switch.stf import parse, run_embedded

from .generated import make

ROOT: Final = Path(__file__).parents[2]
PROGRAMS: Final = ROOT / "switch" / "tests" / "programs"
TESTS: Final = ROOT / "switch" / "tests" / "generated_tests.jsonl"
EACH: Final = 8
"""Most tests of a program."""
SECONDS: Final = 60.0
MOST_BYTES: Final = 4_000
"""A longer test is left out: most of it is one long packet."""


def bare(text: str) -> str:
    """Return a test without comments and empty lines."""
    lines = (line.partition("#")[0].rstrip() for line in text.splitlines())
    return "\n".join(filter(None, lines)) + "\n"


def is_wrong(program: bytes, name: str, text: str) -> bool:
    """Return whether a test expects what neither our switch nor BMv2 does, and both do the same."""
    test = parse(text, name)
    ours = [problem.text for problem in run_embedded(program, test, "interpreter").problems]
    if not ours:
        return False
    try:
        return [problem.text for problem in run_bmv2(program, test).problems] == ours
    except LocalError:  # BMv2 does not take the program
        return True


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.ours", description=__doc__)
    parser.add_argument("--tests", type=int, default=EACH, help=f"most tests of a program ({EACH})")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for making them ({SECONDS:.0f})")
    options = parser.parse_args()
    made = [json.loads(line) for line in TESTS.read_text().splitlines()] if TESTS.exists() else []
    done = {one["program"] for one in made}
    with tempfile.TemporaryDirectory(prefix="switchsum-ours-") as scratch:
        for source in sorted(PROGRAMS.glob("*.p4")):
            if source.stem in done:
                continue
            folder = Path(scratch) / source.stem
            why = make(source, folder, options.tests, options.seconds)
            texts = {file.stem: bare(file.read_text()) for file in sorted(folder.glob("*.stf"))}
            program = source.with_suffix(".json").read_bytes() if texts else b""
            for name, text in texts.items():
                if len(text) > MOST_BYTES or is_wrong(program, name, text):
                    print(f"{name} is left out", flush=True)
                else:
                    made.append({"program": source.stem, "name": name, "stf": text})
            made.sort(key=lambda one: (one["program"], one["name"]))
            TESTS.write_text("".join(json.dumps(one) + "\n" for one in made))
            print(f"{source.stem}: {len(texts) or why}", flush=True)
    print(f"{len(made)} tests in {TESTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
