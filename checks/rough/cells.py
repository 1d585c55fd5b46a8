"""A cell: a network, the sums on it, and what goes wrong; and its bound."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from switchsum.topologies import Cable, Network
from switchsum_lab.simulation.conditions import CableConditions
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes

from .bound import FIRST, Limits, Phase, fullest_column, mean_lateness_s, mean_tries, shortest_s

HOPS: Final[Mapping[str, int]] = {"star": 1, "racks": 2, "two spines": 2, "three levels": 3}
"""Links from a host to the root, by shape."""
TRUNKS: Final[Mapping[str, int]] = {"star": 0, "racks": 2, "two spines": 2, "three levels": 6}
"""Links between switches in a tree, by shape."""
BURST_BPS: Final = 1e13
"""Rate at which a token bucket lets frames pass: as good as at once."""
MOST_LOSS: Final = 0.01
"""Losses up to that cost next to nothing in the bound: while one frame is sent again, others fill the link."""
BITS: Final[Mapping[str, int]] = {
    "float32": 32,
    "int10": 32,
    "int16": 16,
    "int8": 8,
    "float32 in int16": 16,
    "float32 in int8": 16,
}
"""Bits of a value in a result, by what is added; `int10` are integers, three of them in each 32 bits."""
LEAST_TIMEOUT_S: Final = 0.25
"""A time-out of the bound on recovery is at least that."""
TIMEOUT_TRIPS: Final = 3.0
"""Else it is so many times the longest round trip, queues and all."""


class Trouble(NamedTuple):
    """What goes wrong, and when: times are parts of the bound without it, durations are seconds."""

    what: str
    """`host` and `switch`: it stands still; `link`: it is down; `clock`: it jumps; `rate`: it is another one."""
    at: float
    lasts_s: float = 0.0
    """For `clock`: how far it jumps."""
    factor: float = 0.0
    """For `rate`: how many times the usual one."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One sum of each job, which all begin at the same time."""

    kind: str
    """What the cell is about, for the tables."""
    shape: str = "star"
    hosts: int = 4
    """Hosts of each job."""
    jobs: int = 1
    rate_bps: float = 1e9
    """Of the slowest link."""
    host_times: float = 1.0
    """How many times faster the hosts' links are than those between switches."""
    slow_times: float = 1.0
    """How many times slower the first host's link is than those of the other hosts."""
    trip_s: float = 1e-4
    """What cables take there and back."""
    far_s: float = 0.0
    """By how much the last host's cable is longer, one way."""
    lanes: int = 256
    slots: int = 64
    """Slots of each job."""
    blocks: int = 1000
    numbers: str = "float32"
    density: float = 1.0
    """Share of each worker's blocks that are not zero."""
    queue_bytes: int | None = None
    host_queue_bytes: int | None = None
    mark_bytes: int | None = None
    bucket_bytes: int = 0
    spent_blocks: int = 0
    """Blocks of a sum before the one that counts: it empties the buckets, and knows the path only as it was until then.
    """
    late: float = 0.0
    late_by_s: float = 0.0
    loss: float = 0.0
    twice: float = 0.0
    batch_s: float = 0.0
    """How long receivers wait for more frames behind the first one."""
    shared_slots: int | None = None
    """Slots of the switch that all jobs share."""
    troubles: tuple[Trouble, ...] = ()
    seed: int = 0

    @property
    def text(self) -> str:
        """The cell as a line of JSON, without what is at its default."""
        plain = Cell(kind="")
        given = {name: value for name, value in asdict(self).items() if value != getattr(plain, name)}
        return json.dumps(given)

    @classmethod
    def read(cls, text: str) -> Cell:
        """Read such a line; raises ValueError or TypeError."""
        given: dict[str, Any] = json.loads(text)
        if unknown := given.keys() - {one.name for one in fields(cls)}:
            raise ValueError(f"a cell has no {', '.join(sorted(unknown))}")
        troubles = tuple(Trouble(*one) for one in given.pop("troubles", ()))
        return cls(**given, troubles=troubles)

    # What it is on the wire.

    @property
    def frame_bytes(self) -> int:
        """Of a frame with all its lanes."""
        return FRAME_BYTES + payload_bytes(self.lanes)

    @property
    def values(self) -> int:
        """Values that a block has."""
        return self.lanes * 32 // BITS[self.numbers]

    @property
    def unspent_bytes(self) -> int:
        """What is in a token bucket when the sum begins."""
        return 0 if self.spent_blocks else self.bucket_bytes

    @property
    def hops(self) -> int:
        """Links from a host to the root."""
        return HOPS[self.shape]

    @property
    def trees(self) -> int:
        """Trees over which a job is added."""
        return 2 if self.shape == "two spines" else 1

    @property
    def link(self) -> CableConditions:
        """What all links are like but for their rates, and delays of their own."""
        return CableConditions(
            delay_s=self.trip_s / 2 / self.hops,
            queue_bytes=self.queue_bytes,
            host_queue_bytes=self.host_queue_bytes,
            mark_bytes=self.mark_bytes,
            bucket_bytes=self.bucket_bytes,
            burst_rate_bps=BURST_BPS if self.bucket_bytes else 0.0,
            overhead_bytes=0,
            late=self.late,
            late_by_s=self.late_by_s,
            loss=self.loss,
            twice=self.twice,
        )

    @cached_property
    def network(self) -> Network:
        """Its switches, hosts and cables."""
        all_hosts = [f"h{number}" for number in range(self.hosts * self.jobs)]
        trunk, between = self.rate_bps / 1e6, self._between()
        edge = trunk * self.host_times
        leaves = [name for name in between[0] if name.startswith("leaf")]
        cables = [Cable(ends=ends, mbit=trunk) for ends in between[1]]
        for number, host in enumerate(all_hosts):
            # Jobs take hosts in turn, so that each has hosts below every leaf.
            leaf = leaves[number // self.jobs * len(leaves) // self.hosts]
            is_slow = number == 0 or self.slow_times == 1.0
            is_far = number == len(all_hosts) - 1 and self.far_s > 0
            delay_ms = 1e3 * (self.link.delay_s + self.far_s) if is_far else None
            cables.append(Cable(ends=(host, leaf), mbit=edge * (1 if is_slow else self.slow_times), delay_ms=delay_ms))
        return Network(switches=tuple(between[0]), hosts=tuple(all_hosts), cables=tuple(cables))

    def _between(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the switches, and the cables between them."""
        if self.shape == "star":
            return ["leaf1"], []
        if self.shape == "racks":
            return ["leaf1", "leaf2", "root"], [("leaf1", "root"), ("leaf2", "root")]
        if self.shape == "two spines":
            spines = ["spine1", "spine2"]
            leaves = ["leaf1", "leaf2"]
            return [*leaves, *spines], [(leaf, spine) for leaf in leaves for spine in spines]
        pods = {"leaf1": "pod1", "leaf2": "pod1", "leaf3": "pod2", "leaf4": "pod2"}
        return [*pods, "pod1", "pod2", "root"], [*pods.items(), ("pod1", "root"), ("pod2", "root")]

    def hosts_of(self, job: int) -> list[str]:
        """Return the hosts of a job."""
        return list(self.network.hosts[job :: self.jobs])

    # What is possible.

    @property
    def trip_alone_s(self) -> float:
        """Of a frame with its result, alone on the network."""
        bits = 8 * self.frame_bytes
        edge = self.rate_bps * self.host_times
        there = bits / edge + (self.hops - 1) * bits / self.rate_bps
        return self.trip_s + 2 * self.far_s + 2 * there + self.batch_s

    @property
    def lateness_s(self) -> float:
        """By how much a round is longer on average because a frame is late: a repeat comes one round trip later."""
        links = self.hosts + TRUNKS[self.shape]
        return mean_lateness_s(self.late, self.late_by_s, 2 * links, self.trip_alone_s)

    @property
    def frame_s(self) -> float:
        """What a contribution of each job takes on the slowest link."""
        return max(one.frame_s for one in self.limits)

    @property
    def limits(self) -> tuple[Limits, ...]:
        """What limits the sums, without troubles: a host's link, and if there are trunks these."""
        bits, frame_bytes = 8 * self.frame_bytes, self.frame_bytes
        window = min(self.slots, self.shared_slots or self.slots)
        frame_s = bits / (self.rate_bps * self.host_times)
        if self.shared_slots is not None:
            # In a round trip the switch adds as many as it has slots; others go to another switch, from each host.
            others = self.rate_bps / bits / self.hosts
            frame_s = max(frame_s, self.jobs / (self.shared_slots / self.trip_alone_s + others))
        host = Limits(
            frame_s=frame_s,
            trip_s=self.trip_alone_s + self.lateness_s,
            window=window,
            first=FIRST * self.trees,
            short=window if self.numbers.startswith("float") else 0,
            bucket_frames=self.unspent_bytes / frame_bytes,
            tries=mean_tries(self.loss, 2 * self.hops, self.hosts) if self.loss > MOST_LOSS else 1.0,
        )
        if self.shape == "star":
            return (host,)
        shares = self.jobs / self.trees
        trunk = replace(
            host, frame_s=bits * shares / self.rate_bps, bucket_frames=self.unspent_bytes / frame_bytes / shares
        )
        return host, trunk

    @property
    def fits_slots(self) -> bool:
        """Whether no job finds a shared slot taken.

        Else it waits until others have ended, if links are short: what finds a slot taken goes over the fallback, whose
        link carries a frame of each host for each block, and slots that become free are taken one by one.
        """
        return self.shared_slots is None or self.jobs * self.slots <= self.shared_slots

    @property
    def full_part(self) -> float:
        """About which part of the blocks is not zero on every rank: only these need whole frames."""
        return 1 - (1 - self.density) ** self.hosts

    @property
    def full_blocks(self) -> int:
        """About how many blocks these are."""
        return math.floor(self.blocks * self.full_part)

    @property
    def columns_s(self) -> float:
        """What the slot with most of these blocks takes, one after another; nothing where all are full."""
        if self.density >= 1:
            return 0.0
        slots = min(one.window for one in self.limits)
        return self.trip_alone_s * fullest_column(self.blocks, slots, self.full_part)

    @property
    def last_rounds_s(self) -> float:
        """What shared slots take at least: the last round of each slot crosses the fallback's link, one job's or all's.

        Blocks are added in the order of the array, so that each slot's last one is among as many as there are slots.
        """
        if self.shared_slots is None:
            return 0.0
        columns = min(self.slots, self.shared_slots, self.full_blocks)
        before = self.full_blocks - columns
        return self.trip_alone_s + 8 * self.frame_bytes / self.rate_bps * (before + self.jobs * columns)

    @property
    def untroubled_s(self) -> float:
        """The bound without troubles."""
        return max(self.columns_s, self.last_rounds_s, *(shortest_s(one, self.full_blocks) for one in self.limits))

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Times in which less is possible."""
        whole = self.untroubled_s
        return tuple(
            Phase(since_s=one.at * whole, until_s=one.at * whole + one.lasts_s, factor=one.factor)
            for one in self.troubles
            if one.what != "clock"
        )

    @cached_property
    def bound_s(self) -> float:
        """The shortest time in which all sums can end."""
        troubled = (shortest_s(replace(one, phases=self.phases), self.full_blocks) for one in self.limits)
        return max(self.columns_s, self.last_rounds_s, *troubled)

    @property
    def overshoot(self) -> float:
        """Contributions that slow start sends beyond what links and queues hold, before it finds out.

        A window doubles in each round trip.  Until a token bucket is empty nothing tells that the link is slow.
        """
        queues = [one for one in (self.queue_bytes, self.host_queue_bytes) if one is not None]
        if not queues:
            return 0.0
        held = self.trip_alone_s / self.frame_s + min(queues) / self.frame_bytes
        reached = min(self.slots, 2 * (held + self.unspent_bytes / self.frame_bytes))
        return max(0.0, reached - held)

    @property
    def timeout_s(self) -> float:
        """A time-out, for the bound on recovery."""
        queue_s = 8 * (self.queue_bytes or 0) / self.rate_bps
        full = max(self.trip_alone_s + min(queue_s, self.slots * self.frame_s), self.slots * self.frame_s)
        return max(LEAST_TIMEOUT_S, TIMEOUT_TRIPS * (full + (self.late_by_s if self.late else 0.0)))
