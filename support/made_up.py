"""A controller that is made up: three jobs at a moment, for what is shown of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from switchsum_protocol import rpc
from switchsum_protocol.errors import SwitchLost, UsageError
from switchsum_protocol.frame import Flag, Header, Kind
from switchsum_protocol.wire import build_frame
from switchsum_switch.messages.samples import SampledFrame
from switchsum_switch.wires.headers import Address

HOSTILE = '<script>alert("1")</script>\\"}\n'.replace("\n", "?")


class MadeUp:
    """Has what a `Source` has; `away` is a switch that does not answer."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away
        self.broken = False
        self.jobs: list[rpc.JobInfo] | None = None
        self.listed = 0
        self.sampled: list[tuple[str, int]] = []
        self.asked = 0
        """How often the switch was read."""
        states = [rpc.MemberInfo(rank=rank, state="admitted", ingress_port=rank) for rank in range(3)]
        self.job = rpc.JobInfo(
            job=HOSTILE, number=1, epoch=1, state="running", workers=3, first_slot=4, slot_count=4, members=states
        )
        self.counted: dict[str, Any] = {"contributions": 900, "contribution_bytes": 9000, "results": 300}

    def info(self) -> rpc.ControllerInfo:
        refused = [rpc.RefusalInfo(job="other", rank=0, reason="there is no job 'other'", kind="UnknownJob", times=2)]
        return rpc.ControllerInfo(
            package_version="1", wire_version=3, program_digest="d", lanes_per_frame=256, switch="unix:s", free_slots=9,
            refused=refused,
        )  # fmt: skip

    def list_jobs(self) -> rpc.JobList:
        self.listed += 1
        return rpc.JobList(jobs=[self.job] if self.jobs is None else self.jobs)

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        return self.job

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        waits = [
            rpc.WorkerInfo(
                rank=rank, age_s=0.2, host="<b>h</b>", link="shm:x", begun=11, finished=10, operation="allreduce",
                waiting_s=7.0, frames_sent=300, frames_received=296, bytes_sent=3000, waiting_slots=4, rounds=296,
            )
            for rank in (0, 2)
        ]  # fmt: skip
        idle = rpc.WorkerInfo(rank=1, age_s=0.2, host="slow", link="shm:x", begun=10, finished=10, idle_s=7.0)
        return rpc.WorkerList(workers=[waits[0], idle, waits[1]])

    def statistics(self) -> rpc.Statistics:
        self.asked += 1
        if self.away:
            raise SwitchLost("the switch is away")
        return rpc.Statistics(
            counters=[rpc.CounterInfo(reason="completed", packets=300, bytes=900)],
            members=[rpc.MemberCounters(job=HOSTILE, rank=rank, **self.counted) for rank in range(3)],
        )

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        seen = {
            4: (0, 0),
            5: (0b111, 0b101),
            6: (0b111, 0b110),
            7: (0b110, 0b111),
        }
        return rpc.SlotList(
            slots=[
                rpc.SlotInfo(slot=slot, version=v, number=40 + v, seen=bits[v], flags=0, block=0, next_block=0)
                for slot, bits in seen.items()
                for v in (0, 1)
            ]
        )

    def ports(self) -> rpc.PortList:
        if self.broken:
            raise ZeroDivisionError
        return rpc.PortList(ports=[rpc.PortInfo(port=1, members=["a/1"], ingress_loss=0.25)])

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        self.sampled.append((job, slot))
        if self.away:
            raise UsageError("this switch shows no packets")
        here, there = (Address(mac=number, ip=0x0A000000 + number, port=21333) for number in (1, 2))
        header = Header(kind=Kind.CONTRIBUTION, job=1, epoch=2, rank=1, slot=slot, number=40, flags=Flag.REPEAT)
        found = []
        for frame in (build_frame(here, there, header), b"\0" * 80):
            found.append(SampledFrame(at_s=1.5, port=1, is_sent=False, length=len(frame), head=frame.hex()))
        return [("", one) for one in found]

    def links(self) -> rpc.LinkList:
        return rpc.LinkList()

    def switches(self) -> rpc.SwitchList:
        state = "away" if self.away else "settled"
        return rpc.SwitchList(switches=[rpc.SwitchInfo(switch="", p4runtime="unix:s", state=state)])


