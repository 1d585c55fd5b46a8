"""Ranks, numbers and times in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchsum.view.facts import Facts
from switchsum_protocol import rpc

ROUNDED: Final = 99.5
"""From here on two digits are not enough."""
MOST_NAMES: Final = 3
"""Number of ranks that are named one by one."""


def called(facts: Facts, ranks: list[int]) -> str:
    """Return ranks as text, with their hosts if they are few or at one host."""
    hosts = {one.rank: one.host for one in facts.workers if one.host}
    there = {hosts.get(rank, "") for rank in ranks}
    if len(there) == 1:
        host = there.pop()
        return ranks_text(ranks) + (f" ({host})" if host else "")
    if len(ranks) > MOST_NAMES:
        return ranks_text(ranks)
    return listed([f"rank {rank}" + (f" ({hosts[rank]})" if rank in hosts else "") for rank in ranks])


def slots_text(job: rpc.JobInfo) -> str:
    """Return the numbers of a job's slots: those of its own in front of those that it shares."""
    own = f"{job.own_first_slot} to {job.own_first_slot + job.own_slot_count - 1}, shared "
    return f"{own if job.own_slot_count else ''}{job.first_slot} to {job.first_slot + job.slot_count - 1}"


def listed(texts: Sequence[str]) -> str:
    """Join texts by commas, and the last one by "and"."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def capital(text: str) -> str:
    """Return a text that begins a sentence."""
    return text[:1].upper() + text[1:]


def places(facts: Facts, ranks: list[int]) -> str:
    """Return sentences that say where ranks are, of a few ranks; empty: nothing is known of it."""
    texts = [names(facts, [rank]) for rank in ranks[:MOST_NAMES]]
    return "".join(f" {capital(text.replace(' (', ': ', 1).removesuffix(')'))}." for text in texts if "(" in text)


def names(facts: Facts, ranks: list[int]) -> str:
    """Return ranks as text, each with its host, address, port and link as far as they are known."""
    members = {one.rank: one for one in facts.job.members}
    workers = {one.rank: one for one in facts.workers}
    texts = []
    for rank in ranks:
        worker, member = workers.get(rank), members.get(rank)
        known = []
        if worker is not None and worker.host:
            known.append(f"host {worker.host}")
        if member is not None and member.address:
            known.append(f"address {member.address}")
        if member is not None and member.address and member.ingress_port >= 0:
            known.append(f"port {member.ingress_port}")
        if worker is not None and worker.link:
            known.append(f"link {link_text(worker.link)}")
        texts.append(f"rank {rank}" + (f" ({', '.join(known)})" if known else ""))
    return " and ".join(texts)


def link_text(link: str) -> str:
    """Return a link without the folder of a job's own switch in shared memory, whose name says nothing to a reader."""
    return ",".join("shm" if one.startswith("shm:/") else one for one in link.split(","))


def ranks_text(ranks: list[int]) -> str:
    """Return ranks as text: a few one by one, more of them with runs as `0-3`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {listed([*map(str, ranks)]) if len(ranks) <= MOST_NAMES else runs(ranks)}"


def runs(numbers: list[int]) -> str:
    """Return ascending numbers as text, with runs as `0-3`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found)


def verb(ranks: list[int], of_one: str, of_several: str) -> str:
    """Return the verb for so many ranks."""
    return of_one if len(ranks) == 1 else of_several


def duration(seconds: float) -> str:
    """Write a short time with two digits and its unit.

    >>> [duration(one) for one in (0.02, 1.5, 0.00025, 0.0999)]
    ['20 ms', '1.5 s', '250 us', '100 ms']
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}" if seconds < ROUNDED * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.2g} us" if seconds < ROUNDED * 1e-6 else f"{seconds * 1e6:.0f} us"


def percent(share: float) -> str:
    """Write a share as per cent, with two digits where it is small.

    >>> [percent(one) for one in (0.25, 0.041, 0.0012)]
    ['25 %', '4.1 %', '0.12 %']
    """
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"
