"""Describes the part of one switch in one tree of a job: the members that it admits, and the switch above it, if any.

A member is a worker, or a switch below that sends what its own members' contributions come to.  Both get the same
entries.  A job on a single switch is one branch: its members are all workers, and nothing is above it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from switchsum_switch.wires.headers import Address

from ..jobs.slots import SlotRange
from ..tables.entries import Entry, Group, Replica
from ..tables.names import ABOVE, ADMISSION, FALLBACK, FROM_ABOVE, RESULT_ADDRESS, SLOT, UPLINK


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchMember:
    """A member of one switch."""

    rank: int
    """Rank in the header: a worker's rank, or for a switch a number above all workers' ranks."""
    bit: int
    """Number of its bit in this switch's bitmaps."""
    address: Address
    port: int
    """Port of this switch."""
    cookie: int
    """64 bits, which its contributions and the results for it have."""
    is_switch: bool = False
    record: bytes = b""
    """Metadata of its admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """The switch above, and who this switch is to it."""

    address: Address
    port: int
    """Port of this switch towards the switch above."""
    rank: int
    """Rank of this switch as a member of the switch above."""
    cookie: int
    """Cookie of this switch as a member of the switch above."""
    first_slot: int
    """The tree's first slot there: each switch numbers its own slots."""
    padding: int = 0
    """Bytes behind a contribution without lanes, where the switch above limits by how much frames grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One switch's part in one tree of a job."""

    job: int
    tree: int
    """Number of the tree within the job, from 0."""
    epoch: int
    slots: SlotRange
    """Slots of this switch."""
    group: int
    """Multicast group of this switch to which results go."""
    places: tuple[BranchMember, ...]
    above: Above | None = None
    """Link to the switch above. None: this is the tree's root."""
    fallback: Above | None = None
    """Link to the fallback, of a job that shares these slots with others."""
    is_fallback: bool = False
    """The switch is the fallback, and its place that is a switch passes the others' contributions on."""
    record: bytes = b""
    """Metadata of the entries that say where results go."""
    is_left: bool = False
    """Members are to go over another link: nothing is taken, and nobody refused, who may not have heard of it."""

    @property
    def everybody(self) -> int:
        """The bits of all members of this switch."""
        return (1 << len(self.places) - self.is_fallback) - 1

    def items(self) -> Iterator[Entry | Group]:
        """Yield the multicast group, the entries of the members, and those of the switch above."""
        addressed = [place for place in self.places if place.is_switch] if self.is_fallback else self.places
        yield Group(
            group=self.group,
            replicas=frozenset(Replica(port=place.port, instance=place.rank) for place in addressed),
        )
        for place in addressed:
            yield self._result_address(place)
        for place in self.places:
            yield self._admission(place)
        if self.fallback is not None:
            yield self._passing(self.fallback)
            yield self._relaying(self.fallback)
        if self.above is not None:
            yield self._uplink(self.above)
            yield self._from_above(self.above)

    def _result_address(self, place: BranchMember) -> Entry:
        here = place.address
        return Entry(
            table=RESULT_ADDRESS,
            match={"job": self.job, "rank": place.rank},
            action="SwitchEgress.address",
            params={"mac": here.mac, "ip": here.ip, "port": here.port, "cookie": place.cookie},
            metadata=self.record,
        )

    def _admission(self, place: BranchMember) -> Entry:
        # The cookie is in both entries: admission compares it with the contribution's, and the result gets it.
        return Entry(
            table=ADMISSION,
            match={
                "job": self.job,
                "tree": self.tree,
                "rank": place.rank,
                "epoch": self.epoch,
                "source_ip": place.address.ip,
                "source_port": place.address.port,
                "ingress_port": place.port,
            },
            action=f"SwitchIngress.validate.admission.{self._admitting(place)}",
            params={
                "member": 1 << place.bit,
                "everybody": self.everybody,
                "first_slot": self.slots.first,
                "slot_count": self.slots.count,
                "group": self.group,
                "cookie": _unknown(place.cookie) if self.is_left else place.cookie,
                # What a switch says to be final goes on to the switch above.
                **({"passes_up": int(self.above is not None)} if place.is_switch else {}),
                **({"is_fallback": int(self.is_fallback)} if self._admitting(place) == "admit_shared" else {}),
            },
            metadata=place.record,
        )

    def _admitting(self, place: BranchMember) -> str:
        if place.is_switch:
            return "admit_switch"
        return "admit_shared" if self.is_fallback or self.fallback is not None else "admit"

    def _passing(self, fallback: Above) -> Entry:
        return Entry(
            table=f"{FALLBACK}.fallback",
            match={"job": self.job, "tree": self.tree, "epoch": self.epoch},
            action=f"{FALLBACK}.pass",
            params=self._way_up(fallback),
            metadata=self.record,
        )

    def _relaying(self, fallback: Above) -> Entry:
        return Entry(
            table=FROM_ABOVE,
            match={"job": self.job, "tree": self.tree, "epoch": self.epoch},
            action=f"{ABOVE}.relay",
            params={**self._from(fallback), "group": self.group},
            metadata=self.record,
        )

    def _way_up(self, above: Above) -> dict[str, int]:
        return {
            "port": above.port,
            "mac": above.address.mac,
            "ip": above.address.ip,
            "udp_port": above.address.port,
            "rank": above.rank,
            "cookie": above.cookie,
            "slot_shift": (above.first_slot - self.slots.first) & 0xFFFF_FFFF,
            "pads": int(above.padding > 0),
        }

    def _from(self, above: Above) -> dict[str, int]:
        return {
            "ip": above.address.ip,
            "udp_port": above.address.port,
            "port": above.port,
            "rank": above.rank,
            "cookie": above.cookie,
            "first_slot_above": above.first_slot,
            "slot_count": self.slots.count,
            "first_slot": self.slots.first,
        }

    def _uplink(self, above: Above) -> Entry:
        return Entry(
            table=UPLINK,
            match={"job": self.job, "tree": self.tree, "epoch": self.epoch},
            action=f"{SLOT}.pass_up",
            params=self._way_up(above),
            metadata=self.record,
        )

    def _from_above(self, above: Above) -> Entry:
        return Entry(
            table=FROM_ABOVE,
            match={"job": self.job, "tree": self.tree, "epoch": self.epoch},
            action=f"{ABOVE}.take",
            params={**self._from(above), "everybody": self.everybody, "group": self.group},
            metadata=self.record,
        )


def _unknown(cookie: int) -> int:
    """Return a cookie that a member does not have, always the same: what it sends is dropped without an answer."""
    return int.from_bytes(hashlib.blake2b(cookie.to_bytes(8), digest_size=8).digest())
