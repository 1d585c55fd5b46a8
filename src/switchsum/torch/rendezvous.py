"""Lets the ranks of a process group find their controller and job, through the store that torch gives them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from switchsum.torch import switches_of_machines
from switchsum.torch.gloo import LOOPBACK, is_loopback, own_address
from switchsum.torch.members import job_name
from switchsum.torch.services import LEAVE_S, LocalServices, ranks_in, start_alone
from switchsum.torch.store import MACHINE, STARTS, Meeting, fetch, gather, tell_error
from switchsum_host.api.communicator import Communicator
from switchsum_host.api.join import CALL_S
from switchsum_host.connect import connect
from switchsum_host.links.warm import warm_up
from switchsum_protocol import member_rpc
from switchsum_protocol.clients.starting import ANSWER_S, note_launcher
from switchsum_protocol.errors import NoCapacity, RankTaken, UnknownJob, UsageError
from switchsum_switch.notices import QUIET_S, ranks_of, say, waiting_for
from switchsum_switch.process.start_limit import start_limit

if TYPE_CHECKING:
    from switchsum_protocol import rpc
    from switchsum_protocol.clients.controller_client import ControllerClient

GROUP_SLOTS: Final = 64
"""Most slots of a sub-group's job; the fewest is one."""
GROUP_SHARE: Final = 16
"""A sub-group takes this part of the slots that are free, so that there is room for about 75 of them."""
RETRY_S: Final = 0.2
_PLACE: Final = "switchsum/place"
_of_thread = threading.local()
"""Thread-local: `client`, the connection to the controller that the thread's calls share for the moment."""
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAddress:
    """The controller, link and name of a job."""

    controller: str
    """The controller's address."""
    link: str | None
    """Link of the workers to the switch. None: each worker has its own SWITCHSUM_LINK."""
    job: str
    is_ours: bool
    """True: the job was made for the group, and ends with it."""
    is_of_some: bool = False
    """True: the group has only some ranks, and leaves slots to others."""
    links: list[str] | None = None
    """Link of each rank to its machine's switch, if ranks have started the switches."""
    certificate: switches_of_machines.Certificate | None = None
    """Certificate for the controller, if ranks have started it."""
    switch: str | None = None
    """P4Runtime address of the switch that rank 0 has started for the group; None: it has started none."""
    beacon: str | None = None
    """An address of one of several machines; the way to it is the way to the others."""


def meet(meeting: Meeting, start: Callable[[], LocalServices] = start_alone) -> tuple[JobAddress, LocalServices | None]:
    """Agree on controller and job; return what this rank has started.

    Rank 0 decides.  If SWITCHSUM_CONTROLLER is not set, it starts a controller and a switch: by `start` if all ranks
    share a machine, else with the help of each machine's first rank.  Raises CollectiveTimeout with the ranks that have
    not come, and on every rank the error of rank 0.
    """
    store = meeting.store
    meeting.agree_on_size()
    # Rank 0 waits for the machine alone, and finds the address where there is a machine.
    store.set(f"switchsum/address/{meeting.rank}", own_address(_hosts()))
    store.set(f"{MACHINE}/{meeting.rank}", this_machine())
    if meeting.rank == 0:
        try:
            place, services = _decide(meeting, start)
        except Exception as error:  # also of the system: others would wait for their time-out
            switches_of_machines.fail(meeting, error)
            tell_error(meeting, _PLACE, error)
            raise
        store.set(_PLACE, json.dumps(asdict(place)))
    else:
        services = switches_of_machines.follow(meeting, _hosts())
        try:
            if not os.environ.get("SWITCHSUM_CONTROLLER"):
                warm_up("shm:")  # while rank 0 starts a switch: what has to be compiled is, on another core
            what = "looks for switch and controller or starts them"
            place = JobAddress(**fetch(meeting, _PLACE, what, 0, 5, has_machine=True))
        except BaseException:
            if services is not None:
                services.stop()
            raise
    if services is not None:
        services.controller = place.controller
    if place.certificate is not None:
        switches_of_machines.trust(place.controller, place.certificate)
    return place if place.links is None else replace(place, link=place.links[meeting.rank]), services


