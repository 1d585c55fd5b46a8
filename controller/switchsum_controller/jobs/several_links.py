"""Members with several links: as many ways to the slots of a job.

Each link has entries of its own for the same slots and epoch.  It has a job number of its own, because the switch
addresses results by job and rank.  It has a multicast group of its own, so that a result goes to all members over the
link on which the last contribution came (`plan.branches_of`).  Workers share out the slots among their links, in
proportion to the least rate that any member's link of that number has.

If a member's links lead to one switch, all of them reach the same cells.  So sums are right even while one member has
lost a link and the others have not heard of it: a repeat over another link meets the same cell.  Links that lead to
several switches are `rails`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from switchsum_protocol.errors import UsageError, WorldSizeMismatch
from switchsum_protocol.frame import MOST_LINKS
from switchsum_protocol.states import MemberState
from switchsum_switch.wires.headers import format_ip, format_mac

from .job import Job
from .machines import Incarnation


def check_rates(job: Job, rank: int, rates: Sequence[float]) -> None:
    """Refuse links that a member cannot have, or not beside the others; raises UsageError or WorldSizeMismatch."""
    if len(rates) > MOST_LINKS:
        raise UsageError(f"a worker has 1 to {MOST_LINKS} links, not {len(rates)}")
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
        raise UsageError(f"rates of links are in Mbit/s, and 0 means unknown: {list(rates)} are not such rates")
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
        for attachment in member.all_attachments:
            mac, ip, port = attachment.address.mac, attachment.address.ip, attachment.ingress_port
            rank, other_port = ports.setdefault((attachment.switch, mac), (member.rank, port))
            if other_port != port:
                what = f"Ethernet address, {format_mac(mac)}, at ports {other_port} and {port}"
                raise UsageError(
                    f"ranks {rank} and {member.rank} have the same {what}: give one of the two hosts another address"
                )
            rank, other_mac = macs.setdefault((attachment.switch, ip), (member.rank, mac))
            if other_mac != mac:
                what = f"IP address, {format_ip(ip)}, and two Ethernet addresses"
                raise UsageError(
                    f"ranks {rank} and {member.rank} have the same {what}: give one of the two hosts another address"
                )


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
    """Note where the links of the next incarnation lead, and give each beyond the first a job number of its own."""
    gathering = job.gathering
    gathering.has_rails = any(
        len({attachment.switch for attachment in one.all_attachments}) > 1 for one in gathering.members
    )
    wanted = link_count(gathering) - 1
    del job.link_numbers[wanted:]
    while len(job.link_numbers) < wanted:
        job.link_numbers.append(take_number())


def take_down(incarnation: Incarnation, link: int) -> bool:
    """Note that a link is dead at some member; return whether that is news.  The last one that is left stays."""
    left = {*incarnation.links} - incarnation.down - {link}
    if link not in incarnation.links or link in incarnation.down or not left:
        return False
    incarnation.down.add(link)
    if incarnation.has_rails:
        incarnation.begin_move(f"link {link} is dead at some worker", f"it goes on over {named(left)}")
    return True


def named(links: Collection[int]) -> str:
    """Return links by number, in words."""
    return f"{'link' if len(links) == 1 else 'links'} {' '.join(map(str, sorted(links)))} of each worker"


def links_to_leave(incarnation: Incarnation) -> list[int]:
    """Return the links that members are to do without: of rails not before cells are ready for that."""
    return [] if incarnation.has_rails and incarnation.is_moving else sorted(incarnation.down)
