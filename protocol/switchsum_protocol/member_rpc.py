"""What a member and its controller say to each other: gRPC methods whose messages are JSON.

Messages are flat dataclasses of JSON types; grpc's generic calls carry them, so no code is generated.  `rpc_codec`
writes and reads them; `rpc` has those of users as well, and the table of all methods.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .frame import AGGREGATION_PORT, WIRE_VERSION
from .speaks import speaks

SERVICE: Final = "switchsum.Controller"
DEFAULT_TIMEOUT_S: Final = 1800.0
"""How long members wait for one another unless the job says otherwise: as long as torch's do."""
MOST_IN_FLIGHT: Final = 256
"""Most slots that a member keeps in flight: with more, rings on the way overflow if their reader is late."""
MOST_TEXT: Final = 80
"""Longest text in a member's report, in characters: the controller keeps little for each member."""


def path(method: str) -> str:
    """Return the gRPC path of a method."""
    return f"/{SERVICE}/{method}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A worker asks to become a member."""

    job: str
    """Name of the job."""
    rank: int
    """0 to world_size - 1."""
    world_size: int
    """Must be the job's."""
    wire_version: int = WIRE_VERSION
    """The wire version that the worker speaks."""
    wire_digest: str = field(default_factory=speaks)
    """What the worker `speaks`: frames, messages and records may differ where versions do not."""
    package_version: str = ""
    """Version of the package, for the error text when wire versions differ."""
    receive_bytes: int = 0
    """Bytes that may wait for the worker on its link, as the kernel counts them. 0: more than a job can have in
    flight.
    """
    window_bytes: int = 0
    """Bytes of frames that are worth having in flight on its link, all together; 0: there is no limit."""
    rates: list[float] = field(default_factory=list)
    """Rate of each of several links in Mbit/s, 0 where it is not known; empty: the worker has one link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """The worker may go on: show itself to the switch with a hello frame, then call Ready."""

    nonce: int
    """64 bits; goes into the hello frame and names the membership in later calls."""
    job_number: int
    """The header's `job`."""
    epoch: int
    """The header's `epoch`."""
    cookie: int
    """64 bits, which the header of each of this member's frames bears; nobody else is to know them."""
    lanes_per_frame: int
    """32-bit lanes in one packet of the switch's program."""
    growth_bytes: int | None
    """Bytes by which the switch's frames may grow. None: no limit."""
    switch_mac: int
    switch_ip: int
    switch_port: int = AGGREGATION_PORT
    timeout_s: float = DEFAULT_TIMEOUT_S
    """How long members wait for one another."""
    heartbeat_s: float = 1.0
    """Seconds after which Attend replies again, if there is no news before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRequest:
    """Wait until all members are admitted; the call returns after `wait_s` at the latest, to be repeated."""

    job: str
    nonce: int
    wait_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyReply:
    """How far the job's admission is."""

    admitted: bool
    """All members are admitted and the fields below are final."""
    hello_seen: bool
    """The switch has handed on this worker's hello; until then it repeats it."""
    hello_cut: bool = False
    """Only hellos without lanes have come: the longest frames get lost on the way."""
    missing: list[int] = field(default_factory=list)
    """Ranks that have not joined or not been seen yet, without those that gave up."""
    gave_up: list[int] = field(default_factory=list)
    """Ranks that had joined, and left again because the job was not complete in their time."""
    lost_switch: str = ""
    """Which switch the job waits for that does not answer the controller, in words; empty: none."""
    first_slot: int = 0
    """Number of the job's first slot on the switch, as headers number slots."""
    slot_count: int = 0
    """How many slots the job has on the switch."""
    shares_slots: bool = False
    """The last tree's slots are shared with other jobs, so that each operation claims them."""
    first_shared_slot: int = 0
    """Number of the first of these slots, where the job has slots of its own, too; they are those of its first tree."""
    first_number: int = 0
    """Number of the first round in every slot."""
    window_slots: int = 0
    """How many slots to keep in flight at most (what ports and queues on the way can hold)."""
    places: list[int] = field(default_factory=list)
    """The rank at each place of the bitmaps of the member's switch, -1 for another switch; empty: places are ranks."""
    trees: list[int] = field(default_factory=list)
    """How many slots belong to each of the job's trees, in order; empty: the job has one tree."""
    link_rates: list[float] = field(default_factory=list)
    """Share of the slots that each of several links gets; empty: there is one link."""
    link_jobs: list[int] = field(default_factory=list)
    """The header's `job` on each of several links."""
    has_rails: bool = False
    """The links lead to several switches: a slot's cell is on those of one link, and only all together change it."""
    unseen: list[int] = field(default_factory=list)
    """Links, of several, whose hello the switch has not handed on, by number."""
    loads: int = 0
    """How often the switch has been given its program; a larger number later means that it was restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReformRequest:
    """Go on without those that are lost; the call returns after `wait_s` at the latest, to be repeated."""

    job: str
    nonce: int
    wait_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReformReply:
    """Whether all members that are not lost have called Reform; if so, this membership is over, and each joins anew."""

    rank: int = -1
    """The member's rank from now on; -1: not yet."""
    world_size: int = 0
    """The job's size from now on."""
    missing: list[int] = field(default_factory=list)
    """Ranks that are not lost and have not called Reform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    """Heartbeat and Attend: names the membership."""

    job: str
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """End a membership."""

    job: str
    nonce: int
    error: str = ""
    """Why the member gives up before the job is complete, as `rpc_codec.details_of` writes it; empty: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """What a member must know about its job."""

    epoch: int
    lost: list[int] = field(default_factory=list)
    """Ranks that left without a word or were declared lost, in this order."""
    loads: int = 0
    """See `ReadyReply`."""
    down: list[int] = field(default_factory=list)
    """Links, of several, that no member uses any more."""
    left: list[int] = field(default_factory=list)
    """Ranks that have left in order: they begin no collective any more."""
    mismatch: str = ""
    """How ranks differ in what they call, in words: nobody goes on.  Empty: it is not known that they do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Ranks issued different operations: this rank says its own; the call returns after `wait_s` at the latest."""

    job: str
    nonce: int
    operation: str
    """Operation in words."""
    wait_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareReply:
    """What all ranks have said, once every rank in the job has said its operation."""

    operations: list[str] = field(default_factory=list)
    """Operations by rank. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """LinkDown: one of a member's several links is dead; nobody uses the links of that number any more."""

    job: str
    nonce: int
    link: int
    """Number of the link."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """No fields."""