def gloo_address(place: JobAddress) -> str:
    """Return the address at which other ranks of the group can reach this one."""
    return own_address([*_hosts(), *([place.beacon] if place.beacon else [])])


def _hosts() -> list[str]:
    """Return hosts that the environment names and that are likely to be on the ranks' network."""
    controller, link = os.environ.get("SWITCHSUM_CONTROLLER", ""), os.environ.get("SWITCHSUM_LINK", "")
    named = [
        "" if controller.startswith("unix:") else controller.rpartition(":")[0],
        link.removeprefix("udp:").partition(":")[0] if link.startswith("udp:") else "",
        os.environ.get("MASTER_ADDR", ""),
    ]
    return [host for host in named if host]


def open_job(meeting: Meeting, place: JobAddress) -> Communicator:
    """Make the group's job, if it is the group's own, and join it."""
    if place.switch is not None:
        note_launcher(place.controller, "rank 0 of the process group", place.switch)
    link = os.environ.get("SWITCHSUM_LINK") or place.link or "udp:" + place.controller.rpartition(":")[0]
    key = f"switchsum/job/{place.job}"
    if meeting.rank == 0:
        meeting.store.set(f"{STARTS}/0", "")
        try:
            if place.is_ours:
                warm_up(link)  # a job that nobody joins for as long as this may take would end
                _make_job(place, meeting)
        except Exception as error:
            tell_error(meeting, key, error)
            raise
        meeting.store.set(key, "{}")
    else:
        fetch(meeting, key, "makes the group's job", 0)
    deadline, quiet_until = time.monotonic() + meeting.timeout_s, time.monotonic() + QUIET_S
    while True:
        meeting.check_open()
        try:
            return connect(
                controller=place.controller,
                job=place.job,
                rank=meeting.rank,
                world_size=meeting.size,
                link=link,
                timeout_s=meeting.timeout_s,
                cancelled=meeting.closed,
            )
        except RankTaken:  # by an incarnation that was killed, until the controller finds it lost
            if time.monotonic() > deadline:
                raise
            if time.monotonic() > quiet_until:
                quiet_until = deadline
                say(f"waiting for the controller to find an earlier rank {meeting.rank} of job {place.job!r} lost")
            time.sleep(RETRY_S)


def _make_job(place: JobAddress, meeting: Meeting) -> None:
    """Make a group's own job, in the place of that of an incarnation that was killed."""
    from switchsum_protocol import rpc  # noqa: PLC0415 - rank 0 alone makes jobs, and each rank's start waits for imports

    # Rank 0 removes it; ephemeral, for rank 0 may be killed.
    request = rpc.CreateJobRequest(
        job=place.job,
        workers=meeting.size,
        slots=GROUP_SLOTS if place.is_of_some else None,
        part_of_free=1 / GROUP_SHARE if place.is_of_some else 1.0,
        timeout_s=meeting.timeout_s,
        ephemeral=True,
        replaces=True,
    )
    with _one_connection(place):
        try:
            _call(place, "CreateJob", request, rpc.JobInfo)
        except NoCapacity as error:
            if not place.is_of_some:
                raise
            jobs = _call(place, "ListJobs", member_rpc.Empty(), rpc.JobList).jobs
            raise NoCapacity(_no_capacity(jobs, error)) from error


def _no_capacity(jobs: Sequence[rpc.JobInfo], error: NoCapacity) -> str:
    """Say what who uses PyTorch can do where the switch has no room for another group."""
    groups = sum("/" in job.job for job in jobs)
    return (
        f"the switch has no room for another process group: {len(jobs)} jobs are on it, {groups} of them of groups of "
        "some ranks. Call dist.destroy_process_group(group) for groups that are not used any more, use one group for "
        "all that the same ranks do, or make groups on gloo where the switch need not add: "
        f'dist.new_group(ranks, backend="gloo") ({error})'
    )


