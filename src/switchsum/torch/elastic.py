"""Ranks that come and go: a group that loses ranks and takes in new ones at an outer step, while nobody starts again.

A new rank makes a job of two, named after the group's job, and waits in it.  Rank 0 of the group looks for these jobs,
and joins each of them as the other rank.  It tells the new rank its number and how many ranks there will be.
"""

from __future__ import annotations

import io
import os
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import torch

from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.connect import connect, launcher_variables
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import (
    CollectiveTimeout,
    NotAdmitted,
    RankTaken,
    SwitchsumError,
    UsageError,
    WorkerLost,
    WorldSizeMismatch,
)
from switchsum_protocol.states import MemberState
from switchsum_switch.notices import ranks_of, say, waiting_for
from switchsum_switch.process.runtime_directory import controller_address

WAITING: Final = "+"
"""Text between the name of a group's job and the name of the job in which a new rank waits."""
WAITING_SLOTS: Final = 4
"""Slots of the job of two in which a new rank is told its number."""
PATIENCE_S: Final = 60.0
RETRY_S: Final = 0.1

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAddress:
    """The controller, job and link of a group."""

    controller: str
    job: str
    link: str
    timeout_s: float | None

    def ask(self, call: Callable[[ControllerClient], Reply]) -> Reply:
        """Ask the controller; raises ControllerUnreachable, or what it refuses with."""
        with ControllerClient(self.controller) as client:
            return call(client)

    def connect(self, rank: int, world_size: int, job: str = "", **options: Any) -> Communicator:
        """Join the group's job, or another one; raises what `switchsum.connect` does."""
        return connect(
            controller=self.controller,
            job=job or self.job,
            rank=rank,
            world_size=world_size,
            link=self.link,
            **{"timeout_s": self.timeout_s, **options},
        )

    def show(self) -> rpc.JobInfo:
        """Return what the controller knows of the group's job."""
        return self.ask(lambda client: client.show_job(rpc.JobRequest(job=self.job)))

    def resize(self, workers: int) -> None:
        """Give the job another size, under a new epoch; its members are cut off and join again."""
        request = rpc.ResizeJobRequest(job=self.job, workers=workers, force=True)
        self.ask(lambda client: client.resize_job(request))

    def tickets(self) -> list[str]:
        """Return the jobs of ranks that wait to be taken in, in the order in which they came."""
        jobs = self.ask(lambda client: client.list_jobs()).jobs
        found = [job for job in jobs if job.job.startswith(self.job + WAITING) and _is_waited_in(job)]
        return [job.job for job in sorted(found, key=lambda job: job.number)]


