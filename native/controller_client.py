"""A client of the controller's gRPC methods, for the command line and the launcher."""

from __future__ import annotations

from switchsum.protocol import reports, rpc

from .member_client import MemberClient


class ControllerClient(MemberClient):
    """A connection to a controller, usable in a `with` block, for users."""

    def workers(self, request: rpc.JobRequest) -> reports.WorkerList:
        """Tell what each member of a job last said of itself."""
        return self._call("Workers", request, reports.WorkerList)

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots for a new job."""
        return self._call("CreateJob", request, rpc.JobInfo)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again."""
        return self._call("ResizeJob", request, rpc.JobInfo)

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        return self._call("ShowJob", request, rpc.JobInfo)

    def remove_job(self, request: rpc.RemoveJobRequest) -> None:
        """Remove a job."""
        self._call("RemoveJob", request, rpc.Empty)

    def list_jobs(self) -> rpc.JobList:
        """Describe all jobs."""
        return self._call("ListJobs", rpc.Empty(), rpc.JobList)

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""
        return self._call("Slots", request, rpc.SlotList)

    def statistics(self) -> rpc.Statistics:
        """Read the switch's counters."""
        return self._call("Statistics", rpc.Empty(), rpc.Statistics)

    def ports(self) -> rpc.PortList:
        """Describe all ports of which something is known."""
        return self._call("Ports", rpc.Empty(), rpc.PortList)

    def links(self) -> reports.LinkList:
        """Describe the links between the controller's switches."""
        return self._call("Links", rpc.Empty(), reports.LinkList)

    def switches(self) -> reports.SwitchList:
        """Describe the controller's switches."""
        return self._call("Switches", rpc.Empty(), reports.SwitchList)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator."""
        return self._call("SetLoss", request, rpc.PortList)

    def info(self) -> rpc.ControllerInfo:
        """Describe the controller."""
        return self._call("Info", rpc.Empty(), rpc.ControllerInfo)
