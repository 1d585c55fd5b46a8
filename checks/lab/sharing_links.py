"""How several jobs share one real link: what each had of the same seconds in which all are active.

Run as root: python -m checks.lab.sharing_links [--switch bmv2] [--jobs 8] [--mbit 40] [--seconds 10]

Each job has two ranks, on two leaves.  Between the leaves and a root all jobs share veth pairs, whose rates tc's tbf
keeps.  With one switch (`--one`) each rank has a veth pair of its own, and jobs share the switch alone.  Then frames
are counted on their way: what the switch did not take, what its queues dropped, and what was lost behind them.  Start
it on a quiet machine: processors that are busy give shares, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from switchsum_switch.notices import waiting_for

WARM_S: Final = 2.0
"""At both ends of the time in which all are active, which does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What each job had in the same time."""

    mbit: tuple[float, ...]
    """Of values, by job."""
    seconds: float
    repeats: int
    sent: int
    marked: int
    rounds: int
    """Results that members were to get, without answers to repeats."""
    received: int
    """Results and answers that have come."""
    contributions: int
    """Frames that the switch has taken, repeats included."""
    results: int
    """Results that have left its queues."""
    answers: int
    """Its answers to repeats."""

    @property
    def not_taken(self) -> int:
        """Frames that were lost before the switch's program."""
        return self.sent - self.contributions

    @property
    def dropped(self) -> int:
        """Results that the switch's queues have dropped: they are counted behind these."""
        return self.rounds - self.results

    @property
    def lost_behind(self) -> int:
        """Results and answers that have not come to a worker's program, although they have left the queues."""
        return self.results + self.answers - self.received

    @property
    def furthest(self) -> float:
        """By how much the job with the furthest share is away from an equal one."""
        mean = sum(self.mbit) / len(self.mbit)
        return max(abs(one / mean - 1) for one in self.mbit)


def measure(*, jobs: int, mbit: float, seconds: float, switch: str = "embedded", one: bool = False) -> Shares:
    """Run the jobs; raises CalledProcessError if one fails."""
    with tempfile.TemporaryDirectory(prefix="switchsum-sharing-") as scratch:
        command = [sys.executable, "-m", "switchsum", "run", "-n", str(2 * jobs), "--switch", switch, "--lanes", "256"]
        command += ["--links", "veth", "--rate", f"{mbit:g}mbit"] if one else ["--links", f"veth@{mbit:g}"]
        command += [] if one else ["--topology", f"leaf-spine,2,1,{jobs}"]
        command += ["--slots", "32", "--timeout", "120", "--"]
        command += [sys.executable, "-m", "checks.lab.sharing_worker", scratch, str(jobs), str(seconds + 2 * WARM_S)]
        subprocess.run(command, check=True, start_new_session=True)
        found = [json.loads(path.read_text()) for path in sorted(Path(scratch).glob("found-*.json"))]
        return shares(found, json.loads(Path(scratch, "counted.json").read_text()))


def shares(found: list[dict[str, Any]], counted: dict[str, int]) -> Shares:
    """Return what each job had between the last one's start and the first one's end, without `WARM_S` at both."""
    since = max(one["samples"][0][0] for one in found) + WARM_S
    until = min(one["samples"][-1][0] for one in found) - WARM_S
    firsts = {one["job"]: one for one in reversed(found)}
    mbit = []
    for _, one in sorted(firsts.items()):
        inside = [(at, count) for at, count in one["samples"] if since <= at <= until]
        (began, before), (ended, after) = inside[0], inside[-1]
        mbit.append(8 * (after - before) / (ended - began) / 1e6)
    totals = {name: sum(one[name] for one in found) for name in ("repeats", "sent", "marked", "rounds", "received")}
    return Shares(mbit=tuple(mbit), seconds=until - since, **totals, **counted)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--mbit", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--switch", default="embedded")
    parser.add_argument("--one", action="store_true", help="one switch, and a link for each rank")
    options = parser.parse_args()
    with waiting_for(f"{options.jobs} jobs, which start and then add for {options.seconds:.0f} s"):
        found = measure(
            jobs=options.jobs, mbit=options.mbit, seconds=options.seconds, switch=options.switch, one=options.one
        )
    print("| jobs | switch | seconds | together, Mbit/s | furthest from an equal share | frames | repeats | marked |")
    print("|---|---|---|---|---|---|---|---|")
    print(
        f"| {options.jobs} | {options.switch} | {found.seconds:.1f} | {sum(found.mbit):.1f} | {found.furthest:.1%} "
        f"| {found.sent:,} | {found.repeats / found.sent:.3%} | {found.marked:,} |"
    )
    if options.one:
        frames = found.sent + found.rounds + found.answers
        print(
            f"of {frames:,} frames the switch did not take {found.not_taken:,} ({found.not_taken / frames:.4%}), its "
            f"queues dropped {found.dropped:,} ({found.dropped / frames:.4%}), and {found.lost_behind:,} were lost "
            f"behind them ({found.lost_behind / frames:.4%})"
        )


if __name__ == "__main__":
    main()
