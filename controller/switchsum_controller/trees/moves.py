"""Chooses the trees that a job moves to when a switch or a link of its trees stays away.

All is pure: callers pass the time, and `rerouting` writes.  A switch to which workers are connected cannot be replaced.
All else can, where links lead around it; so a job moves when it has been away for `AWAY_S`.  The trees that do not
pass it stay as they are.  A job that has moved stays where it is until its incarnation ends, also when the switch is
back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MAX_WORKERS
from switchsum_protocol.rpc import Move

from ..jobs.machines import Incarnation
from . import rails
from .fabric import Fabric, pruned, tree_from, ways_up
from .rails import Pair

AWAY_S: Final = 5.0
"""Seconds that a switch may be away before its jobs continue without it. A restarted switch is back sooner."""
PATIENCE: Final = 10
"""A switch that is done without is tried again after so many times as long as the last try took (once if ranks that
join may need it), and"""
RETRY_S: Final = 1.0
"""no sooner than after this."""
Parents = Mapping[str, str]


Thing = TypeVar("Thing", str, Pair)


class Absences(Generic[Thing]):
    """Notes since when each switch, or each link, has been away."""

    def __init__(self, limit_s: float | None = None) -> None:
        """Take for long what lasts longer than `limit_s`, or AWAY_S."""
        self._limit_s = limit_s
        self._since_s: dict[Thing, float] = {}
        self._tried: dict[Thing, tuple[float, float]] = {}
        """When each one was tried last, and how long that took."""

    def note(self, name: Thing, now: float) -> bool:
        """Note that one is away, and return whether that is news."""
        is_news = name not in self._since_s
        self._since_s.setdefault(name, now)
        return is_news

    def end(self, name: Thing) -> None:
        """Note that one is there, or that it is another controller's."""
        self._since_s.pop(name, None)
        self._tried.pop(name, None)

    def tried(self, name: Thing, began_s: float, now: float) -> None:
        """Note that a switch was tried in vain."""
        self._tried[name] = now, now - began_s

    def is_due(self, name: Thing, now: float, *, is_wanted: bool = False) -> bool:
        """Return whether to try a switch again that is done without: one that nothing answers for holds up all else.

        One that `is_wanted` is tried sooner.
        """
        tried_s, took_s = self._tried.get(name, (-math.inf, 0.0))
        return now >= tried_s + max(RETRY_S, took_s * (1 if is_wanted else PATIENCE))

    def long(self, now: float) -> set[Thing]:
        """Return those that have been away for long."""
        limit_s = AWAY_S if self._limit_s is None else self._limit_s
        return {name for name, since_s in self._since_s.items() if now - since_s > limit_s}


