"""Judges what came of a row: right results with the same bits on all ranks, or the same named error on all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from .columns import COMMUNICATOR, OUTER
from .orders import INJURED
from .playing import MEMBERS, play_in_memory

TIMES: Final = 1.5
MORE: Final = 0.05
"""An error may be so many times that of ranks with equal states, and so much more."""
NO_AVERAGE: Final = "dgc"
"""It sums up a velocity, so its error says nothing where ranks begin at other steps: bits are compared alone."""
Report = dict[str, Any]


class Judge:
    """Knows how large the errors of compressors are where nothing happens."""

    def __init__(self) -> None:
        self._usual: dict[tuple[str, ...], float] = {}

    def faults(self, row: dict[str, str], number: int, jobs: Sequence[Sequence[Report]]) -> list[str]:
        """Return what is not right about a row, in words."""
        found = []
        for turn, reports in enumerate(jobs):
            live = [one for one in reports if "killed" not in one]
            found += [f"job {turn}: {one['foreign'].strip().splitlines()[-1]}" for one in live if "foreign" in one]
            wrong = sum(one.get("beside", 0) for one in live)
            found += [f"job {turn}: {wrong} values of the group beside are wrong"] if wrong else []
            if any("foreign" in one for one in live):
                continue
            if (len(live) < len(reports)) != (row["event"] == "killed"):
                found.append(f"job {turn}: {len(reports) - len(live)} ranks have ended by themselves")
            live = [one for one in live if "outside" not in one]
            raised = {one.get("raised", "") for one in live}
            if len(raised) > 1:
                words = "; ".join(sorted({f"{one.get('raised', 'no error')}: {one.get('text', '')}" for one in live}))
                found.append(f"job {turn}: some ranks raise, others do not, or something else: {words}")
            elif raised != {""}:
                found += self._of_error(row, turn, live)
            else:
                found += self._of_results(row, number, turn, live)
        return found

    def _of_error(self, row: dict[str, str], turn: int, live: Sequence[Report]) -> list[str]:
        name, text = live[0]["raised"], live[0]["text"]
        if name == "OperationMismatch" and turn:
            return []  # states differ, and all ranks hear how
        ends = row["step"] in OUTER or row["group"] != COMMUNICATOR
        if name == "WorkerLost" and row["event"] == "killed" and ends:
            lost = {one["lost"] for one in live}
            return [] if lost == {INJURED} else [f"job {turn}: the lost rank is said to be {lost}: {text}"]
        return [f"job {turn}: all ranks raise {name}: {text}"]

    def _of_results(self, row: dict[str, str], number: int, turn: int, live: Sequence[Report]) -> list[str]:
        found = []
        if len({str(sorted(one["bits"].items())) for one in live}) > 1:
            found.append(f"job {turn}: ranks have different bits: {[one['bits'] for one in live]}")
        off = max(one["off"] for one in live)
        if off > 1:
            found.append(f"job {turn}: a sum is {off:.3g} times as far off as rounding explains")
        if any(one["went_on"] for one in live):
            return found  # some averages are of fewer ranks: bits are compared alone
        errors = [one["error"] for one in live if one["error"] is not None]
        if row["compressor"].startswith(NO_AVERAGE) and row["event"] != "none":
            return found
        if errors and max(errors) > (most := self._most(row, number)):
            found.append(f"job {turn}: averages are off by {max(errors):.3g}, where up to {most:.3g} are usual")
        return found

    def _most(self, row: dict[str, str], number: int) -> float:
        calm = row | {"link": "memory", "topology": "star", "sharing": "own", "event": "none", "loss": "0"}
        calm["group"] = COMMUNICATOR
        if calm["step"] == "DiLoCo with quorum":
            calm["step"] = "DiLoCo"
        key = (*calm.values(), str(number))
        if key not in self._usual:
            (reports,) = play_in_memory(calm, number)
            self._usual[key] = max(one["error"] for one in reports[: len(MEMBERS)])
        return TIMES * self._usual[key] + MORE
