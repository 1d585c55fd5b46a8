"""A client of the controller's gRPC methods, for the command line and the launcher."""

from __future__ import annotations

from switchsum_protocol import member_rpc, rpc

from .member_client import MemberClient


class ControllerClient(MemberClient):
    """A connection to a controller, usable in a `with` block, for users."""

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        """Tell what each member of a job last said of itself."""
        return self.call("Workers", request, rpc.WorkerList)

    def create_job(self, request: rpc.CreateJobRequest) -> rpc.JobInfo:
        """Reserve slots for a new job."""
        return self.call("CreateJob", request, rpc.JobInfo)

    def resize_job(self, request: rpc.ResizeJobRequest) -> rpc.JobInfo:
        """Change the size of a job; its members have to join again."""
        return self.call("ResizeJob", request, rpc.JobInfo)

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Describe a job."""
        return self.call("ShowJob", request, rpc.JobInfo)

    def remove_job(self, request: rpc.RemoveJobRequest) -> None:
        """Remove a job."""
        self.call("RemoveJob", request, member_rpc.Empty)

    def list_jobs(self) -> rpc.JobList:
        """Describe all jobs."""
        return self.call("ListJobs", member_rpc.Empty(), rpc.JobList)

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        """Read the cells of slots from the switch."""
        return self.call("Slots", request, rpc.SlotList)

    def statistics(self) -> rpc.Statistics:
        """Read the switch's counters."""
        return self.call("Statistics", member_rpc.Empty(), rpc.Statistics)

    def ports(self) -> rpc.PortList:
        """Describe all ports of which something is known."""
        return self.call("Ports", member_rpc.Empty(), rpc.PortList)

    def links(self) -> rpc.LinkList:
        """Describe the links between the controller's switches."""
        return self.call("Links", member_rpc.Empty(), rpc.LinkList)

    def switches(self) -> rpc.SwitchList:
        """Describe the controller's switches."""
        return self.call("Switches", member_rpc.Empty(), rpc.SwitchList)

    def set_loss(self, request: rpc.LossRequest) -> rpc.PortList:
        """Set the drop simulator."""
        return self.call("SetLoss", request, rpc.PortList)

    def info(self) -> rpc.ControllerInfo:
        """Describe the controller."""
        return self.call("Info", member_rpc.Empty(), rpc.ControllerInfo)
