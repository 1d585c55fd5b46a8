"""Process groups from start to end: where they meet, and what is started for them."""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import os
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from switchsum.torch import flight_recorder, mixed
from switchsum.torch.group import GroupStatistics, SwitchGroup
from switchsum.torch.lane_choice import asked_for
from switchsum.torch.members import LONGEST, Made, Members, fitting, listed
from switchsum.torch.rendezvous import JobAddress, await_leaving, gloo_address, meet, open_job, remove_job
from switchsum.torch.services import LocalServices
from switchsum.torch.store import Meeting, times_come
from switchsum_host.api.communicator import Communicator
from switchsum_protocol.errors import CollectiveTimeout, ControllerUnreachable, SwitchsumError, UsageError


@dataclass(slots=True)
class Base:
    """The job's place, services and sub-groups, which a group shares with its sub-groups."""

    place: JobAddress
    services: LocalServices | None
    """Services that this rank has started."""
    made: Made
    """The groups of some ranks that this rank has made."""
    joining: list[threading.Thread] = field(default_factory=list)
    """Threads of those of them that were closed while they joined their jobs; they end in a moment."""
    owner: int = field(default_factory=os.getpid)
    """The process that closes the group; a forked one closes nothing.  0: it is closed."""


class _Group(SwitchGroup):
    """A group that knows where its sub-groups meet."""

    base: Base
    is_of_all = False
    """True: the group has all ranks."""


def create(options: Any, backend_options: Any) -> SwitchGroup:
    """Make a process group as torch asks for it; raises what `rendezvous.meet` and `switchsum.connect` do.

    The group of all ranks joins its job at once, so that mistakes show at once, sub-groups theirs in the background.
    """
    if backend_options is not None:
        raise UsageError(f"the backend has no options: pg_options must be None, not {backend_options!r}")
    parent, ranks = _parent(), list(options.global_ranks_in_group)
    members = parent.base.made.note(ranks) if parent is not None else None
    store = _store_of(options, parent, members)
    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    meeting = Meeting(store, rank, size, timeout.total_seconds())
    try:
        asked_for()  # what the environment asks for is refused before anything is started
    except UsageError as error:
        meeting.tell_all(error)
        raise
    others = mixed.others(options, store)
    if size == 1:
        return SwitchGroup(store, rank, size, timeout, _nothing, lambda: mixed.close(others), others=others)
    if parent is not None and members is not None:
        job = members.job(parent.base.place.job)
        place = dataclasses.replace(parent.base.place, job=job, is_ours=True, is_of_some=True)
        base = Base(place, None, parent.base.made, parent.base.joining)
        connect = lambda: _open_job(meeting, base, members)  # noqa: E731
    else:
        try:
            base = Base(*meet(meeting), Made(store, rank))
        except Exception as error:
            meeting.tell_all(error)
            raise
        connect = lambda: open_job(meeting, base.place)  # noqa: E731
    group = _Group(
        store,
        rank,
        size,
        timeout,
        connect,
        lambda: _close(meeting, base, others, group),
        gloo_address(base.place),
        others,
        meeting.closed,
    )
    group.base, group.recorder = base, flight_recorder.wanted()
    group.is_of_all = parent is None
    group.flight = flight_recorder.watch(store, rank) if parent is None else parent.flight
    atexit.register(_close_at_exit, weakref.ref(group))
    if parent is None:
        _join(group)
    else:
        group.connect_in_background()
    return group


def form(store: dist.Store, rank: int, size: int, timeout: timedelta, name: str) -> SwitchGroup:
    """Make a group that torch does not know of, of whoever meets in a store that nobody has met in before.

    `name` tells its job from those of others that the same ranks have; the same on all ranks.
    """
    if size == 1:
        return SwitchGroup(store, rank, size, timeout, _nothing, bool)
    meeting = Meeting(store, rank, size, timeout.total_seconds())
    place, services = meet(meeting)
    job = fitting(f"{place.job}/{hashlib.sha256(name.encode()).hexdigest()[:12]}", LONGEST)
    base = Base(dataclasses.replace(place, job=job), services, Made(store, rank))
    group = _Group(
        store,
        rank,
        size,
        timeout,
        lambda: open_job(meeting, base.place),
        lambda: _close(meeting, base, {}, group),
        gloo_address(base.place),
        closing=meeting.closed,
    )
    group.base, group.recorder = base, flight_recorder.wanted()
    group.flight = None
    atexit.register(_close_at_exit, weakref.ref(group))
    _join(group)
    return group