class ElasticGroup:
    """Ranks of a job, some of whom may die, and to whom others may come, while the rest train on.

    For `DiLoCo(..., group=ElasticGroup())`: at an outer step a rank that has died is left out, and one that is new gets
    the model and joins.  Arguments that are not given come from the environment, as in `switchsum.connect`.  A process
    without a rank, in arguments and environment, is a new one.  It asks to be taken in when it is ready: when it makes
    its `DiLoCo`, or first needs `communicator`.  Until then it holds nobody up.

    Example:
        >>> group = switchsum.torch.ElasticGroup()
        >>> diloco = switchsum.torch.DiLoCo(model, optimizer, group=group)
        >>> while diloco.step < 1000:
        ...     train_a_step()
        >>> diloco.finish()

    """

    def __init__(
        self,
        *,
        controller: str | None = None,
        job: str | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        link: str | None = None,
        timeout_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Join the job as one of its first ranks, or look for it as a new one, which joins later.

        Args:
            controller: Address of the controller.
            job: Its name.
            rank: Of one of the first ranks; None, where no launcher (switchsum run, torchrun, mpirun, srun) has set
                one in the environment: this rank is new.
            world_size: How many first ranks there are.
            link: How this rank reaches the switch.
            timeout_s: How long to wait for other ranks, here and in collectives; the job's own if not given.
            patience_s: How long the others wait for a new rank, from when it is told its number until it trains with
                them, before they do without.

        Raises:
            CollectiveTimeout: first ranks are missing.
            UsageError: a job or link is not named; and what `switchsum.connect` raises.

        """
        self.place = JobAddress(
            controller=controller or os.environ.get("SWITCHSUM_CONTROLLER") or controller_address(),
            job=_named("job", job, "SWITCHSUM_JOB"),
            link=_named("link", link, "SWITCHSUM_LINK"),
            timeout_s=timeout_s,
        )
        self._patience_s = patience_s
        rank_variable, size_variable = launcher_variables()
        rank = rank if rank is not None else _number(rank_variable)
        world_size = world_size if world_size is not None else _number(size_variable)
        if rank is not None and world_size is None:
            raise UsageError(f"no world_size: pass ElasticGroup(world_size=...) or set {size_variable}")
        self._communicator = None if rank is None else self.place.connect(rank, world_size or 1)
        if self._communicator is None:
            self.place.show()  # a job that is not there shows now, and not after the model was built

    @property
    def communicator(self) -> Communicator:
        """The communicator of the ranks; a new rank waits here until the others take it in.

        Raises CollectiveTimeout when nobody does.
        """
        if self._communicator is None:
            self._communicator = self._enter()
        return self._communicator

    @communicator.setter
    def communicator(self, communicator: Communicator) -> None:
        self._communicator = communicator

    @property
    def is_in(self) -> bool:
        """Whether this rank has a number: a new one has none until it makes its `DiLoCo`."""
        return self._communicator is not None

    @property
    def rank(self) -> int:
        """The number of this rank, which changes when others go; raises UsageError while it has none."""
        return self._own().rank

    @property
    def world_size(self) -> int:
        """Number of ranks at the moment; raises UsageError while this one is not among them."""
        return self._own().world_size

    def _own(self) -> Communicator:
        if self._communicator is None:
            raise UsageError("this rank is new and not in the group yet: DiLoCo(..., group=group) joins it")
        return self._communicator

    def close(self) -> None:
        """Leave."""
        if self._communicator is not None:
            self._communicator.close()

    def waiting(self) -> int:
        """Return how many new ranks wait, as far as rank 0 can see; other ranks see none."""
        if self.rank:
            return 0
        try:
            return len(self.place.tickets())
        except SwitchsumError:  # a controller that is away: they wait until it is back
            return 0

    def ask(self) -> Handle:
        """Begin to tell every rank how many new ones wait; every rank calls it."""
        return self.communicator.allreduce_async(np.array([self.waiting()], np.int64), "max")

    def give(self, state: dict[str, Any], root: int) -> dict[str, Any]:
        """Return the state that the rank `root` has given; every rank calls it."""
        written = io.BytesIO()
        torch.save(state if self.rank == root else {}, written)
        size = np.array([written.tell()], np.int64)
        self.communicator.broadcast(size, root)
        content = np.zeros(int(size[0]), np.uint8)
        if self.rank == root:
            content[:] = np.frombuffer(written.getbuffer(), np.uint8)
        self.communicator.broadcast(content, root)
        given: dict[str, Any] = torch.load(io.BytesIO(content.tobytes()), weights_only=True)
        return given

    def furthest(self, progress: tuple[int, int]) -> int:
        """Return the first of the ranks that have come furthest; every rank calls it."""
        everybody = self.communicator.allgather(np.array(progress, np.int64)).reshape(self.world_size, -1)
        return max(range(self.world_size), key=lambda rank: (*map(int, everybody[rank]), -rank))

    def leave_out(self) -> None:
        """Go on without the ranks that have died; every other rank calls it."""
        before = self.world_size
        self.communicator = self.communicator.reform()
        say(f"rank {self.rank}: {before - self.world_size} of {before} ranks have died; {self.world_size} go on")

    def take_in(self) -> None:
        """Take in new ranks; every rank calls it, and may find that there are none any more.

        New ranks have the numbers behind those of the others.
        """
        epoch, rank, size = self.place.show().epoch, self.rank, self.world_size
        invited = np.zeros(1, np.int64)
        if rank == 0:
            invited[0] = self._invite(size, epoch)
        try:
            self.communicator.allreduce(invited, "max")
            if not invited[0]:
                return
            if rank == 0:
                self.place.resize(size + int(invited[0]))
        except NotAdmitted:
            pass  # rank 0, which had the answer first, has given the job its size
        self.communicator.close()
        deadline = time.monotonic() + self._patience_s
        new = ranks_of(self.place.job, list(range(size, size + int(invited[0]))))
        try:
            with waiting_for(f"{new} to come in, for up to {self._patience_s:g} s (ElasticGroup(patience_s=...))"):
                self.communicator = self._join_after(epoch, rank)
                self._greet(deadline)
        except (CollectiveTimeout, WorkerLost, NotAdmitted):  # the last two where another rank has given up before
            say(f"rank {rank}: {new}: no new rank has come after all; {size} ranks go on")
            self.communicator.close()
            if rank == 0:
                self.place.resize(size)
            self.communicator = self._join_after(epoch, rank, size)

    def _greet(self, deadline: float) -> None:
        """Wait until every rank has come this far; raises CollectiveTimeout with those that have not in time."""
        handle, left_s = self.communicator.barrier_async(label="new ranks come in"), deadline - time.monotonic()
        if not handle.wait_for(left_s):
            raise handle.overdue(self._patience_s)
        handle.wait()

    def _invite(self, size: int, epoch: int) -> int:
        """Tell the ranks that wait their numbers; return how many have heard it."""
        invited = 0
        for ticket in self.place.tickets():
            try:
                with self.place.connect(0, 2, ticket, timeout_s=self._patience_s) as meeting:
                    meeting.broadcast(np.array([size + invited, epoch], np.int64), 0)
            except SwitchsumError as error:
                say(f"a new rank has gone again: {error}")
            else:
                invited += 1
        return invited

    def _enter(self) -> Communicator:
        """Wait until the others take this rank in."""
        ticket = f"{self.place.job}{WAITING}{secrets.token_hex(4)}"
        timeout_s = self.place.timeout_s or self.place.show().timeout_s
        request = rpc.CreateJobRequest(job=ticket, workers=2, slots=WAITING_SLOTS, timeout_s=timeout_s, ephemeral=True)
        self.place.ask(lambda client: client.create_job(request))
        sent = np.zeros(2, np.int64)
        with self.place.connect(1, 2, ticket) as meeting:
            meeting.broadcast(sent, 0)
        deadline = time.monotonic() + self._patience_s
        self.communicator = self._join_after(int(sent[1]), int(sent[0]))
        self._greet(deadline)
        return self.communicator

    def _join_after(self, epoch: int, rank: int, size: int | None = None) -> Communicator:
        """Join the job under an epoch that follows one, once it has `size` ranks if that is given.

        Raises CollectiveTimeout when patience has ended.
        """
        deadline = time.monotonic() + self._patience_s
        refused = "it has no other size yet"
        while (left_s := deadline - time.monotonic()) > 0:
            late = threading.Event()
            timer = threading.Timer(left_s, late.set)
            timer.start()
            try:
                job = self.place.show()
                if job.epoch != epoch and size in (None, job.workers):
                    return self.place.connect(rank, job.workers, cancelled=late)
            except (WorldSizeMismatch, RankTaken, NotAdmitted, UsageError) as error:
                refused = str(error)
            finally:
                timer.cancel()
            time.sleep(RETRY_S)
        raise CollectiveTimeout(f"rank {rank} could not join job {self.place.job!r} again: {refused}")


def _is_waited_in(job: rpc.JobInfo) -> bool:
    """Return whether a new rank waits in a job of two, and lives."""
    return any(member.rank == 1 and member.state in (MemberState.JOINED, MemberState.SEEN) for member in job.members)


def _named(name: str, value: str | None, variable: str) -> str:
    """Return an argument, or what the environment has in its place; raises UsageError."""
    found = value or os.environ.get(variable)
    if not found:
        raise UsageError(f"no {name}: pass ElasticGroup({name}=...) or set {variable}, as `switchsum run` does")
    return found


def _number(variable: str) -> int | None:
    """Return a number from the environment; raises UsageError."""
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal():
        raise UsageError(f"{variable} is {text!r}, which is no number")
    return int(text)
