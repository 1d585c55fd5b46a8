"""A switch that no controller of ours knows: the job's facts stand in a file, and a person enters them there, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import combinations, product

from switchsum_host.links.names import check_link
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import AGGREGATION_PORT

from .facts import Facts, MemberFacts
from .play import FAR, Bench, Play, Target
from .wires import OnWire, PacketWire, UdpWire, Wire


@contextmanager
def job_of(facts: Facts, links: Sequence[str], *, wait_s: float) -> Iterator[tuple[OnWire, Facts]]:
    """Open the links of a job's members, and yield the switch and the facts; raises UsageError or TransportError.

    `links` has one for each member, or one for all.
    """
    if len(links) not in (1, len(facts.members)):
        raise UsageError(f"{len(links)} links for {len(facts.members)} members: name one for all, or one for each")
    for one, other in combinations([(member.address.ip, member.address.port) for member in facts.members], 2):
        if one == other:
            raise UsageError("two members have one address and port: the switch could not tell them apart")
    with ExitStack() as opened:
        wires: list[Wire] = []
        members, switch = [], facts.switch
        for rank, member in enumerate(facts.members):
            link = links[rank % len(links)]
            check_link(link)
            kind, _, place = link.partition(":")
            wire: Wire
            if kind == "udp":
                host, _, port = place.partition(":")
                udp = UdpWire(host, int(port or AGGREGATION_PORT), member.address)
                members.append(replace(member, address=udp.address))
                wire, switch = udp, udp.switch
            elif kind == "packet":
                _check_addresses(facts, member)
                wire = PacketWire(place, member.address)
                members.append(member)
            else:
                raise UsageError(f"a target is udp:HOST[:PORT] or packet:INTERFACE, not {link!r}")
            opened.callback(wire.close)
            wires.append(wire)
        facts = replace(facts, switch=switch, members=tuple(members))
        target = OnWire(wires, facts, name=links[0], wait_s=wait_s)
        if not facts.fresh:
            bring_to_first_number(target, facts)
        yield target, facts


def bring_to_first_number(target: Target, facts: Facts) -> None:
    """Open rounds until no cell has a number that is newer than the job's first, whatever it had before.

    Three numbers, each the farthest that is newer than the one before: wherever a cell is, it follows the second or the
    third, and all end just before the first number.
    """
    play = Play(Bench(target=target, facts=facts), facts.first_slot, 0, 0)
    for hop, version in product(range(2, -1, -1), (2, 1)):
        number = facts.first_number - version - hop * FAR & 0xFFFF_FFFF
        slots = range(facts.first_slot, facts.first_slot + facts.slot_count)
        frames = [(0, play.contribution(0, None, slot=slot, number=number)) for slot in slots]
        target.exchange(frames)


def _check_addresses(facts: Facts, member: MemberFacts) -> None:
    """Raise UsageError where a frame cannot be addressed."""
    if not all((facts.switch.ip, facts.switch.mac, member.address.ip, member.address.mac)):
        raise UsageError("over packet:INTERFACE the file needs ip and mac of the switch and of each member")
