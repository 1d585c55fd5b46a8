"""Runs the tests of a clone of p4c, keeps what came of them, and writes docs/results/conformance.md.

With `--only WORD` only tests whose names have the word run, and the results of all others stay.  So do those in P4_14
where p4c was built without it (`SUPPORT_P4_14`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from .cases import SWITCHES, Case, cases, compile_case, run_case
from .page import page

HERE: Final = Path(__file__).parent
RECORD: Final = HERE / "results.json"
UNKNOWN_LANGUAGE: Final = "Illegal language version"
"""What a p4c says of P4_14 that was built without it."""
PAGE: Final = HERE.parents[1] / "docs" / "results" / "conformance.md"


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance", description=__doc__)
    parser.add_argument("p4c", type=Path, nargs="?", help="a clone of p4c; without it the page is written anew")
    parser.add_argument("--only", default="", help="run tests whose names have this word")
    parser.add_argument(
        "--compiled", type=Path, metavar="FOLDER", help="keep what p4c makes there, and take it from there"
    )
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"cases": []}
    if options.p4c is not None:
        kept, ran = {case["name"]: case for case in record["cases"]}, set[str]()
        with tempfile.TemporaryDirectory(prefix="switchsum-conformance-") as scratch:
            folder = options.compiled or Path(scratch)
            for case in cases(options.p4c):
                if options.only not in case.name and case.name in kept:
                    continue
                made = _run(case, folder)
                if UNKNOWN_LANGUAGE not in made["excluded"] or case.name not in kept:
                    kept[case.name] = made
                    ran.add(case.language)
        record = {
            "p4c": _version("p4c-bm2-ss", "--version").rpartition("Version ")[2].split(" ")[0],
            "bmv2": _version("simple_switch_grpc", "--version"),
            "dates": record.get("dates", {}) | dict.fromkeys(sorted(ran), datetime.now(UTC).date().isoformat()),
            "cases": sorted(kept.values(), key=lambda case: str(case["name"])),
        }
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(page(record))


def _run(case: Case, scratch: Path) -> dict[str, Any]:
    program = None if case.excluded else compile_case(case, scratch)
    if program is not None:
        run_case(case, program, SWITCHES)
    print(case.name, case.excluded or case.results, flush=True)
    return as_record(case)


def as_record(case: Case) -> dict[str, Any]:
    """Return what is kept of a case; refusals name the program, not where it lies."""
    folder = f"{case.source.parent}/"
    made = asdict(case)
    del made["source"], made["options"]
    made["results"] = {switch: text.replace(folder, "") for switch, text in case.results.items()}
    return {**made, "language": case.language}


def _version(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout.strip().splitlines()[-1]


if __name__ == "__main__":
    main()
