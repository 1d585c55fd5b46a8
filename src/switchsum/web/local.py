"""A controller in this process, asked as one over gRPC is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchsum_protocol import member_rpc, rpc
from switchsum_switch.messages.samples import SampledFrame

if TYPE_CHECKING:
    from switchsum_controller.service.users import Users


class LocalSource:
    """Reads a controller; each call takes its lock for a moment, and changes nothing."""

    def __init__(self, users: Users) -> None:
        self._users = users

    def info(self) -> rpc.ControllerInfo:
        """Describe the controller."""
        return self._users.info(member_rpc.Empty())

    def list_jobs(self) -> rpc.JobList:
        """Describe all jobs."""
        return self._users.list_jobs(member_rpc.Empty())

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        return self._users.show_job(request)

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""
        return self._users.workers(request)

    def statistics(self) -> rpc.Statistics:
        """Read the switch's counters, or hear at once that it is away: pages and scrapers ask again in a second."""
        return self._users.statistics(member_rpc.Empty(), waits=False)

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""
        return self._users.slots(request)

    def ports(self) -> rpc.PortList:
        """Describe all ports of which something is known."""
        return self._users.ports(member_rpc.Empty())

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Return frames of a slot that pass, each with the name of the switch."""
        return self._users.sample(job, slot, seconds)

    def links(self) -> rpc.LinkList:
        """Describe the links between switches."""
        return self._users.links(member_rpc.Empty())

    def switches(self) -> rpc.SwitchList:
        """Describe the switches."""
        return self._users.switches(member_rpc.Empty())