def await_leaving(place: JobAddress) -> None:
    """Wait until nobody is in a job any more, for a few seconds: some may still need an answer of the switch."""
    from switchsum_protocol import rpc  # noqa: PLC0415 - as above

    deadline = time.monotonic() + LEAVE_S
    here: list[int] = []

    def whom() -> str:
        return f"{ranks_of(place.job, here)} to leave" if here else f"the controller to say who is in job {place.job!r}"

    with _one_connection(place), waiting_for(whom):
        while time.monotonic() < deadline:
            job = _call(place, "ShowJob", rpc.JobRequest(job=place.job), rpc.JobInfo)
            here = ranks_in(job)
            if not here:
                return
            time.sleep(0.02)


def remove_job(place: JobAddress) -> None:
    """Remove a job, whoever is still in it, if there is one."""
    from switchsum_protocol import rpc  # noqa: PLC0415 - as above

    try:
        _call(place, "RemoveJob", rpc.RemoveJobRequest(job=place.job, force=True), member_rpc.Empty)
    except UnknownJob:
        pass


def this_machine() -> str:
    """Name what workers must share to meet at a switch in shared memory: kernel, network namespace and /tmp.

    Containers on the network of their host share the first two.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    place = os.stat("/tmp")
    return f"{boot} {os.readlink('/proc/self/ns/net')} {place.st_dev}:{place.st_ino}"


def _decide(meeting: Meeting, start: Callable[[], LocalServices]) -> tuple[JobAddress, LocalServices | None]:
    """Return where the job is to be."""
    standing = gather(meeting, MACHINE)
    is_alone = len(set(standing)) == 1
    beacon = None if is_alone else _beacon(meeting)
    given = os.environ.get("SWITCHSUM_JOB")
    controller, own_link = os.environ.get("SWITCHSUM_CONTROLLER"), os.environ.get("SWITCHSUM_LINK", "")
    if own_link and not controller:
        raise UsageError(
            f"SWITCHSUM_LINK={own_link} names a switch, but SWITCHSUM_CONTROLLER is not set: "
            "set both, or neither, so that rank 0 starts a switch"
        )
    if not controller and not is_alone:
        found = switches_of_machines.lead(meeting, standing, _hosts(), beacon or LOOPBACK)
        services: LocalServices | None = found.services
        place = JobAddress(
            controller=found.services.controller,
            link=None,
            job=job_name(meeting.store),
            is_ours=True,
            links=found.links,
            certificate=found.certificate,
            switch=found.services.p4runtime,
            beacon=beacon,
        )
        return place, services
    switches_of_machines.no_tasks(meeting)
    if controller:
        shared = own_link if own_link.startswith("udp:") or is_alone else None
        job = given or job_name(meeting.store)
        return JobAddress(controller=controller, link=shared or None, job=job, is_ours=not given, beacon=beacon), None
    meeting.store.set(f"{STARTS}/0", "")
    services = start()
    link, switch = services.link, services.p4runtime
    return JobAddress(
        controller=services.controller, link=link, job=job_name(meeting.store), is_ours=True, switch=switch
    ), services


def _beacon(meeting: Meeting) -> str | None:
    """Return the address of the first rank that has one which others can reach."""
    keys = [f"switchsum/address/{rank}" for rank in range(meeting.size)]
    addresses = (meeting.store.get(key).decode() for key in keys if meeting.store.check([key]))
    return next((address for address in addresses if not is_loopback(address)), None)


@contextmanager
def _one_connection(place: JobAddress) -> Iterator[None]:
    """Have this thread's calls of a controller share a connection, which takes longer to open than a call to answer."""
    from switchsum_protocol.clients.controller_client import ControllerClient  # noqa: PLC0415 - as above

    with ControllerClient(place.controller, timeout_s=CALL_S, waits=True) as client:
        _of_thread.client = client
        try:
            yield
        finally:
            _of_thread.client = None


def _call(place: JobAddress, method: str, request: object, reply: type[Reply]) -> Reply:
    client: ControllerClient | None = getattr(_of_thread, "client", None)
    if client is None:
        with _one_connection(place):
            return _call(place, method, request, reply)
    return client.call(method, request, reply, patience_s=start_limit(ANSWER_S))
