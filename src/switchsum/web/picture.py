"""Makes the page's JSON: the records of `top`, the sentences of `explain`, slots and counters with rates."""

from __future__ import annotations

import secrets
import time
from collections import deque
from dataclasses import asdict
from typing import Any, Final

from switchsum.protocol import rpc
from switchsum.view.explain import explain, headline, link_text, lost_of, runs, slots_taken
from switchsum.view.facts import Facts, Overview
from switchsum.view.ranks import Seen, rank_rows, what_it_does
from switchsum.view.rounds import newest_rounds
from switchsum.web.topology import link_rows, rank_links, switch_rows

STALE_S: Final = 2.0
"""A round that lacks contributions and has not changed for so long waits for those who are missing."""
HISTORY_S: Final = 300.0
"""What a page shows of the past."""
POINT_S: Final = 0.9
"""Least time between two points: pictures are a second apart, or a little less."""
MOST_WAITING: Final = 32
"""Lines of slots of a job that are listed with who is missing; the heat map shows all."""


class Painter:
    """Makes pictures of overviews, one after the other; rates come from two of them."""

    def __init__(self) -> None:
        self._started = secrets.token_hex(4)
        self._ranks: Seen = {}
        self._counted: dict[tuple[str, str], tuple[float, int]] = {}
        self._cells: dict[tuple[str, int], tuple[int, int, float]] = {}
        self._slots: dict[str, dict[str, Any]] = {}
        self._history: dict[str, deque[tuple[float, list[float]]]] = {}

    def trouble(self, text: str) -> dict[str, Any]:
        """Return a picture of a controller that cannot say how things are."""
        nothing: dict[str, Any] = {"jobs": [], "counters": [], "ports": [], "switches": [], "links": []}
        return {"started": self._started, "at": time.time(), "trouble": text} | nothing

    def paint(self, seen: Overview, now: float) -> dict[str, Any]:
        """Return a picture; `now` is in seconds of a clock that never goes back."""
        self._forget(seen)
        jobs = [one.job for one in seen.jobs]
        rates = {one.switch: self._rate("switch", one.switch, one.contributions, now) for one in seen.counted.switches}
        return {
            "started": self._started,
            "at": seen.at_s,
            "trouble": seen.trouble,
            "controller": asdict(seen.info),
            "slots_text": slots_taken(jobs, seen.info.free_slots),
            "jobs": [self._job(facts, now) for facts in seen.jobs],
            "refused": [asdict(one) for one in seen.info.refused],
            "counters": [
                asdict(one) | {"packets_per_s": self._rate("reason", one.reason, one.packets, now)}
                for one in seen.counted.counters
                if one.packets
            ],
            "switches": switch_rows(seen, rates),
            "links": link_rows(seen, rates),
            "faults": seen.links.faults,
            "ports": [asdict(one) for one in seen.ports.ports],
        }

    def note(self, seen: Overview, now: float) -> None:
        """Keep an overview for the history alone."""
        self._forget(seen)
        for facts in seen.jobs:
            self._point(facts.job.job, rank_rows(facts.job, facts.workers, now, self._ranks), now)

    def history(self, now: float) -> dict[str, list[list[float]]]:
        """Return, for each job, how many seconds ago it had which rates: collectives, bytes sent, repeats a second."""
        return {
            job: [[round(now - at, 1), *rates] for at, rates in points if now - at <= HISTORY_S]
            for job, points in self._history.items()
        }

    def _point(self, job: str, rows: list[dict[str, Any]], now: float) -> list[float]:
        """Return the rates of a job, and keep them."""
        keys = ("bytes_per_s", "repeats_per_s")
        rates = [max((row["collectives_per_s"] for row in rows), default=0.0)]
        rates += [round(sum(row[key] for row in rows), 1) for key in keys]
        points = self._history.setdefault(job, deque(maxlen=int(HISTORY_S / POINT_S)))
        if not points or now - points[-1][0] >= POINT_S:  # pages that are opened make further pictures
            points.append((now, rates))
        return rates

    def _forget(self, seen: Overview) -> None:
        """Forget what is known of jobs that are no more."""
        names = {one.job.job for one in seen.jobs}
        for kept in (self._ranks, self._cells):
            for key in [key for key in kept if key[0] not in names]:
                del kept[key]
        for by_job in (self._history, self._slots):
            for job in by_job.keys() - names:
                del by_job[job]

    def _job(self, facts: Facts, now: float) -> dict[str, Any]:
        rows = rank_rows(facts.job, facts.workers, now, self._ranks)
        members = {one.rank: one for one in facts.job.members}
        if facts.slots is not None or facts.job.job not in self._slots:  # else they are shown as they were read last
            self._slots[facts.job.job] = self._slots_of(facts.job, facts.slots or [], now)
        for worker, row in zip(facts.workers, rows, strict=True):
            row["lost"] = lost_of(facts, worker)
            row["link"] = link_text(worker.link)
            row["does"] = what_it_does(row)
            member = members.get(row["rank"])  # none: the job has been resized since
            row["switch"] = member.switch if member else ""
            row["links"] = rank_links(facts.job, member) if member else []
        return {
            "job": facts.job.job,
            "state": facts.job.state,
            "workers": facts.job.workers,
            "headline": headline(facts),
            "findings": [asdict(one) for one in explain(facts)],
            "ranks": rows,
            "rates": self._point(facts.job.job, rows, now),
            "collectives": min((one.finished for one in facts.workers if one.age_s >= 0), default=0),
            **self._slots[facts.job.job],
        }

    def _slots_of(self, job: rpc.JobInfo, cells: list[rpc.SlotInfo], now: float) -> dict[str, Any]:
        """Return a letter for each slot that was read (free, filling, complete, stale), and who is missing where."""
        letters: list[str] = []
        waiting: dict[tuple[int, int], dict[str, Any]] = {}  # by number and who has contributed
        for one in newest_rounds(job, cells):
            if one.is_complete or not one.contributed:
                letters.append("c" if one.contributed else "f")
                continue
            key = job.job, one.slot
            number, bits, since = self._cells.get(key, (-1, 0, now))
            if (number, bits) != (one.number, one.contributed):
                since = now
                self._cells[key] = one.number, one.contributed, now
            letters.append("s" if now - since >= STALE_S else "i")
            same = waiting.get((one.number, one.contributed))
            if same is not None:
                same["slots"].append(one.slot)
                same["since"] = min(same["since"], since)
            elif len(waiting) < MOST_WAITING:
                row = {"slots": [one.slot], "number": one.number, "missing": one.missing, "since": since}
                waiting[one.number, one.contributed] = row
        rows = [
            {
                "slots": runs(row["slots"]),
                "number": row["number"],
                "missing": row["missing"],
                "for_s": round(now - row["since"], 1),
            }
            for row in waiting.values()
        ]
        return {"first_slot": job.first_slot, "slots": "".join(letters), "waiting": rows}

    def _rate(self, kind: str, name: str, count: int, now: float) -> float:
        """Return by how much a counter has grown a second since it was last asked for."""
        at, before = self._counted.get((kind, name), (now, count))
        self._counted[kind, name] = now, count
        return round((count - before) / (now - at), 1) if now > at and count >= before else 0.0
