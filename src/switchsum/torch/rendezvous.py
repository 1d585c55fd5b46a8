"""How the ranks of a process group find their controller and job: through the store that torch gives them."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import torch.distributed as dist

from switchsum.host.api.communicator import Communicator
from switchsum.host.api.join import CALL_S
from switchsum.host.connect import connect
from switchsum.host.links.warm import warm_up
from switchsum.native.controller_client import ControllerClient
from switchsum.native.starting import ANSWER_S, note_launcher, start_limit
from switchsum.protocol import rpc, rpc_codec
from switchsum.protocol.errors import CollectiveTimeout, NoCapacity, RankTaken, SwitchsumError, UnknownJob, UsageError
from switchsum.torch.gloo import is_loopback, own_address

SWITCH_SLOTS: Final = 1024
"""Slots of a switch (p4src/config.p4)."""
GROUP_SLOTS: Final = 64, 4
"""Most and fewest slots of a sub-group's job."""
GROUP_SHARE: Final = 8
"""A sub-group takes this part of the slots that are free, so that there is room for about 35 of them."""
RETRY_S: Final = 0.2
LEAVE_S: Final = 5.0
"""How long the others may take to leave before their job, or their switch, ends."""
_PLACE: Final = "switchsum/place"
_OPTION: Final = " (init_process_group(timeout=...) changes how long)"
_sharing = threading.Lock()
"""Held while one of this process's groups looks how many slots are free, and takes some."""

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a job is."""

    controller: str
    """The controller's address."""
    link: str | None
    """How workers reach the switch; None: each by its own SWITCHSUM_LINK."""
    job: str
    is_ours: bool
    """Whether the job was made for the group, and goes with it."""
    switch: str | None = None
    """P4Runtime address of the switch that rank 0 has started for the group; None: it has started none."""
    beacon: str | None = None
    """An address of one of several machines; the way to it is the way to the others."""


class Services(Protocol):
    """A switch and a controller that were started for a group."""

    controller: str
    """The controller's address."""
    link: str
    """How workers reach the switch."""
    p4runtime: str
    """Where the switch serves P4Runtime."""

    def stop(self) -> None:
        """End both, when their workers have left."""
        ...


@dataclass(frozen=True, slots=True)
class Meeting:
    """One rank's view of the group that meets."""

    store: dist.Store
    rank: int
    size: int
    timeout_s: float


def meet(meeting: Meeting, start: Callable[[], Services]) -> tuple[Place, Services | None]:
    """Agree on controller and job; rank 0 decides, and starts its own services where SWITCHSUM_CONTROLLER is not set.

    Raises CollectiveTimeout with the ranks that have not come, UsageError where several machines have no controller,
    and on every rank what rank 0 failed with.
    """
    store = meeting.store
    # Rank 0 waits for the machine alone, and finds the address where there is a machine.
    store.set(f"switchsum/address/{meeting.rank}", own_address(_hosts()))
    store.set(f"switchsum/machine/{meeting.rank}", this_machine())
    services = None
    if meeting.rank == 0:
        try:
            machines = _gather(meeting, "switchsum/machine")
            place, services = _decide(machines, start)
            if len(set(machines)) > 1:
                place = replace(place, beacon=_beacon(meeting))
        except SwitchsumError as error:
            store.set(_PLACE, _as_json(error))
            raise
        store.set(_PLACE, json.dumps(asdict(place)))
        return place, services
    if not os.environ.get("SWITCHSUM_CONTROLLER"):
        warm_up("shm:")  # while rank 0 starts a switch: what has to be compiled is, on another core
    # Rank 0 waits as long, and says what it has waited for in vain.
    what = f"rank 0 of {meeting.size}, which looks for switch and controller or starts them,"
    found = json.loads(_get(store, _PLACE, meeting.timeout_s + 5, what, [0]))
    _raise_if_error(found)
    return Place(**found), None


def gloo_address(place: Place) -> str:
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


