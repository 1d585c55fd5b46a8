"""What users, command line and launcher ask of a controller: gRPC methods in the form of `member_rpc`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .agreement_rpc import AgreeReply, AgreeRequest
from .errors import UsageError
from .member_rpc import (
    DEFAULT_TIMEOUT_S,
    CompareReply,
    CompareRequest,
    Empty,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    LinkReport,
    MemberRequest,
    ReadyReply,
    ReadyRequest,
    ReformReply,
    ReformRequest,
)
from .reports import JobCalls, RecentFigures, WorkerFigures, WorkerReport

LEAST_QUORUM: Final = 0.5
"""Smallest quorum of a job unless it says otherwise."""
MIN_TIMEOUT_S: Final = 0.1
"""Shortest time-out of a job; ranks need about as long to hear of one another."""
MAX_TIMEOUT_S: Final = 1e8
"""Longest time-out, three years; clocks and waits of the kernel can still count it."""


def check_timeout(timeout_s: float) -> None:
    """Raise UsageError if the time-out is out of range."""
    if not MIN_TIMEOUT_S <= timeout_s <= MAX_TIMEOUT_S:
        raise UsageError(f"a time-out is {MIN_TIMEOUT_S:g} to {MAX_TIMEOUT_S:,.0f} seconds, not {timeout_s:g}")


def check_least_quorum(share: float) -> None:
    """Raise UsageError if the share is not above 0 and up to 1."""
    if not 0 < share <= 1:
        raise UsageError(f"the smallest quorum of a job is a share of its ranks, above 0 and up to 1, not {share:g}")


def check_slots(slots: int, total_slots: int) -> None:
    """Raise UsageError if a job cannot have so many of the switch's slots."""
    if not 1 <= slots <= total_slots:
        raise UsageError(f"a job has 1 to {total_slots} slots, not {slots}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateJobRequest:
    """Reserve slots for a new job."""

    job: str
    workers: int
    """World size, 1 to 32, over several switches to 4,096."""
    slots: int | None = None
    """Slots to reserve; None: as many as the members keep in flight, at most `MOST_IN_FLIGHT`."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    ephemeral: bool = False
    """The job ends by itself when nobody has been in it for ten seconds, or `timeout_s` if that is less."""
    least_quorum: float = LEAST_QUORUM
    """Operations that go on without some ranks need at least this share of them; 1: none goes on."""
    shares_slots: bool = False
    """The job shares slots with others, `slots` of them at most; None: all that are shared."""
    own_slots: int = 0
    """Slots that such a job reserves beside those that it shares."""
    part_of_free: float = 1.0
    """Reserve at most this part of the slots that are free, and at least one: the rest is left to jobs that follow."""
    replaces: bool = False
    """Remove a job of that name first, whoever is still in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeJobRequest:
    """Give a job another world size or slot count; it goes on under a new epoch, and every member joins again."""

    job: str
    workers: int | None = None
    slots: int | None = None
    """None: as they are.  If neither size nor slots change, nothing happens."""
    force: bool = False
    """Even if there are members, who are cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveJobRequest:
    """Forget a job."""

    job: str
    force: bool = False
    """Even if there are members, who are cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """Show: names a job."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """One member as the controller knows it; its switch has no name where there is a single one."""

    rank: int
    state: str
    """`expected`, `joined` (has a nonce), `seen` (hello arrived), `admitted`, `left` or `lost`."""
    address: str = ""
    ingress_port: int = -1
    switch: str = ""
    links: list[str] = field(default_factory=list)
    """Address and port of each link that was seen, if there are several."""
    switches: list[str] = field(default_factory=list)
    """Switch of each link, if the links lead to several switches."""
    last_heartbeat_s: float = -1.0
    """Seconds since something was heard of it, 0 while its connection lasts; -1: nothing yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A running job's move to other trees, or to fewer rails."""

    why: str
    what: str
    """What it has now."""
    away: list[str] = field(default_factory=list)
    """Switches that stay away, and for which it was moved, by name."""

    def __str__(self) -> str:
        return f"{self.why}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One job as the controller knows it; `tree` names, for each switch below another one, the switch above."""

    job: str
    number: int
    epoch: int
    state: str
    """`waiting` for members, `running`, `draining` (some have left), or `stalled`: members wait for the switch."""
    workers: int
    first_slot: int
    slot_count: int
    lanes_per_frame: int = 0
    """32-bit lanes in one of its frames; 0: the controller does not say."""
    window_slots: int = 0
    """How many slots each member keeps in flight; 0: no incarnation is live."""
    fits_slots: bool = False
    """`slot_count` follows `window_slots` whenever members are admitted."""
    shares_slots: bool = False
    """Its slots, from `first_slot` on, are shared with other jobs; `fallback` adds what finds its slot taken."""
    own_first_slot: int = 0
    own_slot_count: int = 0
    """How many slots, from `own_first_slot` on, such a job has reserved beside those."""
    fallback: str = ""
    fallback_slot: int = 0
    """First of its slots at the fallback, which has as many of them for the job alone."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """How long members wait for one another."""
    members: list[MemberInfo] = field(default_factory=list)
    tree: list[list[str]] = field(default_factory=list)
    link_rates: list[float] = field(default_factory=list)
    """As in `ReadyReply`."""
    links_down: list[int] = field(default_factory=list)
    moved: list[Move] = field(default_factory=list)
    """The latest moves to other trees, or to fewer rails."""
    trees_of_link: int = 1
    """Where links of a member lead to several switches: how many trees each has, those of the first link first."""
    least_quorum: float = LEAST_QUORUM
    """As in `CreateJobRequest`."""
    agreed: int = 0
    """Operations so far that could go on without some ranks."""
    waits: int = 0
    """How many of these operations waited until patience ended."""
    left_out: list[list[int]] = field(default_factory=list)
    """Ranks that were left out of such operations, each with how many."""
    given_model: list[list[int]] = field(default_factory=list)
    """Ranks that lacked more results than are kept, and were given the model, each with how often."""
    refused_terms: list[list[int]] = field(default_factory=list)
    """Ranks that have asked on other terms than the first one did, or than the job allows, each with how often."""
    ephemeral: bool = False
    """As in `CreateJobRequest`: whoever started the job has chosen its size."""
    starting_s: float = -1.0
    """Seconds since the first of its ranks joined, while others are still to come; -1: none has, or all have."""
    held_up: str = ""
    """Why such an operation cannot begin, in words; empty: nothing holds it up."""
    has_ended: bool = False
    """Members were admitted, all of them have gone, and no others have been admitted since."""
    broken: str = ""
    """What has broken it, now or before it ended: `mismatch` or `lost`; empty: nothing has."""
    broken_ranks: list[int] = field(default_factory=list)
    """Which ranks did."""
    broken_text: str = ""
    """How their calls differ, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """Every job."""

    jobs: list[JobInfo] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotsRequest:
    """Query the switch for the state of slots, both versions of each."""

    job: str | None = None
    """Only this job's slots; None: those of every job."""
    limit: int = 64
    """At most so many slots, from the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotInfo:
    """One version of one slot, read from a switch's registers by a query frame; a single switch has no name."""

    slot: int
    """Slot of the switch."""
    version: int
    number: int
    seen: int
    """Bitmap of contributors; 0: never used."""
    flags: int
    block: int
    next_block: int
    job: str = ""
    """Job that has reserved the slot; of a shared slot, the job that holds it now."""
    switch: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotList:
    """What the query frames brought back."""

    slots: list[SlotInfo] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    """Switches that did not answer, of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterInfo:
    """One of the switch's counters, named after `frame.Reason`."""

    reason: str
    packets: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount:
    """How many packets of one member came to one `wire.Reason`."""

    reason: str
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounters:
    """What one member of a running job has sent through the switch and was sent, since it was admitted."""

    job: str
    rank: int
    contributions: int
    """Frames of its address, whatever became of them."""
    contribution_bytes: int
    results: int
    """Results of complete rounds, without answers to repeats."""
    reasons: list[ReasonCount] = field(default_factory=list)
    """What became of its contributions; empty where the switch has no room to count that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCounters:
    """What one switch has counted since it got its program."""

    switch: str
    contributions: int
    """Contributions taken into rounds, from workers and from switches below."""
    counters: list[CounterInfo] = field(default_factory=list)
    """All counters of this switch, if there are several switches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The switch's counters."""

    counters: list[CounterInfo] = field(default_factory=list)
    members: list[MemberCounters] = field(default_factory=list)
    switches: list[SwitchCounters] = field(default_factory=list)
    away: list[str] = field(default_factory=list)
    """Switches that did not answer, of several: what they count is missing, and so are members with links to them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortInfo:
    """One switch port that the controller has seen a member or a setting at."""

    port: int
    members: list[str] = field(default_factory=list)
    """`job/rank` of each member behind it."""
    ingress_loss: float = 0.0
    egress_loss: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PortList:
    """Every port that the controller knows."""

    ports: list[PortInfo] = field(default_factory=list)
    ingress_loss: float = 0.0
    """Loss at every port with members behind it, now or later, except ports with a setting of their own."""
    egress_loss: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRequest:
    """Set the drop simulator."""

    port: int | None = None
    """None: every port that a member is behind, now or later."""
    ingress: float = 0.0
    """Probability, 0 to 1."""
    egress: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalInfo:
    """A job that could not be made, or into which a member was not let; the latest one of its job."""

    job: str
    rank: int = -1
    """-1: the job itself was refused."""
    reason: str = ""
    kind: str = ""
    """Name of the error's class."""
    age_s: float = 0.0
    times: int = 1
    """How often something was refused of this job since the controller was started."""
    world_size: int = 0
    """World size of a member that was refused since the job has another one; 0: it was for another reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerInfo:
    """Who the controller is and which switch it serves."""

    package_version: str
    wire_version: int
    program_digest: str
    lanes_per_frame: int
    switch: str
    """P4Runtime address."""
    free_slots: int
    refused: list[RefusalInfo] = field(default_factory=list)
    """The latest refusals, for the last few jobs that had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo(WorkerFigures):
    """One member of a job with its latest report."""

    rank: int
    age_s: float = -1.0
    """Seconds since that report came; -1: there is none, and the figures mean nothing."""
    recent: RecentFigures = field(default_factory=RecentFigures)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerList:
    """Workers: every rank of a job, with what it last reported."""

    workers: list[WorkerInfo] = field(default_factory=list)
    calls: JobCalls = field(default_factory=JobCalls)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """A link between two switches, by its ports there."""

    switch: str
    port: int
    far_switch: str
    far_port: int
    in_tree: bool = False
    """Whether a tree of the controller goes over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFault:
    """A link that was found but does not fit, or that a tree needs but that is gone."""

    text: str
    switches: list[str] = field(default_factory=list)
    """Switches that it is about, by name."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkList:
    """The links between a controller's switches."""

    links: list[LinkInfo] = field(default_factory=list)
    faults: list[LinkFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchInfo:
    """One switch of a controller; a single one has no name."""

    switch: str
    p4runtime: str
    """Address of its P4Runtime server."""
    state: str
    """`settled` (it has all entries that it should have), `unsettled`, or `away`."""
    entries: int = 0
    """Table entries that the controller knows there."""
    groups: int = 0
    """Multicast groups that the controller knows there."""
    trouble: str = ""
    """What went wrong last, while it is not settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchList:
    """All switches of a controller, the root of its first tree first."""

    switches: list[SwitchInfo] = field(default_factory=list)


METHODS: Final[dict[str, tuple[type, type]]] = {
    "Join": (JoinRequest, JoinReply),
    "Ready": (ReadyRequest, ReadyReply),
    "Reform": (ReformRequest, ReformReply),
    "Compare": (CompareRequest, CompareReply),
    "Agree": (AgreeRequest, AgreeReply),
    "Leave": (LeaveRequest, Empty),
    "Heartbeat": (MemberRequest, HeartbeatReply),
    "Report": (WorkerReport, Empty),
    "LinkDown": (LinkReport, Empty),
    "Workers": (JobRequest, WorkerList),
    "CreateJob": (CreateJobRequest, JobInfo),
    "ResizeJob": (ResizeJobRequest, JobInfo),
    "ShowJob": (JobRequest, JobInfo),
    "RemoveJob": (RemoveJobRequest, Empty),
    "ListJobs": (Empty, JobList),
    "Slots": (SlotsRequest, SlotList),
    "Statistics": (Empty, Statistics),
    "Ports": (Empty, PortList),
    "Links": (Empty, LinkList),
    "Switches": (Empty, SwitchList),
    "SetLoss": (LossRequest, PortList),
    "Info": (Empty, ControllerInfo),
}
"""Every method with its request and its reply."""
STREAMS: Final[dict[str, tuple[type, type]]] = {"Attend": (MemberRequest, HeartbeatReply)}
"""Methods with many replies.  Attend replies when there is news, and each `heartbeat_s`.  A member is alive for as long
as its connection lasts: when the process dies, its own machine ends the connection."""
