"""Members with several links: as many ways to the same slots of the switch.

A slot's cell does not know over which link a contribution came.  So each link is a further set of entries for the same
slots, members' bits and epoch: under a job number of its own, since the switch addresses results by job and rank, and
with a multicast group of its own, so that a result goes to all members over the link on which the last contribution
came (`link_branches`).  Workers share the slots out among their links by themselves, in proportion to the least rate
that any member's link of that number has.  Where they do not agree for a while, because one has lost a link and the
others have not heard of it, sums are right all the same: a repeat over another link meets the same cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from switchsum.protocol.errors import UsageError, WorldSizeMismatch
from switchsum.protocol.frame import MOST_LINKS
from switchsum.protocol.wire import format_ip, format_mac

from .job import Job
from .machines import Door, Incarnation, Member, MemberState


def check_rates(job: Job, rank: int, rates: Sequence[float]) -> None:
    """Refuse links that a member cannot have, or not beside the others; raises UsageError or WorldSizeMismatch."""
    if len(rates) > MOST_LINKS:
        raise UsageError(f"a worker has 1 to {MOST_LINKS} links, not {len(rates)}")
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
        raise UsageError(f"links have rates in Mbit/s, 0 where it is not known, not {list(rates)}")
    for other in job.gathering.members:
        if other.state is not MemberState.EXPECTED and other.link_count != (count := max(1, len(rates))):
            raise WorldSizeMismatch(
                f"rank {rank} of job {job.name!r} comes with {count} links to the switch, rank {other.rank} with "
                f"{other.link_count}: all ranks need the same number (connect(link=...), SWITCHSUM_LINK)"
            )


def check_addresses(incarnation: Incarnation) -> None:
    """Refuse members that a switch cannot tell apart: ordinary frames to one would reach another.  Raises UsageError.

    Ranks of one host have its addresses at one port; behind different switches hosts may have the same ones.
    """
    ports: dict[tuple[str, int], tuple[int, int]] = {}
    macs: dict[tuple[str, int], tuple[int, int]] = {}
    for member in incarnation.members:
        for door in member.all_doors:
            mac, ip, port = door.address.mac, door.address.ip, door.ingress_port
            rank, other_port = ports.setdefault((door.switch, mac), (member.rank, port))
            if other_port != port:
                what = f"Ethernet address, {format_mac(mac)}, at ports {other_port} and {port}"
                raise UsageError(f"ranks {rank} and {member.rank} have the same {what}: one of the hosts needs another")
            rank, other_mac = macs.setdefault((door.switch, ip), (member.rank, mac))
            if other_mac != mac:
                what = f"IP address, {format_ip(ip)}, and two Ethernet addresses"
                raise UsageError(f"ranks {rank} and {member.rank} have the same {what}: one of the hosts needs another")


def note_door(member: Member, link: int, door: Door) -> None:
    """Note where a link of a member comes in."""
    if link == 0:
        member.address, member.ingress_port, member.switch = door.address, door.ingress_port, door.switch
    else:
        member.doors[link] = door


def link_count(incarnation: Incarnation) -> int:
    """Return how many links each member of a complete incarnation has."""
    return incarnation.members[0].link_count


def rates_of(incarnation: Incarnation) -> list[float]:
    """Return in which proportion links carry slots: the least rate of each, or all equal where one is not known.

    Nothing if members have one link.
    """
    if link_count(incarnation) == 1:
        return []
    least = [min(rates) for rates in zip(*(member.rates for member in incarnation.members), strict=True)]
    return least if all(least) else [1.0] * len(least)


def number_links(job: Job, take_number: Callable[[], int]) -> None:
    """Give each link beyond the first of the next incarnation's members a job number of its own."""
    wanted = link_count(job.gathering) - 1
    del job.link_numbers[wanted:]
    while len(job.link_numbers) < wanted:
        job.link_numbers.append(take_number())


def take_down(incarnation: Incarnation, link: int) -> bool:
    """Note that a link is dead at some member; return whether that is news.  The last one that is left stays."""
    count = link_count(incarnation)
    if not 0 <= link < count or link in incarnation.down or len(incarnation.down) + 1 >= count:
        return False
    incarnation.down.add(link)
    return True