class Tree(MadeUp):
    """Four ranks at two leaves below two roots; rank 3 is late, and a link is gone, is in no tree, or is down."""

    def __init__(self) -> None:
        super().__init__()
        at = ("left", "left", "right", "right")
        members = [
            rpc.MemberInfo(
                rank=rank, state="admitted", ingress_port=rank, switch=name,
                links=[f"10.0.0.{rank} port {rank}", f"10.0.1.{rank} port {rank + 10}"],
            )
            for rank, name in enumerate(at)
        ]  # fmt: skip
        tree = [["left", "one"], ["right", "one"], ["left", "two", "1"], ["right", "two", "1"]]
        self.job = replace(
            self.job, job="digits", workers=4, members=members, tree=tree, link_rates=[200.0, 100.0], links_down=[1]
        )

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        self.counted["contributions"] += 100
        one = super().workers(request).workers[0]
        late = replace(one, rank=3, host="late", begun=10, waiting_s=0.0, idle_s=7.0)
        return rpc.WorkerList(workers=[*(replace(one, rank=rank) for rank in range(3)), late])

    def statistics(self) -> rpc.Statistics:
        takes = {"one": 2, "two": 1, "left": 4, "right": 3}
        switches = [
            rpc.SwitchCounters(switch=name, contributions=self.counted["contributions"] * part)
            for name, part in takes.items()
        ]
        return replace(super().statistics(), switches=switches)

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        seen = {"one": 0b01, "left": 0b11, "right": 0b01}
        return rpc.SlotList(
            slots=[
                rpc.SlotInfo(slot=4, version=0, number=40, seen=bits, flags=0, block=0, next_block=0, switch=name)
                for name, bits in seen.items()
            ]
        )

    def links(self) -> rpc.LinkList:
        ends = [("one", 1, "left", 9), ("one", 2, "right", 9), ("left", 8, "two", 1), ("left", 7, "right", 7)]
        links = [
            rpc.LinkInfo(switch=near, port=port, far_switch=far, far_port=far_port, in_tree=near != "left" or port > 7)
            for near, port, far, far_port in ends
        ]
        fault = rpc.LinkFault(
            text="the link from right to two is gone, which the tree needs", switches=["right", "two"]
        )
        return rpc.LinkList(links=links, faults=[fault])

    def switches(self) -> rpc.SwitchList:
        names = ("one", "two", "left", "right")
        states = [
            rpc.SwitchInfo(
                switch=name, p4runtime=f"unix:{name}", state="away" if name == "two" else "settled",
                trouble="no answer" if name == "two" else "",
            )
            for name in names
        ]  # fmt: skip
        return rpc.SwitchList(switches=states)


class Large(MadeUp):
    """Four jobs of 16 workers each, with so many slots each, half of which wait."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.all = [
            replace(
                self.job, job=f"job {number}", workers=16, first_slot=slots * number, slot_count=slots,
                members=[rpc.MemberInfo(rank=rank, state="admitted", ingress_port=rank) for rank in range(16)],
            )
            for number in range(4)
        ]  # fmt: skip
        one = super().workers(rpc.JobRequest(job="")).workers[0]
        self.one = rpc.WorkerList(workers=[replace(one, rank=rank) for rank in range(16)])
        self.cells = {
            job.job: rpc.SlotList(
                slots=[
                    rpc.SlotInfo(
                        slot=job.first_slot + slot, version=version, number=40 + version, flags=0, block=0,
                        next_block=0, seen=0xFFFF >> (slot % 2),
                    )
                    for slot in range(slots)
                    for version in (0, 1)
                ]
            )
            for job in self.all
        }  # fmt: skip

    def list_jobs(self) -> rpc.JobList:
        return rpc.JobList(jobs=self.all)

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        return self.one

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        return self.cells[str(request.job)]

    def statistics(self) -> rpc.Statistics:
        members = [rpc.MemberCounters(job=job.job, rank=rank, **self.counted) for job in self.all for rank in range(16)]
        return rpc.Statistics(counters=[rpc.CounterInfo(reason="completed", packets=300, bytes=900)], members=members)
