"""What the page shows, as JSON: the records of `top`, the sentences of `explain`, slots and counters with rates."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Any, Final

from switchsum.protocol import rpc
from switchsum.protocol.serial import is_older
from switchsum.view.explain import explain, headline, lost_frames, runs, slots_taken
from switchsum.view.facts import Facts, Overview
from switchsum.view.ranks import Seen, rank_rows, what_it_does

STALE_S: Final = 2.0
"""A round that lacks contributions and has not changed for so long waits for those who are missing."""
MOST_WAITING: Final = 32
"""Lines of slots of a job that are listed with who is missing; the heat map shows all."""


class Painter:
    """Makes pictures of overviews, one after the other; rates come from two of them."""

    def __init__(self) -> None:
        self._started = secrets.token_hex(4)
        self._ranks: Seen = {}
        self._counters: dict[str, tuple[float, int]] = {}
        self._cells: dict[tuple[str, int], tuple[int, int, float]] = {}

    def trouble(self, text: str) -> dict[str, Any]:
        """Return a picture of a controller that cannot say how things are."""
        return {"started": self._started, "at": time.time(), "trouble": text, "jobs": [], "counters": [], "ports": []}

    def paint(self, seen: Overview, now: float) -> dict[str, Any]:
        """Return a picture; `now` is in seconds of a clock that never goes back."""
        jobs = [one.job for one in seen.jobs]
        names = {job.job for job in jobs}
        for kept in (self._ranks, self._cells):  # what is known of jobs that are no more
            for key in [key for key in kept if key[0] not in names]:
                del kept[key]
        return {
            "started": self._started,
            "at": seen.at_s,
            "trouble": seen.trouble,
            "controller": asdict(seen.info),
            "slots_text": slots_taken(jobs, seen.info.free_slots),
            "jobs": [self._job(facts, now) for facts in seen.jobs],
            "refused": [asdict(one) for one in seen.info.refused],
            "counters": [self._counter(one, now) for one in seen.counters if one.packets],
            "ports": [asdict(one) for one in seen.ports.ports],
        }

    def _job(self, facts: Facts, now: float) -> dict[str, Any]:
        rows = rank_rows(facts.job, facts.workers, now, self._ranks)
        ports = {one.rank: one.ingress_port for one in facts.job.members}
        workers = {one.rank: one for one in facts.workers}
        for row in rows:
            worker, counters = workers[row["rank"]], facts.counters.get(row["rank"])
            is_known = counters is not None and worker.age_s >= 0
            row["lost"] = sum(lost_frames(worker, counters)) if is_known and counters is not None else 0
            row["does"] = what_it_does(row)
            row["port"] = ports.get(row["rank"], -1)
        return {
            "job": facts.job.job,
            "state": facts.job.state,
            "workers": facts.job.workers,
            "headline": headline(facts),
            "findings": [asdict(one) for one in explain(facts)],
            "ranks": rows,
            "collectives": min((one.finished for one in facts.workers if one.age_s >= 0), default=0),
            **self._slots(facts, now),
        }

    def _slots(self, facts: Facts, now: float) -> dict[str, Any]:
        """Return a letter for each slot that was read (free, filling, complete, stale), and who is missing where."""
        newest: dict[int, rpc.SlotInfo] = {}
        for cell in facts.slots:
            before = newest.get(cell.slot)
            if before is None or (cell.seen and (not before.seen or is_older(before.number, cell.number))):
                newest[cell.slot] = cell
        everyone = (1 << facts.job.workers) - 1
        letters: list[str] = []
        waiting: list[dict[str, Any]] = []
        for slot, cell in sorted(newest.items()):
            if not cell.seen or cell.seen == everyone:
                letters.append("c" if cell.seen else "f")
                continue
            key = facts.job.job, slot
            number, bits, since = self._cells.get(key, (-1, 0, now))
            if (number, bits) != (cell.number, cell.seen):
                since = now
                self._cells[key] = cell.number, cell.seen, now
            waits_s = round(now - since, 1)
            letters.append("s" if waits_s >= STALE_S else "i")
            missing = [rank for rank in range(facts.job.workers) if not cell.seen >> rank & 1]
            same = [one for one in waiting if (one["missing"], one["number"]) == (missing, cell.number)]
            if same:
                same[0]["slots"].append(slot)
                same[0]["for_s"] = max(same[0]["for_s"], waits_s)
            elif len(waiting) < MOST_WAITING:
                waiting.append({"slots": [slot], "number": cell.number, "missing": missing, "for_s": waits_s})
        waiting = [one | {"slots": runs(one["slots"])} for one in waiting]
        return {"first_slot": facts.job.first_slot, "slots": "".join(letters), "waiting": waiting}

    def _counter(self, counter: rpc.CounterInfo, now: float) -> dict[str, Any]:
        at, packets = self._counters.get(counter.reason, (now, counter.packets))
        self._counters[counter.reason] = now, counter.packets
        rate = (counter.packets - packets) / (now - at) if now > at and counter.packets >= packets else 0.0
        return {**asdict(counter), "packets_per_s": round(rate, 1)}
