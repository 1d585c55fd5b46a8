"""Makes the page's JSON: the records of `top`, the sentences of `explain`, slots and counters with rates."""

from __future__ import annotations

import math
import secrets
import time
from array import array
from collections import deque
from dataclasses import asdict
from typing import Any, Final

from switchsum.view.alerts import alerts
from switchsum.view.explain import explain, headline
from switchsum.view.facts import Facts, Overview
from switchsum.view.late import STRIP_STEPS, stands, step_s, steps_of
from switchsum.view.losses import split_repeated
from switchsum.view.ranks import Seen, rows_of_ranks, what_it_does
from switchsum.view.rounds import newest_rounds
from switchsum.view.spans import of_collectives, shown_span
from switchsum.view.words import link_text, runs
from switchsum.web.topology import link_rows, rank_links, switch_rows
from switchsum_protocol import rpc
from switchsum_protocol.frame import Reason

STALE_S: Final = 2.0
"""A round that lacks contributions and has not changed for so long waits for those who are missing."""
POINT_S: Final = 0.9
"""Least time between two points: pictures are a second apart, or a little less."""
FINE_S: Final = 600.0
"""Seconds of the past that a page shows second by second."""
COARSE_POINT_S: Final = 10.0
COARSE_S: Final = 3600.0
"""And with a point for each ten seconds."""
MOST_CURVES: Final = 64
"""Ranks of which each has curves."""
LOST: Final = 4
"""Place of lost frames among the figures of a point."""
REPEATED: Final = Reason.REPEATED.name.lower()
RANKS: Final = 6
"""Place of the first rank's figures."""
OF_RANK: Final = ("bytes_per_s", "waiting_share", "lost_share", "density")
"""Figures of a rank in a point, one after the other."""
FRESH_S: Final = 10.0
"""A rate is that of so many last seconds at most: what was counted before says nothing of now."""
MOST_WAITING: Final = 32
"""Lines of slots of a job that are listed with who is missing; the heat map shows all."""


Figures = list[float | None]


class History:
    """Figures of a job: of each second for a while, and of each ten seconds before."""

    def __init__(self) -> None:
        self._fine: deque[tuple[float, array[float]]] = deque(maxlen=int(FINE_S / POINT_S))
        self._coarse: deque[tuple[float, array[float]]] = deque(maxlen=int(COARSE_S / COARSE_POINT_S))

    def add(self, now: float, figures: Figures) -> None:
        """Keep figures, unless the last ones are of a moment ago: pages that are opened make further pictures."""
        packed = array("f", (math.nan if one is None else one for one in figures))
        for points, every_s in ((self._fine, POINT_S), (self._coarse, COARSE_POINT_S)):
            if not points or now - points[-1][0] >= every_s:
                points.append((now, packed))

    def of(self, now: float) -> list[Figures]:
        """Return the age of each point with its figures, the oldest first."""
        first = self._fine[0][0] if self._fine else now
        points = [*(one for one in self._coarse if one[0] < first), *self._fine]
        return [[round(now - at, 1), *map(_digits, figures)] for at, figures in points if now - at <= COARSE_S]


def _digits(value: float) -> float | None:
    """Return a figure with as many digits as are drawn; None: it is not known."""
    return None if math.isnan(value) else float(f"{value:.4g}")