def _join(group: _Group) -> None:
    """Join the group's job, or leave nothing behind."""
    try:
        group.connect()
    except BaseException as error:
        if isinstance(error, ControllerUnreachable):  # it has no job to remove, and would be waited for once more
            group.base.place = dataclasses.replace(group.base.place, is_ours=False)
        group.shutdown()
        raise


def _store_of(options: Any, parent: _Group | None, members: Members | None) -> dist.Store:
    """Return where the ranks of a group meet, and no others.

    Names of groups come again after destroy_process_group, and after torchrun's restarts, in the same store; those of
    some ranks may be other ranks', too.  The store counts, and not this process: a rank of a new group may be a process
    that has replaced a lost one, and has made no group before.
    """
    if parent is not None and members is not None:
        return dist.PrefixStore(f"group/{members.key}/", parent.get_group_store())
    name = f"{options.group_id}/{listed(options.global_ranks_in_group)}" if options.global_ranks_in_group else ""
    restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    times = times_come(options.store, f"{restarts}/{name}/{options.group_rank}")
    return dist.PrefixStore(f"{restarts}/{times}/{name}/", options.store)


def _open_job(meeting: Meeting, base: Base, members: Members) -> Communicator:
    """Join the job of a group of some ranks; raises CollectiveTimeout with what those have made who do not come."""
    try:
        return open_job(meeting, base.place)
    except CollectiveTimeout as error:
        advice = "call new_group with the same list, as often, on every rank that is in it"
        text = f"{base.made.compared(members, error.missing)}: {advice} ({error})"
        raise CollectiveTimeout(text, error.missing) from None


def statistics(group: dist.ProcessGroup | None = None) -> GroupStatistics:
    """Return what a process group has done so far.

    Args:
        group: A process group of the backend "switchsum"; None: that of all ranks.

    Returns:
        A `GroupStatistics`.

    Raises:
        UsageError: The group has another backend.

    Example:
        >>> import torch.distributed as dist
        >>> import switchsum.torch
        >>> dist.init_process_group("switchsum", store=dist.HashStore(), rank=0, world_size=1)
        >>> switchsum.torch.statistics().over_gloo
        {}
        >>> dist.destroy_process_group()

    """
    group = group or dist.group.WORLD
    if not isinstance(group, SwitchGroup):
        raise UsageError("this is not a process group of the backend 'switchsum'")
    return group.statistics()


def _parent() -> _Group | None:
    """Return the group of all ranks, if it is one of ours."""
    world = dist.group.WORLD if dist.is_initialized() else None
    return world if isinstance(world, _Group) else None


def _nothing() -> Communicator:
    raise UsageError("a group of one rank has no communicator: it has nothing to add")


def _close(meeting: Meeting, base: Base, others: Mapping[str, dist.ProcessGroup], group: _Group) -> None:
    """Remove the group's job, and end what was started for it; once."""
    if base.owner != os.getpid():
        return
    base.owner = 0
    if group.is_of_all and group.flight is not None:
        group.flight.stop()
    if group.membership.joining is not None:
        base.joining.append(group.membership.joining)
    if group.is_of_all:  # a thread that is left in a call of gRPC would abort the process when Python ends
        for thread in base.joining:
            thread.join()
    if flight_recorder.recorder is not None:
        flight_recorder.recorder.forget(group)
    mixed.close(others)
    services, base.services = base.services, None
    if services is not None:
        services.stop()
    elif base.place.is_ours and meeting.rank == 0 and not base.place.is_of_some:  # those end with their last member
        try:
            await_leaving(base.place)
            remove_job(base.place)
        except SwitchsumError:
            pass  # the controller is gone, and the job with it


def _close_at_exit(reference: weakref.ref[_Group]) -> None:
    """Leave, where a script ends without destroy_process_group, so that no job stays behind."""
    group = reference()
    if group is not None:
        group.shutdown()
