"""Operations that may go on without some ranks: who takes part, and in which job.

The ranks ask the controller before each such operation, and it decides once (its `jobs/agreement.py`).  If all
take part, the operation is one of the communicator itself.  Else those who take part have a job of their own, and a
communicator for it, which they keep for the next time.

A rank that was absent takes part in the next operation.  Before that begins, it gets what it lacks (`missed.py`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypedDict

from switchsum_protocol.agreement_rpc import GO_ON, KEEP, AgreeReply, AgreeRequest, Terms
from switchsum_protocol.errors import (
    CollectiveTimeout,
    ControllerUnreachable,
    OperationMismatch,
    SumOverflow,
    SwitchsumError,
    UsageError,
    WorkerLost,
)

from .collectives import Options
from .missed import Kept, Model, QuorumSum, SharedArrays, Values
from .operation_queue import OperationQueue, check_process

RANKS: Final = re.compile(r"(\branks? )(\d+(?:(?:, | and )\d+)*)")
NUMBER: Final = re.compile(r"\d+")
GROUP: Final = re.compile(r"'[^']*/quorum-\d+'")
"""How errors name ranks, and the job of a group of them."""
ASK_S: Final = 1.0
"""Longest single call that asks who takes part."""
AT_ONCE_S: Final = 0.001
"""A call that brings no decision sooner than this was not made to wait: the controller has many that do."""
PAUSE_S: Final = 0.001
"""Pause after such a call, for each rank: all ranks together make a thousand such calls a second."""


class Combines(Protocol):
    """What these operations need of a communicator."""

    rank: int
    world_size: int
    queue: OperationQueue
    connect_again: Callable[..., Any] | None

    @property
    def begun(self) -> int:
        """Collectives that it has begun."""
        ...

    @property
    def quorums(self) -> Quorums:
        """Its operations that may go on without some ranks."""
        ...

    def allreduce(
        self,
        array: Values,
        op: str = "sum",
        *,
        lanes: str = "int32",
        narrow: bool = False,
        saturate: bool = False,
        block: int | str | None = None,
        label: str = "",
    ) -> object:
        """Combine an array over all ranks, in place."""
        ...

    def broadcast(self, array: Values, root: int = 0, *, label: str = "") -> object:
        """Give all ranks the root's array."""
        ...

    def close(self, *, failed: bool = False) -> None:
        """Leave the job."""
        ...


class How(TypedDict, total=False):
    """Options of `Communicator.allreduce`, which says what each does."""

    lanes: str
    narrow: bool
    saturate: bool
    block: int | str | None
    label: str


