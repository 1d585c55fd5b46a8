"""Public programs that were in none of our lists: `python -m checks.conformance.minutes CLONES`.

CLONES has a clone of each repository that `PROGRAMS` names, under the repository's name; p4c-bm2-ss and
simple_switch_grpc are on PATH.  The cases of `switchsum differ` go through interpreter, native code and BMv2, for some
seconds with each program.  The record is written all the time: run the command again, and it goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.differ.search import Differ

from .cases import Case, compile_case

RECORD: Final = Path(__file__).with_name("minutes.json")
SECONDS: Final = 300.0
SAVE_S: Final = 10.0


class Public(NamedTuple):
    """Where a program is."""

    owner: str
    repository: str
    commit: str
    path: str


_LEARNING: Final = ("nsg-ethz", "p4-learning", "0ddba18")
PROGRAMS: Final[dict[str, Public]] = {
    "flowlet switching": Public(*_LEARNING, "exercises/05-Flowlet_Switching/solution/p4src/flowlet_switching.p4"),
    "congestion-aware load balancing": Public(
        *_LEARNING, "exercises/10-Congestion_Aware_Load_Balancing/solution/p4src/loadbalancer.p4"
    ),
    "packet-loss detection": Public(*_LEARNING, "exercises/11-Packet-Loss-Detection/solution/p4src/loss-detection.p4"),
    "RSVP": Public(*_LEARNING, "exercises/04-RSVP/thrift/solution/rsvp.p4"),
    "count-min sketch": Public(*_LEARNING, "exercises/07-Count-Min-Sketch/solution/p4src/cm-sketch.p4"),
    "reliable allreduce": Public(
        "shahbaz-alikhan", "p4-in-network-allreduce", "83d5b43", "lab3/sml-udp-rel/p4/main.p4"
    ),
    "SwitchML over UDP": Public("moataz-10", "SwitchML", "48fc2fa", "p4/main.p4"),
    "SAINA": Public("hotephen", "p4-dev", "8476734", "saina/saina.p4"),
    "sliding sketch": Public("hotephen", "p4-dev", "8476734", "p4ss/sliding_sketch_v3.p4"),
    "demo6": Public("jafingerhut", "p4-guide", "23854a7", "demo6/demo6.p4_16.p4"),
}


@dataclass(slots=True, kw_only=True)
class Row:
    """A program, and what was compared."""

    name: str
    seconds: float = 0.0
    seeds: int = 0
    """Cases, which is also the first seed that was not tried."""
    packets: int = 0
    entries: int = 0
    frames: int = 0
    ended: int = 0
    """Number of times that BMv2 ended itself."""
    left_out: str = ""
    """What is BMv2's own and not compared."""
    difference: str = ""
    """What two switches do not agree about; nothing if they do."""


def go_on(row: Row, program: bytes, seconds: float, *, bmv2: bool = True) -> Iterator[Row]:
    """Compare the switches until a row has its seconds, or a difference; yield the row after each case."""
    first = (row.packets, row.entries, row.frames, row.ended)
    until = time.monotonic() + seconds - row.seconds
    try:
        differ = Differ(program, bmv2=bmv2, until_s=until)
    except SwitchsumError as error:
        row.difference = f"refused: {str(error).splitlines()[0]}"
        yield row
        return
    row.left_out = "; ".join(differ.tally.left_out)
    while row.seconds < seconds and not row.difference:
        began = time.monotonic()
        found = differ.try_seed(row.seeds)
        tally = differ.tally
        row.seconds, row.seeds = round(row.seconds + time.monotonic() - began, 2), row.seeds + 1
        counted = tally.packets, tally.entries, tally.frames, len(tally.ended)
        row.packets, row.entries, row.frames, row.ended = map(sum, zip(first, counted, strict=True))
        if found is not None:
            row.difference = f"{' and '.join(found.sides)}: {found.what} (seed {found.seed})"
            print(f"{row.name}: {row.difference}\n{found.stf}", flush=True)
        yield row


def section(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield the part of docs/results/conformance.md that has these programs."""
    rows = record["programs"]
    agreed = sum(not row["difference"] for row in rows)
    shortest = min((row["seconds"] for row in rows), default=0)
    yield "\n## Public programs that were in no list\n"
    yield f"These programs were taken when all others had passed ({record['date']}). `switchsum differ` compared"
    yield f"interpreter, native code and BMv2 for {shortest:.0f} s or more on each. {agreed} of {len(rows)} show no"
    yield "difference. `python -m checks.conformance.minutes CLONES` does it again, and goes on where it was ended.\n"
    yield "| program | seconds | packets in, out | entries | difference |"
    yield "|---|---|---|---|---|"
    for row in rows:
        where = PROGRAMS[row["name"]]
        place = f"github.com/{where.owner}/{where.repository} {where.commit}, {where.path}"
        cells = (
            f"{row['name']}: {place}",
            f"{row['seconds']:.0f}",
            f"{row['packets']:,}, {row['frames']:,}",
            f"{row['entries']:,}",
            (row["difference"] or "none").replace("|", "\\|"),
        )
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.minutes", description=__doc__)
    parser.add_argument("clones", type=Path, help="a folder with a clone of each repository")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for each program ({SECONDS:.0f})")
    parser.add_argument("--only", default="", help="programs whose names have this word")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"programs": []}
    rows = {row["name"]: Row(**row) for row in record["programs"]}
    with tempfile.TemporaryDirectory(prefix="switchsum-minutes-") as scratch:
        for name, where in PROGRAMS.items():
            row = rows.setdefault(name, Row(name=name))
            if options.only not in name or row.seconds >= options.seconds:
                continue
            case = Case(name=name, source=options.clones / where.repository / where.path)
            program = compile_case(case, Path(scratch))
            if program is None:
                print(f"{name}: {case.excluded}", flush=True)
                continue
            saved = time.monotonic()
            for state in go_on(row, program, options.seconds):
                if time.monotonic() > saved + SAVE_S:
                    saved = _save(rows)
                    print(f"{name}: {state.seconds:.0f} s, {state.packets} packets", flush=True)
            _save(rows)
    return int(any(row.difference for row in rows.values()))


def _save(rows: Mapping[str, Row]) -> float:
    made = [asdict(rows[name]) for name in PROGRAMS if name in rows and rows[name].seeds]
    RECORD.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), "programs": made}, indent=1) + "\n")
    return time.monotonic()


if __name__ == "__main__":
    raise SystemExit(main())
