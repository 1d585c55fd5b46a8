"""Six situations of jobs, made up, that the page is looked at in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from switchsum.view.facts import look_at
from switchsum.web.picture import Painter
from switchsum_controller.jobs.late_calls import Calls
from switchsum_protocol import rpc
from switchsum_protocol.frame import Flag
from switchsum_protocol.reports import JobCalls, RecentFigures
from switchsum_switch.messages.samples import SampledFrame

KINDS = [
    "allreduce (average) of float32[262144]",
    "allreduce (average) of float32[524288]",
    "allreduce (sum) of float32[1]",
]
MS = 1_000_000
HUNG_S, AWAY_S = 14.0, 3.0
"""For how long a rank hangs, and for how long a switch is away, when a page is opened."""
STATES = {"away": "stalled", "absent": "waiting"}
"""States of a job in some situations."""
A_SECOND, STEPS = 15, 1200
"""Steps of about a second, and those that are known of the past."""
FRAMES = 1024 + 2048 + 1
"""Of a rank in a step."""
HISTORY_S = 90
"""Seconds of the past that a page finds."""


def calls_of(ranks: int, late: dict[int, int], seed: int = 1, *, ago_s: float = 0.0) -> JobCalls:
    """Return 150 steps of three calls, the last one some time ago; `late` has by how many ms ranks are late."""
    reported, now_s = work(ranks, late, seed)
    return reported.report(now_s + ago_s)


def work(ranks: int, late: dict[int, int], seed: int = 1, steps: int = 150) -> tuple[Calls, float]:
    """Have ranks do steps of three calls, of which they report once a second; return also when they have done them."""
    chance, reported = random.Random(seed), Calls(ranks)
    rows: list[list[list[int]]] = [[] for _ in range(ranks)]
    now, serial = 0, 0
    for step in range(steps):
        for call, compute in enumerate((30, 5, 5)):
            begun = [
                now + compute * MS + chance.randrange(MS) + (MS * late.get(rank, 0) if call == 1 else 0)
                for rank in range(ranks)
            ]
            end = max(begun) + 4 * MS
            for rank, at in enumerate(begun):
                rows[rank].append([serial, call, at, end - at, 1])
            now, serial = end, serial + 1
        if step % A_SECOND == A_SECOND - 1 or step == steps - 1:
            for rank, of_rank in enumerate(rows):
                reported.take(rank, of_rank, KINDS, now / 1e9)
                of_rank.clear()
    return reported, now / 1e9


class Situation:
    """Has what a page asks for; `leaves` are switches with their ranks' hosts, `spines` are above them."""

    def __init__(
        self,
        leaves: Sequence[str] = ("",),
        hosts_of_leaf: int = 4,
        spines: Sequence[str] = (),
        *,
        late: dict[int, int] | None = None,
        jobs: Sequence[str] = ("train",),
        **what: set[str],
    ) -> None:
        self.began = time.monotonic()
        self.leaves, self.spines, self.what = leaves, spines, what
        self.count = hosts_of_leaf * len(leaves)
        self.names = jobs
        self.stands_s = HUNG_S if self.what.get("hangs") else AWAY_S if self.what.get("away") else 0.0
        reported, until_s = work(self.count, late or {}, steps=STEPS)
        self.calls, self.stood = reported.report(until_s), reported.report(until_s + self.stands_s)
        self.step_s = until_s / STEPS
        self.at_s: float | None = None
        self.at = [leaf for leaf in leaves for _ in range(hosts_of_leaf)]

    def has(self, kind: str, name: str) -> bool:
        """Whether a job, link or switch is in a state."""
        return name in self.what.get(kind, set())

    @property
    def seconds(self) -> float:
        """Since the page was opened; less than 0: before."""
        return time.monotonic() - self.began if self.at_s is None else self.at_s

    @property
    def works_s(self) -> float:
        """Until when the job has worked: a moment ago, or when it came to stand still."""
        return min(self.seconds, -self.stands_s) if self.stands_s else self.seconds

    @property
    def stands(self) -> bool:
        return bool(self.stands_s) and self.seconds > -self.stands_s

    def sent(self) -> int:
        """Return how many frames each rank has sent."""
        return int(FRAMES * self.works_s / self.step_s) + 10**7

    def info(self) -> rpc.ControllerInfo:
        refused = [
            rpc.RefusalInfo(job="large", reason="a job has 1 to 1024 slots, not 4000", kind="UsageError", age_s=40),
            rpc.RefusalInfo(
                job="trian", rank=0, reason="there is no job 'trian'", kind="UnknownJob", times=3, age_s=300
            ),
        ]
        return rpc.ControllerInfo(
            package_version="0.1.0", wire_version=4, program_digest="d", lanes_per_frame=256, switch="unix:s1",
            free_slots=1024 - 256 * len(self.names), refused=refused if self.what.get("refused") else [],
        )  # fmt: skip

    def list_jobs(self) -> rpc.JobList:
        jobs = []
        for number, name in enumerate(self.names):
            members = [
                rpc.MemberInfo(
                    rank=rank, state=self.state_of(f"{name}/{rank}"),
                    ingress_port=rank % 16, address=f"10.0.{rank // 16}.{rank % 16}:40000", switch=leaf,
                )
                for rank, leaf in enumerate(self.at)
            ]  # fmt: skip
            tree = [[leaf, spine, str(tree)] for tree, spine in enumerate(self.spines) for leaf in self.leaves]
            jobs.append(
                rpc.JobInfo(
                    job=name, number=number + 1, epoch=1, workers=self.count, first_slot=256 * number,
                    state=next((to for what, to in STATES.items() if self.what.get(what)), "running"),
                    slot_count=256, window_slots=256, members=members, tree=tree,
                )
            )  # fmt: skip
        return rpc.JobList(jobs=jobs)

    def state_of(self, rank: str) -> str:
        absent = self.what.get("absent", set())
        return "expected" if rank in absent else "seen" if absent else "admitted"

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        return next(one for one in self.list_jobs().jobs if one.job == request.job)

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        hangs = self.what.get("hangs", set())
        job = str(request.job)
        found, chance = [], random.Random(int(self.seconds))
        for rank in range(self.count):
            sent = self.sent() + (0 if self.stands else chance.randrange(900))
            loses = 0.04 if self.has("loses", f"{job}/{rank}") else 0.0
            rows = round(100_000 * chance.uniform(0.04, 0.06)) if self.what.get("sparse") else 0
            frames = round(10 * FRAMES / self.step_s)
            recent = RecentFigures(
                seconds=10.0, rounds=frames, frames_sent=frames, frames_received=round(frames * (1 - loses)), cpu_s=9.6,
                sparse_rows=rows, sparse_union_rows=3 * rows, sparse_all_rows=100_000 if rows else 0,
            )  # fmt: skip
            begun = int(3 * self.works_s / self.step_s) + 20_000
            one = rpc.WorkerInfo(
                rank=rank, age_s=0.3, host=f"node{rank // 2:02}", pid=4000 + rank, link=f"packet:eth{rank % 2}",
                begun=begun, finished=begun, frames_sent=sent, frames_received=round(sent * (1 - loses)), rounds=sent,
                bytes_sent=1100 * sent, recent=recent,
            )  # fmt: skip
            if self.stands:
                stuck, stood_s = f"{job}/{rank}" in hangs, round(self.seconds - self.works_s, 3)
                one = replace(
                    one, begun=begun + (not stuck), operation="" if stuck else KINDS[0],
                    idle_s=stood_s if stuck else 0.0, waiting_s=0.0 if stuck else stood_s,
                    recent=replace(recent, frames_sent=0, frames_received=0),
                )  # fmt: skip
            found.append(rpc.WorkerInfo(rank=rank) if self.what.get("absent") else one)
        calls = JobCalls() if self.what.get("absent") else self.stood if self.stands else self.calls
        return rpc.WorkerList(workers=found, calls=calls)

    def statistics(self) -> rpc.Statistics:
        away = self.what.get("away", set())
        sent = 0 if self.what.get("absent") else self.sent()
        members = [
            rpc.MemberCounters(job=job, rank=rank, contributions=sent, contribution_bytes=1100 * sent, results=sent)
            for job in self.names
            for rank in range(self.count)
        ]
        reasons = (("contributed", self.count * sent), ("completed", sent), ("duplicate", sent // 4000))
        switches = [
            rpc.SwitchCounters(
                switch=one,
                contributions=count,
                counters=[rpc.CounterInfo(reason="contributed", packets=count, bytes=0)],
            )
            for one in (*self.spines, *self.leaves)
            for count in [sent * (self.count // len(self.leaves) if one in self.leaves else len(self.leaves))]
            if one not in away
        ]
        return rpc.Statistics(
            counters=[rpc.CounterInfo(reason=name, packets=count, bytes=1100 * count) for name, count in reasons],
            members=members, switches=switches, away=sorted(away),
        )  # fmt: skip

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        job, hangs = str(request.job), self.what.get("hangs", set())
        if self.what.get("absent"):  # nothing was ever sent
            return rpc.SlotList()
        number, chance = 40 if hangs else int(100 * self.seconds) + 10_000, random.Random(int(self.seconds))
        cells = []
        for slot in range(self.show_job(rpc.JobRequest(job=job)).first_slot, 10**6)[:256]:
            for switch in self.leaves:
                ranks = [rank for rank, at in enumerate(self.at) if at == switch]
                here = [one for one in ranks if f"{job}/{one}" not in hangs] if hangs else ranks[chance.randrange(2) :]
                bits = sum(1 << place for place, rank in enumerate(ranks) if rank in here)
                flags = 0 if hangs or len(here) < len(ranks) else int(Flag.FINAL)
                cells.append(
                    rpc.SlotInfo(
                        slot=slot, version=0, number=number, seen=bits, flags=flags, block=slot, next_block=0,
                        switch=switch,
                    )
                )  # fmt: skip
        return rpc.SlotList(slots=cells)

    def ports(self) -> rpc.PortList:
        loses = sorted(self.what.get("loses", set()))
        simulated = [rpc.PortInfo(port=3, members=loses, ingress_loss=0.02, egress_loss=0.02)] if loses else []
        return rpc.PortList(ports=simulated)

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        return []

    def links(self) -> rpc.LinkList:
        links = [
            rpc.LinkInfo(switch=spine, port=20 + down, far_switch=leaf, far_port=30 + up, in_tree=True)
            for up, spine in enumerate(self.spines)
            for down, leaf in enumerate(self.leaves)
            if not self.has("away", spine)
        ]
        faults = [  # as a controller says that finds links by LLDP
            rpc.LinkFault(
                text=f"the link from port {30 + up} of {leaf} to port {20 + down} of {spine} is gone",
                switches=[leaf, spine],
            )
            for up, spine in enumerate(self.spines)
            for down, leaf in enumerate(self.leaves)
            if self.has("away", spine)
        ]
        return rpc.LinkList(links=links, faults=faults)

    def switches(self) -> rpc.SwitchList:
        return rpc.SwitchList(
            switches=[
                rpc.SwitchInfo(switch=name, p4runtime=f"{name or 's1'}:9559", state=state, trouble=trouble)
                for name in (*self.spines, *self.leaves)
                for state, trouble in [("away", "no answer") if self.has("away", name) else ("settled", "")]
            ]
        )  # fmt: skip


LEAVES = ("leaf1", "leaf2")
ALL_OF_TWO = {f"{job}/{rank}" for job in ("train", "tune") for rank in range(4)}
SITUATIONS: dict[str, tuple[Callable[[], Situation], tuple[str, ...]]] = {
    "healthy": (lambda: Situation(LEAVES, 4, ("spine1", "spine2"), sparse={"yes"}), ("Nothing.",)),
    "late": (
        lambda: Situation(LEAVES, 4, ("spine1",), late={5: 20}),
        ("Rank 5 (node02) is 20 ms late in", "ms a step", "py-spy record --pid 4005"),
    ),
    "hangs": (
        lambda: Situation(("",), 4, hangs={"train/2"}),
        ("Rank 2 (node01) has been outside collectives for", "ranks 0, 1 and 3 wait for it"),
    ),
    "loses": (
        lambda: Situation(("",), 4, jobs=("train", "tune"), loses=ALL_OF_TWO),
        ("The drop simulator is on: 8 links lose 4 %; no rank waits for long.", "switchsum drop-probability 0"),
    ),
    "fleet": (
        lambda: Situation((*LEAVES, "leaf3", "leaf4"), 16, ("spine1", "spine2"), away={"spine2"}),
        ("Switch spine2 is away; job train has waited", "gone with it"),
    ),
    "absent": (
        lambda: Situation(("",), 4, absent={"train/1", "train/3"}, refused={"yes"}),
        ("have not joined", "not 4000", "There is no job 'trian'. Is 'train' meant?", "waits for ranks 1 and 3"),
    ),
}  # fmt: skip
"""By name, what there is, and what must be read on the page."""


def with_history(situation: Situation, painter: Painter, now: float) -> None:
    """Have a page's history begin some time ago."""
    painter.__init__()  # type: ignore[misc]
    for ago in range(HISTORY_S, 0, -1):
        situation.at_s = float(-ago)
        painter.note(look_at(situation, switch=False, slots=False), now - ago)
    situation.at_s, situation.began = None, now