def open_job(meeting: Meeting, place: Place) -> Communicator:
    """Make the group's job, if it is the group's own, and join it."""
    if place.switch is not None:
        note_launcher(place.controller, "rank 0 of the process group", place.switch)
    link = os.environ.get("SWITCHSUM_LINK") or place.link or "udp:" + place.controller.rpartition(":")[0]
    key = f"switchsum/job/{place.job}"
    if meeting.rank == 0:
        try:
            if place.is_ours:
                warm_up(link)  # a job that nobody joins for as long as this may take would end
                _make_job(place, meeting)
        except SwitchsumError as error:
            meeting.store.set(key, _as_json(error))
            raise
        meeting.store.set(key, "{}")
    else:
        _raise_if_error(
            json.loads(_get(meeting.store, key, meeting.timeout_s, "rank 0, which makes the group's job,", [0]))
        )
    deadline = time.monotonic() + meeting.timeout_s
    while True:
        try:
            return connect(
                controller=place.controller,
                job=place.job,
                rank=meeting.rank,
                world_size=meeting.size,
                link=link,
                timeout_s=meeting.timeout_s,
            )
        except RankTaken:  # by an incarnation that was killed, until the controller finds it lost
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def _make_job(place: Place, meeting: Meeting) -> None:
    """Make a group's own job."""
    remove_job(place)  # an incarnation that was killed
    if "/" not in place.job:
        _create_job(place, meeting, None)
        return
    most, fewest = GROUP_SLOTS
    with _sharing:
        jobs = _call(place, "ListJobs", rpc.Empty(), rpc.JobList).jobs
        slots = max(fewest, min(most, (SWITCH_SLOTS - sum(job.slot_count for job in jobs)) // GROUP_SHARE))
        while True:
            try:
                _create_job(place, meeting, slots)
                return
            except NoCapacity:  # other processes make groups as well
                if slots == fewest:
                    raise
                slots = max(fewest, slots // 2)


def _create_job(place: Place, meeting: Meeting, slots: int | None) -> None:
    # Rank 0 removes it; ephemeral, for rank 0 may be killed.
    request = rpc.CreateJobRequest(
        job=place.job, workers=meeting.size, slots=slots, timeout_s=meeting.timeout_s, ephemeral=True
    )
    _call(place, "CreateJob", request, rpc.JobInfo)


def await_leaving(place: Place) -> None:
    """Wait until nobody is in a job any more, for a few seconds: some may still need an answer of the switch."""
    deadline = time.monotonic() + LEAVE_S
    while time.monotonic() < deadline:
        job = _call(place, "ShowJob", rpc.JobRequest(job=place.job), rpc.JobInfo)
        if not any(member.state in ("joined", "seen", "admitted") for member in job.members):
            return
        time.sleep(0.02)


def remove_job(place: Place) -> None:
    """Remove a job, whoever is still in it, if there is one."""
    try:
        _call(place, "RemoveJob", rpc.RemoveJobRequest(job=place.job, force=True), rpc.Empty)
    except UnknownJob:
        pass


def job_name() -> str:
    """Return a name for the job of this training: the same after torchrun has restarted it."""
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if run != "none":
        return f"torch-{run}"
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return f"torch-{os.environ['MASTER_ADDR']}-{os.environ['MASTER_PORT']}"
    return f"torch-{secrets.token_hex(4)}"


def this_machine() -> str:
    """Name what workers must share to meet at a switch in shared memory: kernel, network namespace and /tmp.

    Containers on the network of their host share the first two.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    place = os.stat("/tmp")
    return f"{boot} {os.readlink('/proc/self/ns/net')} {place.st_dev}:{place.st_ino}"


def _decide(machines: list[str], start: Callable[[], Services]) -> tuple[Place, Services | None]:
    """Return where the job is to be."""
    given = os.environ.get("SWITCHSUM_JOB")
    controller = os.environ.get("SWITCHSUM_CONTROLLER")
    if controller:
        link = os.environ.get("SWITCHSUM_LINK", "")
        shared = link if link.startswith("udp:") or len(set(machines)) == 1 else None
        return Place(controller=controller, link=shared or None, job=given or job_name(), is_ours=not given), None
    if len(set(machines)) > 1:
        raise UsageError(
            f"{len(machines)} ranks are on {len(set(machines))} machines, and SWITCHSUM_CONTROLLER is not set: start "
            "`switchsum switch --udp 0.0.0.0:21333` and `switchsum controller --listen 0.0.0.0:9560` on one of them, "
            "and torchrun with SWITCHSUM_CONTROLLER=HOST:9560 SWITCHSUM_LINK=udp:HOST on all"
        )
    services = start()
    link, switch = services.link, services.p4runtime
    return Place(controller=services.controller, link=link, job=job_name(), is_ours=True, switch=switch), services


def _beacon(meeting: Meeting) -> str | None:
    """Return the address of the first rank that has one which others can reach."""
    keys = [f"switchsum/address/{rank}" for rank in range(meeting.size)]
    addresses = (meeting.store.get(key).decode() for key in keys if meeting.store.check([key]))
    return next((address for address in addresses if not is_loopback(address)), None)


def _gather(meeting: Meeting, prefix: str) -> list[str]:
    """Return what every rank has set; raises CollectiveTimeout with those that have not."""
    deadline = time.monotonic() + meeting.timeout_s
    keys = [f"{prefix}/{rank}" for rank in range(meeting.size)]
    while time.monotonic() < deadline and not meeting.store.check(keys):
        time.sleep(0.01)
    missing = [rank for rank, key in enumerate(keys) if not meeting.store.check([key])]
    if missing:
        names = ", ".join(map(str, missing))
        text = f"rank {names} of {meeting.size} has not come to the process group within {meeting.timeout_s:g} s"
        raise CollectiveTimeout(text + _OPTION, missing)
    return [meeting.store.get(key).decode() for key in keys]


def _get(store: dist.Store, key: str, timeout_s: float, what: str, missing: list[int]) -> str:
    """Return a key's value; raises CollectiveTimeout.

    Without blocking in the store, which other threads use as well.
    """
    deadline = time.monotonic() + timeout_s
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise CollectiveTimeout(f"no word of {what} for {timeout_s:g} s{_OPTION}", missing)
        time.sleep(0.005)
    value: bytes = store.get(key)
    return value.decode()


def _as_json(error: SwitchsumError) -> str:
    """Write an error for the other ranks."""
    return json.dumps({"error": str(error), "kind": type(error).__name__})


def _raise_if_error(found: dict[str, Any]) -> None:
    """Raise what rank 0 has failed with."""
    if "error" in found:
        named = rpc_codec.error_from_details(f"{found['kind']}: {found['error']}")
        raise type(named)(f"rank 0: {found['error']}") if type(named) is not CollectiveTimeout else named


def _call(place: Place, method: str, request: object, reply: type[Reply]) -> Reply:
    with ControllerClient(place.controller, timeout_s=CALL_S, waits=True) as client:
        return client.call(method, request, reply, patience_s=start_limit(ANSWER_S))