class QuorumHow(How):
    """Those of one that may go on without some ranks."""

    quorum: float
    patience_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Who takes part in an operation that is about to begin."""

    number: int
    ranks: tuple[int, ...]
    communicator: Combines
    """Of these ranks, in their order."""
    was_given_model: bool
    """As in `QuorumSum`."""
    is_whole: bool
    """A rank has asked for all that are not gone: nothing is added, and all have the same results now."""


def terms_of(quorum: float | None, patience_s: float | None, keep: int = KEEP) -> Terms:
    """Return terms that make sense; raises UsageError."""
    if quorum is None or patience_s is None:
        raise UsageError("quorum and patience_s go together: give both, or neither")
    terms = Terms(quorum=quorum, patience_s=patience_s, keep=keep)
    terms.check()
    return terms


def allreduce(
    comm: Combines,
    array: Values,
    how: Options,
    block: int | str | None,
    quorum: float | None,
    patience_s: float | None,
) -> QuorumSum:
    """Agree on who takes part, and combine an array over these ranks in place.

    Raises what `Communicator.allreduce` and `Quorums.agree` do.
    """
    terms, quorums = terms_of(quorum, patience_s), comm.quorums
    with quorums.turn:
        agreed = quorums.agree(terms)
        if agreed.is_whole:
            return quorums.result(agreed, array)
        try:
            with quorums.among(agreed.ranks):
                agreed.communicator.allreduce(
                    array,
                    how.operator,
                    lanes=how.lanes,
                    narrow=how.narrow,
                    saturate=how.saturate,
                    block=block,
                    label=how.label,
                )
        except SumOverflow:  # on all ranks, with the nearest values
            quorums.finish(agreed, array, terms.keep)
            raise
        quorums.finish(agreed, array, terms.keep)
    return quorums.result(agreed, array)


class Quorums:
    """One rank's operations that may go on without some ranks."""

    def __init__(self, comm: Combines) -> None:
        """Take a communicator that `connect` has made; raises UsageError."""
        if comm.connect_again is None or not hasattr(comm.queue.membership, "ask"):
            raise UsageError(
                "operations with a quorum need a communicator of switchsum.connect, and have none in virtual time"
            )
        self._comm = comm
        self._membership: Any = comm.queue.membership
        self._groups: dict[str, Combines] = {}
        self._kept = Kept(comm.rank)
        self._terms: Terms | None = None
        self._missed: list[QuorumSum] = []
        """Results that this rank has lacked, and that no call has returned yet."""
        self.turn = threading.Lock()
        """Held by the thread whose operation it is."""
        self.after = 0
        """Number of the latest operation whose result this rank has."""
        self.waited_s = 0.0
        """Seconds spent until it was known who takes part, without the joining of new groups."""
        self.joined_s = 0.0
        """Seconds spent on joining groups."""

    def share(self, *arrays: Values) -> None:
        """Have a rank that lacks more results than members keep go on with the others' model, without WorkerLost.

        All ranks call it, before the first operation, with arrays that are the same on all ranks once the results so
        far have been applied: weights, and what an optimizer keeps.  A rank that is so late finds them overwritten when
        its next operation returns, and nothing in `missed`.  The array that it has called that operation with takes
        part in it.

        Args:
            arrays: They are read and overwritten in place, within operations.

        Raises:
            UsageError: Something is no array, or cannot be written.

        """
        self.give_model(SharedArrays(arrays))

    def give_model(self, model: Model) -> None:
        """Do what `share` does with whatever a model is."""
        self._kept.model = model

    def agree(self, terms: Terms, *, is_whole: bool = False) -> Agreed:
        """Return who takes part in the next operation, when that is known and this rank has what it has missed.

        Args:
            terms: The same on all ranks.
            is_whole: Wait for all ranks that are not gone.  Then no array is added, and `finish` is not called.

        Raises:
            CollectiveTimeout: Too few ranks have come in time; `missing` says which have not.
            WorkerLost: This rank lacks results that the others do not keep any more, and there is no model; or too few
                ranks are left.
            OperationMismatch: Another rank has asked on other terms.
            UsageError: The job does not allow such a quorum, or another rank has given another model.
            SwitchsumError: What `connect` and `allreduce` raise.

        """
        began, self._terms = time.monotonic(), terms
        model = self._kept.model
        terms = replace(terms, gives_model=model is not None, model=model.record.text if model is not None else "")
        reply = self._ask(terms, is_whole)
        self.waited_s += time.monotonic() - began
        absent = set(reply.absent)
        ranks = tuple(rank for rank in range(self._comm.world_size) if rank not in absent)
        for name in self._groups.keys() - set(reply.groups):
            self._close_group(name, failed=False)
        comm = self._group(reply.group, ranks) if absent else self._comm
        behind = {rank: after for rank, after in reply.behind}  # noqa: C416 - pairs are lists
        with self.among(ranks):
            missed, was_given_model = self._kept.catch_up(comm, ranks, behind, reply.number, terms.keep)
        if was_given_model:
            self._missed.clear()
        self._missed += [one for one in missed if one.number > self.after]  # one that asks again has them
        self.after = reply.number if reply.is_whole else reply.number - 1
        return Agreed(
            number=reply.number,
            ranks=ranks,
            communicator=comm,
            was_given_model=was_given_model,
            is_whole=reply.is_whole,
        )

    def take_missed(self) -> tuple[QuorumSum, ...]:
        """Return the results that this rank has lacked and no call has returned yet, in their order.

        An `allreduce` with a quorum returns them in `missed`, and so does `end`.  If it raises instead, SumOverflow for
        example, they are here, and else in the next result.  Each is returned once.

        Returns:
            Results of operations before the one that has raised.

        Example:
            >>> from switchsum import SumOverflow
            >>> def add(comm, array, apply):
            ...     try:
            ...         total = comm.allreduce(array, quorum=0.75, patience_s=0.1)
            ...     except SumOverflow:
            ...         for missed in comm.quorums.take_missed():
            ...             apply(missed.array)
            ...         apply(array)  # the nearest values

        """
        missed, self._missed = tuple(self._missed), []
        return missed

    @contextmanager
    def among(self, ranks: tuple[int, ...]) -> Iterator[None]:
        """Have errors of a group of ranks name these by their numbers in the job, and say how to go on without one."""
        try:
            yield
        except (WorkerLost, CollectiveTimeout, OperationMismatch) as error:
            if len(ranks) < self._comm.world_size:
                raise _of_job(error, ranks, self._membership.job) from error
            if not isinstance(error, WorkerLost) or error.advice:
                raise
            raise WorkerLost(str(error), error.rank, GO_ON) from error

    def finish(self, agreed: Agreed, result: Values, keep: int) -> None:
        """Note the result of an operation, and keep a copy for ranks that were absent."""
        self._kept.keep(QuorumSum(array=result.copy(), number=agreed.number, ranks=agreed.ranks), keep)
        self.after = agreed.number

    def result(self, agreed: Agreed, array: Values) -> QuorumSum:
        """Return what a caller gets of an operation that has ended."""
        return QuorumSum(
            array=array,
            number=agreed.number,
            ranks=() if agreed.is_whole else agreed.ranks,
            missed=self.take_missed(),
            was_given_model=agreed.was_given_model,
        )

    def end(self) -> tuple[QuorumSum, ...]:
        """Wait for all ranks that are not gone, as at the end of a training; return what this rank has missed.

        A rank that still calls `Communicator.allreduce` has nothing added there, and hears so.  More operations may
        follow.  What `share` was given is up to date, too.  Raises what `agree` does.
        """
        if self._terms is None:
            raise UsageError("there was no operation with a quorum yet")
        with self.turn:
            self.agree(self._terms, is_whole=True)
            return self.take_missed()

    def close(self, *, failed: bool = False) -> None:
        """Leave all groups."""
        for name in list(self._groups):
            self._close_group(name, failed=failed)

    def _ask(self, terms: Terms, is_whole: bool) -> AgreeReply:
        """Ask until there is a decision; a controller that ends meanwhile may be followed by another one."""
        membership, timeout_s = self._membership, self._comm.queue.driver.timeout_s
        end = time.monotonic() + timeout_s
        while True:
            asked = time.monotonic()
            request = AgreeRequest(
                job=membership.job,
                nonce=membership.reply.nonce,
                after=self.after,
                quorum=terms.quorum,
                patience_s=terms.patience_s,
                keep=terms.keep,
                gives_model=terms.gives_model,
                model=terms.model,
                begun=self._comm.begun,
                is_whole=is_whole,
                wait_s=max(0.0, min(end - asked, ASK_S)),
            )
            self._check_open()
            try:
                reply: AgreeReply = membership.ask("Agree", request, AgreeReply, request.wait_s)
            except ControllerUnreachable:
                if time.monotonic() >= end:
                    raise
                continue
            if reply.lost >= 0:
                raise WorkerLost(reply.why, reply.lost)
            if reply.number:
                return reply
            if time.monotonic() >= end:
                names = ", ".join(map(str, reply.missing))
                why = f" ({reply.held_up})" if reply.held_up else ""
                raise CollectiveTimeout(
                    f"ranks {names} of job {membership.job!r} have not come within {timeout_s:g} s, and no quorum "
                    f"({terms}) goes on without them{why}",
                    reply.missing,
                )
            if time.monotonic() < asked + AT_ONCE_S:
                time.sleep(PAUSE_S * self._comm.world_size)

    def _check_open(self) -> None:
        queue = self._comm.queue
        check_process(queue.pid)
        if queue.error is not None:
            raise queue.error.with_traceback(None)
        if queue.closed:
            raise UsageError("this communicator is closed: switchsum.connect makes another one")

    def _group(self, name: str, ranks: tuple[int, ...]) -> Combines:
        """Return the communicator of those who take part; raises what `connect` does, and WorkerLost."""
        if name not in self._groups:
            assert self._comm.connect_again is not None
            began = time.monotonic()
            with self._while_all_live(ranks) as one_is_gone:
                self._groups[name] = self._comm.connect_again(
                    rank=ranks.index(self._comm.rank), world_size=len(ranks), job=name, cancelled=one_is_gone
                )
            self.joined_s += time.monotonic() - began
        return self._groups[name]

    @contextmanager
    def _while_all_live(self, ranks: tuple[int, ...]) -> Iterator[threading.Event]:
        """Give an event that is set when one of these ranks is gone; raises WorkerLost if that has ended the block.

        The job of those who take part does not know of a rank that is gone before it has joined.
        """
        membership, one_is_gone = self._membership, threading.Event()
        before = membership.on_heartbeat

        def look() -> None:
            before()
            if not (membership.lost | membership.left).isdisjoint(ranks):
                one_is_gone.set()

        membership.on_heartbeat = look
        look()
        try:
            yield one_is_gone
        except UsageError as error:
            gone = sorted((membership.lost | membership.left).intersection(ranks))
            if not gone:
                raise
            raise WorkerLost(
                f"rank {gone[0]} of job {membership.job!r} is gone, and was to take part in this operation",
                gone[0],
                GO_ON,
            ) from error
        finally:
            membership.on_heartbeat = before

    def _close_group(self, name: str, *, failed: bool) -> None:
        with suppress(SwitchsumError):
            self._groups.pop(name).close(failed=failed)


def _of_job(error: SwitchsumError, ranks: tuple[int, ...], job: str) -> SwitchsumError:
    """Return the error of a group of ranks with the ranks' numbers, and the name, of the job that they are of."""
    text = RANKS.sub(lambda found: found[1] + NUMBER.sub(lambda one: _name(int(one[0]), ranks), found[2]), str(error))
    text = GROUP.sub(repr(job), text)
    if isinstance(error, WorkerLost):
        rank = ranks[error.rank] if 0 <= error.rank < len(ranks) else error.rank
        return WorkerLost(text, rank, "" if error.advice else GO_ON)
    if isinstance(error, CollectiveTimeout):
        return CollectiveTimeout(text, [ranks[rank] for rank in error.missing if rank < len(ranks)])
    return OperationMismatch(text, error.operation if isinstance(error, OperationMismatch) else "")


def _name(rank: int, ranks: tuple[int, ...]) -> str:
    return str(ranks[rank]) if rank < len(ranks) else str(rank)