def note_links(
    cuts: Absences[Pair], fabric: Fabric, found: Collection[Pair], away: Collection[str], now: float
) -> None:
    """Note which links of a fabric are not found although the switches at both ends are there."""
    for name, ports in fabric.links().items():
        for far in ports:
            pair = frozenset((name, far))
            if pair in found or pair & {*away}:
                cuts.end(pair)
            else:
                cuts.note(pair, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """How many jobs use links and roots; a tree that has a half of a job's slots counts as a half."""

    links: Mapping[Pair, float] = field(default_factory=dict)
    roots: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(fabric: Fabric, lives: Iterable[Incarnation]) -> Uses:
        """Return what the trees of these incarnations use; those with rails have links that nobody can choose."""
        links: dict[Pair, float] = {}
        roots: dict[str, float] = {}
        for live in lives:
            for over in rails.ways_of(live).values():
                for parents, share in zip(fabric.parents_for(live), fabric.shares, strict=True):
                    part, root = share / sum(fabric.shares), _root(parents, over)
                    roots[root] = roots.get(root, 0.0) + part
                    for pair in map(frozenset, pruned(parents, over).items()):
                        links[pair] = links.get(pair, 0.0) + part
        return Uses(links=links, roots=roots)

    def most(self, tree: Parents) -> float:
        """Return how many jobs use the busiest link of a tree."""
        return max((self.links.get(frozenset(pair), 0.0) for pair in tree.items()), default=0.0)


def begin(
    fabric: Fabric,
    live: Incarnation,
    away: Collection[str],
    why: str,
    cut: Collection[Pair] = frozenset(),
    others: Uses = Uses(),
    gone: Sequence[str] = (),
) -> Move:
    """Give a running job trees without some switches and links, which are to be written; return what was moved.

    `why` is in words, and `gone` the switches that it names.  Of equally good trees the job gets those that the
    `others` use least.  One with rails leaves those that are broken.  Raises UsageError, which says why, if there are
    none.
    """
    if live.has_rails:
        return rails.leave(fabric, live, away, why, cut, gone)
    before = fabric.parents_for(live)
    after = trees_without(fabric, live, away, cut, others)
    roots = [(_root(old, live), _root(new, live)) for old, new in zip(before, after, strict=True)]
    changed = [number for number, (old, new) in enumerate(zip(before, after, strict=True)) if pruned(old, live) != new]
    parts = [
        f"{f'tree {number}' if len(after) > 1 else 'its tree'} "
        + (f"has root {roots[number][1]}, not {roots[number][0]}" if roots[number][0] != roots[number][1]
           else f"goes by {', '.join(_inner(after[number], live)) or 'no switch'} to {roots[number][1]}")
        for number in changed
    ]  # fmt: skip
    live.above = after
    return live.begin_move(why, "; ".join(parts), gone)


def trees_without(
    fabric: Fabric,
    live: Incarnation,
    away: Collection[str],
    cut: Collection[Pair] = frozenset(),
    others: Uses = Uses(),
) -> list[dict[str, str]]:
    """Return the trees of a job whose members were seen, as they are where all that they pass is there.

    In a fabric that spreads jobs, one that begins gets a tree that the `others` use least.  Raises UsageError, which
    says why, where there is no tree.
    """
    if live.has_rails:
        return rails.trees(fabric, live, away, cut)
    for member in live.members:
        if member.switch in away:
            ranks = [one.rank for one in live.members if one.switch == member.switch]
            raise UsageError(
                f"switch {member.switch} does not answer, and {'rank' if len(ranks) == 1 else 'ranks'} "
                f"{' '.join(map(str, ranks))} of the job can use no other: bring it back"
            )
    links = {
        name: {far: port for far, port in ports.items() if far not in away and {name, far} not in cut}
        for name, ports in fabric.links().items()
        if name not in away and name != fabric.fallback
    }
    found: list[dict[str, str]] = []
    before = fabric.parents_for(live)
    if fabric.spreads_jobs and others.roots and not live.above:
        return [_plan(links, live, {}, others)]
    for number, parents in enumerate(before):
        needed = pruned(parents, live)
        if all(far in links.get(name, ()) for name, far in needed.items()):
            found.append(needed)
        else:
            found.append(_plan(links, live, needed, others, [*found, *before[number + 1 :]]))
    return found


def _plan(
    links: Mapping[str, Mapping[str, int]],
    live: Incarnation,
    before: Parents,
    others: Uses,
    own: Sequence[Parents] = (),
) -> dict[str, str]:
    """Return the best tree: as low as there is one, as like the one before, its links and root used least by others.

    `own` are the job's other trees, whose roots it should not have either.
    """
    best: tuple[tuple[float, ...], dict[str, str]] | None = None
    roots = Counter(_root(one, live) for one in own)
    for name in links:
        above, _ = tree_from(name, links)
        if any(member.switch not in above for member in live.members):
            continue
        tree = pruned({far: near for far, near in above.items() if far != name}, live)
        if not _has_capacity(tree, live):
            continue
        root = _root(tree, live)
        kept = {*before, *before.values()} & {*links}
        changed = sum(_below(tree, one) != _below(before, one) for one in kept)
        height, used = max(map(len, ways_up(tree, live))), others.roots.get(root, 0.0)
        rank = height, changed, others.most(tree), roots[root], used, len(tree)
        if best is None or rank < best[0]:
            best = rank, tree
    if best is None:
        at = dict.fromkeys(member.switch for member in live.members)
        raise UsageError(f"no working links with free room connect switches {' and '.join(at)}")
    return best[1]


def _root(parents: Parents, live: Incarnation) -> str:
    return ways_up(parents, live)[0][-1]


def _inner(parents: Parents, live: Incarnation) -> list[str]:
    """Return the switches between a tree's root and those of members."""
    at = {member.switch for member in live.members}
    return [name for name in dict.fromkeys(parents.values()) if name in parents and name not in at]


def _below(parents: Parents, switch: str) -> set[str]:
    return {name for name, above in parents.items() if above == switch}


def _has_capacity(parents: Parents, live: Incarnation) -> bool:
    members = Counter(parents.values()) + Counter(member.switch for member in live.members)
    return max(members.values()) <= MAX_WORKERS
