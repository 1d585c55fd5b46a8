"""Random entries and packets for p4c's samples for v1model, on interpreter, native code and BMv2.

    python -m checks.conformance.samples P4C --named           the samples that copy metadata, which have no test
    python -m checks.conformance.samples P4C --record FILE     every sample; run it again to go on where it ended

Most samples have no test that sends a packet through them.  Each line of FILE is a sample with what came of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.differ.search import Differ

from .cases import Case, compile_case
from .load import samples

COPYING: Final = (
    "drop-bmv2",
    "issue1538",
    "issue1544-bmv2",
    "issue1544-1-bmv2",
    "issue1544-2-bmv2",
    "issue1739-bmv2",
    "issue461-bmv2",
    "issue561-bmv2",
    "v1model-special-ops-bmv2",
)
"""Samples whose actions or controls are given the metadata, or copy it."""
SAME: Final = "the same"


def outcome(program: bytes, bmv2: bool, seconds: float) -> str:
    """Compare the switches for some seconds; return "the same" and how often, or what is not."""
    until = time.monotonic() + seconds
    try:
        differ, seed = Differ(program, bmv2=bmv2, until_s=until), 0
        while seed == 0 or time.monotonic() < until:
            if (found := differ.try_seed(seed)) is not None:
                return f"{found.sides[0]} and {found.sides[1]} differ: {found.what}\n{found.stf}"
            seed += 1
    except SwitchsumError as error:
        return f"refused: {error}"
    return f"{SAME}: {differ.tally.packets} packets, {differ.tally.entries} entries"


def main() -> int:
    """Run the check; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.samples", description=__doc__)
    parser.add_argument("p4c", type=Path, help="a clone of p4c")
    parser.add_argument("--named", action="store_true", help="the samples that copy metadata alone")
    parser.add_argument("--seconds", type=float, default=10, help="for each sample (10)")
    parser.add_argument("--record", type=Path, help="a file of results, to which new ones are added")
    parser.add_argument("--within", type=float, default=float("inf"), help="no sample begins after so many seconds")
    options = parser.parse_args()
    record: Path | None = options.record
    lines = record.read_text().splitlines() if record is not None and record.exists() else []
    done: dict[str, str] = dict(json.loads(line) for line in lines)
    bmv2, until = shutil.which("simple_switch_grpc") is not None, time.monotonic() + options.within
    with tempfile.TemporaryDirectory() as scratch:
        for case in samples(options.p4c):
            wanted = not options.named or Path(case.name).name in COPYING
            if not wanted or case.name in done or time.monotonic() >= until:
                continue
            done[case.name] = _try(case, Path(scratch), bmv2, options.seconds)
            print(f"{case.name}: {done[case.name]}", flush=True)
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps([case.name, done[case.name]]) + "\n")
    counts = Counter(result.partition(":")[0] for result in done.values())
    print(", ".join(f"{count} {result}" for result, count in counts.most_common()))
    return any("differ" in result for result in counts)


def _try(case: Case, scratch: Path, bmv2: bool, seconds: float) -> str:
    program = compile_case(case, scratch)
    return f"not compiled: {case.excluded}" if program is None else outcome(program, bmv2, seconds)


if __name__ == "__main__":
    raise SystemExit(main())