class Painter:
    """Makes pictures of overviews, one after the other; rates come from two of them."""

    def __init__(self) -> None:
        self._started = secrets.token_hex(4)
        self._ranks: Seen = {}
        self._counted: dict[tuple[str, str], tuple[float, int]] = {}
        self._cells: dict[tuple[str, int], tuple[int, int, float, float]] = {}
        self._slots: dict[str, dict[str, Any]] = {}
        self._history: dict[str, History] = {}

    def trouble(self, text: str) -> dict[str, Any]:
        """Return a picture of a controller that cannot say how things are."""
        nothing: dict[str, Any] = {"jobs": [], "counters": [], "ports": [], "switches": [], "links": []}
        return {"started": self._started, "at": time.time(), "trouble": text} | nothing

    def paint(self, seen: Overview, now: float) -> dict[str, Any]:
        """Return a picture; `now` is in seconds of a clock that never goes back."""
        self._forget(seen)
        away = ", ".join(seen.counted.away)  # sums over the same switches are compared with each other
        rates = {
            one.switch: rate
            for one in seen.counted.switches
            if (rate := self._rate("switch", one.switch, one.contributions, now)) is not None
        }
        return {
            "started": self._started,
            "at": seen.at_s,
            "trouble": seen.trouble,
            "controller": asdict(seen.info),
            "alerts": [asdict(one) for one in alerts(seen)],
            "jobs": [self._job(facts, now) for facts in seen.jobs],
            "counters": [
                asdict(one) | {"packets_per_s": self._rate(f"reason {away}", one.reason, one.packets, now)}
                for one in seen.counted.counters
                if one.packets
            ],
            "repeated": _repeated(seen),
            "uncounted": away,
            "switches": switch_rows(seen, rates),
            "links": link_rows(seen, rates),
            "ports": [asdict(one) for one in seen.ports.ports],
        }

    def note(self, seen: Overview, now: float) -> None:
        """Keep an overview for the history alone."""
        self._forget(seen)
        for facts in seen.jobs:
            self._point(facts, rows_of_ranks(facts, now, self._ranks), now)

    def history(self, now: float) -> dict[str, list[Figures]]:
        """Return, for each job, how many seconds ago it had which figures, as `_point` returns them."""
        return {job: points.of(now) for job, points in self._history.items()}

    def _point(self, facts: Facts, rows: list[dict[str, Any]], now: float) -> Figures:
        """Return figures of a job, and keep them.

        The figures are collectives and bytes a second, the time of a step, the shares of time that ranks wait and of
        frames that are lost, the share of rows of sparse sums that travels, and `OF_RANK` of each rank.
        """
        union, total = _most_rows(facts)
        figures: Figures = [max((row["collectives_per_s"] for row in rows), default=0.0)]
        figures += [round(sum(row["bytes_per_s"] for row in rows), 1)]
        figures += [None if stands(facts.workers) else round(step_s(facts.calls, steps_of(facts.calls)[1]), 6) or None]
        figures += [round(sum(row[name] for row in rows) / max(1, len(rows)), 5) for name in OF_RANK[1:3]]
        figures += [round(union / total, 5) if total else None]
        figures += [row[name] for row in rows[:MOST_CURVES] for name in OF_RANK]
        if not facts.counters:  # the switch was not asked
            for place in (LOST, *range(RANKS + OF_RANK.index("lost_share"), len(figures), len(OF_RANK))):
                figures[place] = None
        self._history.setdefault(facts.job.job, History()).add(now, figures)
        return figures

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
        rows = rows_of_ranks(facts, now, self._ranks)
        members = {one.rank: one for one in facts.job.members}
        if facts.slots is not None or facts.job.job not in self._slots:  # else they are shown as they were read last
            waits_s = max((one.waiting_s for one in facts.workers if one.age_s >= 0), default=0.0)
            self._slots[facts.job.job] = self._slots_of(facts.job, facts.slots or [], now, waits_s)
        for worker, row in zip(facts.workers, rows, strict=True):
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
            "rates": self._point(facts, rows, now),
            "kinds": [] if (span := shown_span(facts.calls)) is None else of_collectives(span),
            "strip": [[one.rank, round(1e6 * one.late_s)] for one in steps_of(facts.calls)[0][-STRIP_STEPS:]],
            "collectives": min((one.finished for one in facts.workers if one.age_s >= 0), default=0),
            **self._slots[facts.job.job],
        }

    def _slots_of(self, job: rpc.JobInfo, cells: list[rpc.SlotInfo], now: float, waits_s: float) -> dict[str, Any]:
        """Return a letter for each slot that was read (free, filling, complete, stale), and who is missing where.

        A slot that lacks contributions when it is first seen has done so for as long as ranks wait, `waits_s`.
        """
        letters: list[str] = []
        waiting: dict[tuple[int, int], dict[str, Any]] = {}  # by number and who has contributed
        for one in newest_rounds(job, cells):
            if one.is_complete or not one.contributed:
                letters.append("c" if one.contributed else "f")
                continue
            key = job.job, one.slot
            number, bits, seen, since = self._cells.get(key, (-1, 0, now, now))
            if (number, bits) != (one.number, one.contributed):
                seen, since = now, now - waits_s if number < 0 else now
                self._cells[key] = one.number, one.contributed, seen, since
            letters.append("s" if now - seen >= STALE_S else "i")
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
        own = {"own_place": job.slot_count, "own_first_slot": job.own_first_slot} if job.own_slot_count else {}
        return {"first_slot": job.first_slot, **own, "slots": "".join(letters), "waiting": rows}

    def _rate(self, kind: str, name: str, count: int, now: float) -> float | None:
        """Return by how much a counter has grown a second since it was last asked for; None: not known yet."""
        at, before = self._counted.get((kind, name), (now, count))
        self._counted[kind, name] = now, count
        return round((count - before) / (now - at), 1) if at < now <= at + FRESH_S and count >= before else None


def _repeated(seen: Overview) -> tuple[int, int] | None:
    """Return how many repeats were answered although nothing was lost, and how many for lost results; None: none."""
    count = next((one.packets for one in seen.counted.counters if one.reason == REPEATED), 0)
    return split_repeated(count, (one for facts in seen.jobs for one in facts.workers)) if count else None


def _most_rows(facts: Facts) -> tuple[int, int]:
    """Return rows of the job's latest sparse sums that travelled, and all; ranks report at different moments."""
    found = [(one.recent.sparse_all_rows, one.recent.sparse_union_rows) for one in facts.workers]
    total, union = max(found, default=(0, 0))
    return union, total
