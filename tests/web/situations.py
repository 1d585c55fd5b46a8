"""Six situations of jobs, made up, that the page is looked at in."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from switchsum.controller.jobs.calls import Calls
from switchsum.protocol import rpc
from switchsum.protocol.frame import Flag
from switchsum.protocol.reports import JobCalls, RecentFigures
from switchsum.protocol.samples import SampledFrame

KINDS = [
    "allreduce (average) of float32[262144]",
    "allreduce (average) of float32[524288]",
    "allreduce (sum) of float32[1]",
]
MS = 1_000_000


def calls_of(ranks: int, late: dict[int, int], seed: int = 1) -> JobCalls:
    """Return 200 steps of three calls; `late` has by how many ms ranks are late before the second one."""
    chance, told = random.Random(seed), Calls(ranks)
    rows: list[list[list[int]]] = [[] for _ in range(ranks)]
    now, serial = 0, 0
    for _ in range(150):
        for call, compute in enumerate((30, 5, 5)):
            begun = [
                now + compute * MS + chance.randrange(MS) + (MS * late.get(rank, 0) if call == 1 else 0)
                for rank in range(ranks)
            ]
            end = max(begun) + 4 * MS
            for rank, at in enumerate(begun):
                rows[rank].append([serial, call, at, end - at, 1])
            now, serial = end, serial + 1
    for rank, of_rank in enumerate(rows):
        told.take(rank, of_rank, KINDS, now / 1e9)
    return told.told(now / 1e9)


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
        self.calls = calls_of(self.count, late or {})
        self.at = [leaf for leaf in leaves for _ in range(hosts_of_leaf)]

    def has(self, kind: str, name: str) -> bool:
        """Whether a job, link or switch is in a state."""
        return name in self.what.get(kind, set())

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def info(self) -> rpc.ControllerInfo:
        refused = [
            rpc.RefusalInfo(job="large", reason="a job has 1 to 1024 slots, not 4000", kind="UsageError"),
            rpc.RefusalInfo(job="trian", rank=0, reason="there is no job 'trian'", kind="UnknownJob", times=3),
        ]
        return rpc.ControllerInfo(
            package_version="0.1.0", wire_version=4, program_digest="d", lanes_per_frame=256, switch="unix:s1",
            free_slots=512, refused=refused if self.what.get("refused") else [],
        )  # fmt: skip

    def list_jobs(self) -> rpc.JobList:
        jobs = []
        for number, name in enumerate(self.names):
            members = [
                rpc.MemberInfo(
                    rank=rank, state="expected" if self.has("absent", f"{name}/{rank}") else "admitted",
                    ingress_port=rank % 16, address=f"10.0.{rank // 16}.{rank % 16}:40000", switch=leaf,
                )
                for rank, leaf in enumerate(self.at)
            ]  # fmt: skip
            tree = [[leaf, spine, str(tree)] for tree, spine in enumerate(self.spines) for leaf in self.leaves]
            jobs.append(
                rpc.JobInfo(
                    job=name, number=number + 1, epoch=1, state="running", workers=self.count, first_slot=256 * number,
                    slot_count=256, window_slots=256, members=members, tree=tree,
                )
            )  # fmt: skip
        return rpc.JobList(jobs=jobs)

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        return next(one for one in self.list_jobs().jobs if one.job == request.job)

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        hangs = self.what.get("hangs", set())
        job = str(request.job)
        sent = int(9000 * self.seconds) + 10**6
        found = []
        for rank in range(self.count):
            loses = 0.04 if self.has("loses", f"{job}/{rank}") else 0.0
            recent = RecentFigures(
                seconds=10.0, rounds=90_000, frames_sent=90_000, frames_received=round(90_000 * (1 - loses)), cpu_s=9.6
            )
            begun = int(18 * self.seconds) + 400
            one = rpc.WorkerInfo(
                rank=rank, age_s=0.3, host=f"node{rank // 2:02}", pid=4000 + rank, link=f"packet:eth{rank % 2}",
                begun=begun, finished=begun, frames_sent=sent, frames_received=round(sent * (1 - loses)), rounds=sent,
                bytes_sent=1100 * sent, recent=recent,
            )  # fmt: skip
            if hangs:
                stuck = f"{job}/{rank}" in hangs
                one = replace(
                    one, begun=399 if stuck else 400, finished=399, frames_sent=10**6, frames_received=10**6,
                    bytes_sent=10**9, idle_s=14.0 if stuck else 0.0, waiting_s=0.0 if stuck else 14.0,
                    operation="" if stuck else KINDS[0], recent=replace(recent, frames_sent=0, frames_received=0),
                )  # fmt: skip
            found.append(rpc.WorkerInfo(rank=rank) if self.has("absent", f"{job}/{rank}") else one)
        return rpc.WorkerList(workers=found, calls=JobCalls() if hangs or self.what.get("absent") else self.calls)

    def statistics(self) -> rpc.Statistics:
        sent = int(9000 * self.seconds) + 10**6
        members = [
            rpc.MemberCounters(job=job, rank=rank, contributions=sent, contribution_bytes=1100 * sent, results=sent)
            for job in self.names
            for rank in range(self.count)
        ]
        reasons = (("contributed", self.count * sent), ("completed", sent), ("duplicate", sent // 4000))
        switches = [
            rpc.SwitchCounters(switch=one, contributions=sent * (4 if one in self.leaves else 2))
            for one in (*self.spines, *self.leaves)
        ]
        return rpc.Statistics(
            counters=[rpc.CounterInfo(reason=name, packets=count, bytes=1100 * count) for name, count in reasons],
            members=members, switches=switches,
        )  # fmt: skip

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        job, hangs = str(request.job), self.what.get("hangs", set())
        number, chance = 40 if hangs else int(100 * self.seconds), random.Random(int(self.seconds))
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
            if not self.has("cut", f"{leaf}-{spine}")
        ]
        faults = [
            f"the link from {one.replace('-', ' to ')} is gone, which the tree needs"
            for one in self.what.get("cut", ())
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
    "healthy": (lambda: Situation(LEAVES, 4, ("spine1", "spine2")), ("Nothing.",)),
    "late": (lambda: Situation(LEAVES, 4, ("spine1",), late={5: 20}), ("Rank 5", "20 ms late", "faster")),
    "hangs": (lambda: Situation(("",), 4, hangs={"train/2"}), ("ranks 0-1, 3 wait for rank 2",)),
    "loses": (
        lambda: Situation(("",), 4, jobs=("train", "tune"), loses=ALL_OF_TWO),
        ("the links of 8 ranks lose frames", "drop simulator"),
    ),
    "fleet": (
        lambda: Situation(
            (*LEAVES, "leaf3", "leaf4"), 16, ("spine1", "spine2"), away={"spine2"}, cut={"leaf3-spine2"}
        ),
        ("Switch spine2", "leaf3 to spine2 is gone"),
    ),
    "absent": (
        lambda: Situation(("",), 4, absent={"train/1", "train/3"}, refused={"yes"}),
        ("have not joined", "not 4000", "there is no job 'trian'"),
    ),
}  # fmt: skip
"""By name, what there is, and what must be read on the page."""
