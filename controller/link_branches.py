"""What switches do for a job whose members have several links: all of it once for each link (see `links`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from switchsum.protocol.errors import UsageError

from .branch import Branch
from .fabric import group_of
from .job import Job
from .links import link_count
from .machines import Incarnation


def with_links(job: Job, live: Incarnation, branches: Mapping[str, list[Branch]]) -> dict[str, list[Branch]]:
    """Return each switch's part in a job, once for each link; raises UsageError for what several links do not have."""
    found = {name: list(of_switch) for name, of_switch in branches.items()}
    if link_count(live) == 1:
        return found
    if any(len(of_switch) > 1 for of_switch in branches.values()):
        raise UsageError("workers have several links or a job several trees, not both: one link each, or one tree")
    for member in live.members:
        for link, door in member.doors.items():
            if door.switch != member.switch:
                raise UsageError(
                    f"rank {member.rank}: link {link} leads to switch {door.switch!r}, the first one to "
                    f"{member.switch!r}: all links of a worker lead to one switch"
                )
    for link, number in enumerate(job.link_numbers, 1):
        for name, of_switch in branches.items():
            found[name] += [_of_link(branch, live, link, number) for branch in of_switch]
    return found


def _of_link(branch: Branch, live: Incarnation, link: int, number: int) -> Branch:
    """Return the same part under a link's job number, with the addresses that members have there."""
    places = tuple(
        place
        if place.is_switch
        else replace(
            place,
            address=live.members[place.rank].doors[link].address,
            port=live.members[place.rank].doors[link].ingress_port,
        )
        for place in branch.places
    )
    return replace(branch, job=number, group=group_of(branch.group, link), places=places)
