"""What an engine is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchsum_switch.wires.headers import Address

_SPREAD: Final = 0.618034


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """A membership, and how to use it."""

    rank: int
    """0 to world_size - 1."""
    world_size: int
    """1 to 4,096."""
    places: tuple[int, ...] = ()
    """The rank at each place of the bitmaps of this member's switch, -1 for other switches; empty: the ranks."""
    trees: tuple[int, ...] = ()
    """How many slots belong to each of the job's trees, in order; those beyond, and all if empty, to the last one."""
    job: int
    """Number of the job."""
    epoch: int
    """Incarnation of the job."""
    lanes_per_frame: int
    """32-bit lanes in a frame."""
    cookie: int
    """64 bits that this member's frames bear, both ways; nobody else knows them."""
    switch: Address
    """Address that results come from and contributions go to."""
    own: Address
    """This member's own addresses as the switch sees them."""
    window_slots: int
    """Slots in use, the same on every rank."""
    first_slot: int = 0
    """The job's first slot on the switch; the engine counts its own from 0."""
    shares_slots: bool = False
    """The last tree's slots are shared; the job's fallback adds what finds them taken (shared_rules.py)."""
    first_shared_slot: int = 0
    """The first of these slots on the switch, where the job has some of its own, too: the slots of the first tree."""
    first_number: int = 1
    """Number of the first round in every slot."""
    growth_bytes: int | None = None
    """Bytes by which frames may grow in the switch. None: no limit."""
    timeout_s: float = 10.0
    """Seconds without progress after which an operation fails."""
    switch_timeout_s: float | None = None
    """Seconds without any answer after which the switch is lost; None: `timeout_s`.  Shorter if ranks may be late."""
    probe_initial_s: float = 0.2
    """Time-out before any round has been timed."""
    probe_min_s: float = 0.001
    """Upper bound of the least time-out, which is two rounds and the driver's granularity where that is less."""
    granularity_s: float = 0.001
    """How late a driver may look at its clock, at first.  The loop then measures this; virtual time is never late."""
    probe_max_s: float = 8.0
    """Greatest time-out."""
    mark_gain: float = 0.25
    """How much a round trip's marks count for the next cut of the window (DCTCP's g); 0: each one halves it."""
    first_window: int = 16
    """Most contributions in flight over a tree before any result; more where no queue is on the way, as in memory."""
    loss_cut: float = 0.3
    """Part of the window that a loss takes away where a queue stands (TCP's CUBIC, RFC 9438); 0: none."""
    reorder_threshold: int = 3
    """A frame is lost once the result of one that was sent so many later has come (RFC 9002's packet threshold)."""
    checksum: bool = False
    """Fill in UDP checksums, which the switch verifies; links have their own as a rule."""
    seed: int = 0
    """Seed of random rounding, used with the rank and the operation; any integer."""

    @property
    def in_tree(self) -> bool:
        """Whether members of the job are at other switches, so that contributions go on over links between switches."""
        return bool(self.places) and sorted(self.places) != list(range(self.world_size))

    @property
    def sharing(self) -> dict[str, int]:
        """Which slots are shared, as fields of `MemberRecord`."""
        own = sum(self.trees[:-1]) if self.shares_slots else 0
        shift = self.first_shared_slot - self.first_slot - own if own else 0
        tree = max(0, len(self.trees) - 1) if self.shares_slots else -1
        return {"shared_tree": tree, "own": own, "shared_shift": shift}

    @property
    def turn(self) -> int:
        """Where the first operation's columns begin: jobs that share slots claim them far from one another."""
        return int(self.shares_slots * self.job * _SPREAD * self.window_slots) % self.window_slots
