"""Where the time of a job goes: by rank and by kind of collective, over the spans of time that a controller keeps."""

from __future__ import annotations

from typing import Any, Final

from switchsum.view.late import shares
from switchsum.view.words import duration, percent
from switchsum_protocol.reports import CallSpan, JobCalls

MS: Final = 1e3
MINUTE_S: Final = 60
OTHERS: Final = (("moves", "moving"), ("computes", "computing"))


def span_text(seconds: float) -> str:
    """Write the length of a span.

    >>> [span_text(one) for one in (10, 60, 600)]
    ['10 s', '1 min', '10 min']
    """
    return f"{seconds:.0f} s" if seconds < MINUTE_S else f"{seconds / MINUTE_S:.0f} min"


def of_ranks(span: CallSpan) -> list[dict[str, Any]]:
    """Return for each rank which parts of its time it computed, moved data, and waited for others."""
    return [
        {"rank": rank, **{name: round(share, 4) for name, share in shares(span, rank).items()}}
        for rank in range(len(span.time_s))
    ]


def of_collectives(span: CallSpan) -> list[dict[str, Any]]:
    """Return for each kind of collective what a call of it took, the kind first that took longest in all.

    `waiting_ms` is how long a rank waited, on average; `late_ms` how long all waited for `late_rank` alone.
    """
    return [
        {
            "collective": kind.name,
            "calls": kind.calls,
            "moving_ms": round(MS * kind.moving_s / kind.calls, 3),
            "waiting_ms": round(MS * kind.waiting_s / kind.calls, 3),
            "late_rank": kind.late_rank,
            "late_ms": round(MS * kind.late_s / kind.calls, 3),
        }
        for kind in span.kinds
        if kind.calls
    ]


def shown_span(calls: JobCalls) -> CallSpan | None:
    """Return the span whose kinds of collectives people see: the last minute, or the longest known; None: no call."""
    known = [one for one in calls.spans if one.calls]
    return known[min(1, len(known) - 1)] if known else None


def as_data(calls: JobCalls) -> list[dict[str, Any]]:
    """Return all spans, for programs."""
    return [
        {"seconds": one.seconds, "calls": one.calls, "ranks": of_ranks(one), "collectives": of_collectives(one)}
        for one in calls.spans
    ]


def tables(calls: JobCalls) -> dict[str, list[dict[str, Any]]]:
    """Return tables for people, by title: waiting of each rank over all spans, and collectives of the last minute."""
    spans = [one for one in calls.spans if one.calls]
    if not spans:
        return {}
    ranks = [
        {"rank": rank, **{f"waits, {span_text(one.seconds)}": percent(shares(one, rank)["waiting"]) for one in spans}}
        | {f"{name}, {span_text(spans[0].seconds)}": percent(shares(spans[0], rank)[key]) for name, key in OTHERS}
        for rank in range(len(spans[0].time_s))
    ]
    middle = shown_span(calls) or spans[0]
    kinds = [
        {
            "collective": one["collective"],
            "calls": one["calls"],
            "moves": duration(one["moving_ms"] / MS),
            "ranks wait": duration(one["waiting_ms"] / MS),
            "last": f"rank {one['late_rank']}",
            "others wait for it": duration(one["late_ms"] / MS),
        }
        for one in of_collectives(middle)
    ]
    return {"ranks": ranks, f"collectives of the last {span_text(middle.seconds)}, each call on average": kinds}
