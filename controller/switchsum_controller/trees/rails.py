"""Rails: members whose links lead to several switches, each to its own, as in clusters with a switch for each port.

A job's links are its rails.  A rail has a job number of its own, and goes over the switches to which that link of the
members leads, and those above them.  Workers share out the slots among the rails in proportion to their rates
(`links`).  A slot's cell is on the switches of one rail.  So, unlike links to one switch, a rail cannot answer for
another, and all members must have a slot on the same rail.

So a rail is left by a move, as a tree is (`moves`, `rerouting`).  When a member's link, or a switch or a link of a
rail, stays away, the job's record says over which rails it goes on.  The cells of these rails are cleared while they
take no frames.  Then members hear two things at once: which links are gone, and that they must repeat their rounds as
after a restart.  A rail that was left takes no frames, because rails may share a switch, and there a slot has the same
cell for all of them, with other bits.  Frames that members send before they have heard get no answer
(`Branch.is_left`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from switchsum_protocol.errors import UsageError
from switchsum_protocol.rpc import Move

from ..jobs.job import Job
from ..jobs.machines import Incarnation
from ..jobs.several_links import named
from .fabric import Fabric, pruned, ways_up
from .forest import switches_of

Pair = frozenset[str]
"""The switches at the ends of a link."""


def ways_of(live: Incarnation) -> dict[int, Incarnation]:
    """Return an incarnation as it is over each of its rails that is in use, by link; of one without rails itself."""
    if not live.has_rails:
        return {0: live}
    return {link: live.over(link) for link in live.links if link not in live.down}


def pairs_of(fabric: Fabric, job: Job, live: Incarnation) -> list[list[str]]:
    """Return what `Fabric.pairs_of` does, of all rails in use."""
    return [pair for link, over in ways_of(live).items() for pair in fabric.pairs_of(job, over, link)]


def switches_of_job(fabric: Fabric, live: Incarnation) -> set[str]:
    """Return the switches that a job's trees pass."""
    return {
        name
        for over in ways_of(live).values()
        for parents in fabric.parents_for(live)
        for way in ways_up(parents, over)
        for name in way
    }


def links_of_job(fabric: Fabric, live: Incarnation) -> set[Pair]:
    """Return the links of a job's trees."""
    return {
        frozenset(pair)
        for over in ways_of(live).values()
        for parents in fabric.parents_for(live)
        for pair in pruned(parents, over).items()
    }


def routes(fabric: Fabric, job: Job, live: Incarnation) -> list[list[str]]:
    """Return the switches of each tree of a job, over all rails in use, one behind the one above it.

    A switch that two rails pass stands behind the one above it of the first alone: it has entries of both already.
    """
    found: list[dict[str, None]] = [{} for _ in fabric.parents_for(live)]
    for over in ways_of(live).values():
        for names, tree in zip(found, fabric.trees_of(job, over), strict=False):
            names.update(dict.fromkeys(switches_of(tree)))
    return [list(names) for names in found]


def trees(fabric: Fabric, live: Incarnation, away: Collection[str], cut: Collection[Pair]) -> list[dict[str, str]]:
    """Return what a job needs of each tree, over all rails; raises UsageError for a rail that is not there."""
    for link in live.links:
        if missing := _missing(fabric, live.over(link), away, cut):
            raise UsageError(f"link {link} of each worker needs {missing}, which does not answer")
    return [
        {name: above for over in ways_of(live).values() for name, above in pruned(parents, over).items()}
        for parents in fabric.parents_for(live)
    ]


def places_of(fabric: Fabric, job: Job, live: Incarnation, rank: int) -> list[int]:
    """Return the rank at each place of the bitmaps of a member's switches, -1 where it is none, or not on all rails."""
    all_places = [fabric.places_at(job, over, over.members[rank].switch) for over in ways_of(live).values()]
    if all(places == all_places[0] for places in all_places):
        return all_places[0]
    return [-1] * max(map(len, all_places))


def leave(
    fabric: Fabric,
    live: Incarnation,
    away: Collection[str],
    why: str,
    cut: Collection[Pair],
    gone: Sequence[str] = (),
) -> Move:
    """Begin to do without the rails that pass what is away, as `moves.begin` does; return what changes.

    Raises UsageError, which says why, if none would be left.
    """
    broken = {
        link: missing
        for link in live.links
        if link not in live.down and (missing := _missing(fabric, live.over(link), away, cut))
    }
    left = [link for link in live.links if link not in live.down and link not in broken]
    if not left:
        raise UsageError(
            "each of its rails needs a switch or link that does not answer: "
            f"{', '.join(dict.fromkeys(broken.values()))}"
        )
    live.down.update(broken)
    return live.begin_move(why, f"it goes on over {named(left)}", gone)


def _missing(fabric: Fabric, over: Incarnation, away: Collection[str], cut: Collection[Pair]) -> str:
    """Return what a rail passes and is not there, in words; empty if all is."""
    known: Mapping[str, Mapping[str, int]] = fabric.links()
    for parents in fabric.parents_for(over):
        for name in dict.fromkeys(name for way in ways_up(parents, over) for name in way):
            if name in away:
                return f"switch {name}"
        for name, far in pruned(parents, over).items():
            if far not in known.get(name, ()) or {name, far} in cut:
                return f"the link from {name} to {far}"
    return ""
