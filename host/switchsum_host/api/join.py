"""Membership of a job, from joining over heartbeats to leaving."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from switchsum_protocol import member_rpc, rpc_codec
from switchsum_protocol.clients.member_client import MemberClient, Replies, Reply, keep_to_this_process
from switchsum_protocol.clients.starting import ANSWER_S, is_noted, launcher_has_ended, switch_has_ended
from switchsum_protocol.errors import (
    CollectiveTimeout,
    ControllerUnreachable,
    NotAdmitted,
    OperationMismatch,
    SwitchLost,
    SwitchsumError,
    UnknownMembership,
    UsageError,
    WorkerLost,
)
from switchsum_protocol.frame import Flag, Header, Kind, payload_bytes
from switchsum_protocol.issued import compared
from switchsum_protocol.wire import build_frame, nonce_fields
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.notices import QUIET_S, ranks_of, say, waiting_for
from switchsum_switch.process.start_limit import start_limit
from switchsum_switch.wires.headers import Address

from ..links.base import Indices, Transport
from .awaiting import Absence, Waiter, cut

if TYPE_CHECKING:
    from switchsum_protocol.reports import WorkerReport

CALL_S: Final = 4.0
"""A controller that answers takes milliseconds; one that is away is given this long to come."""
SWITCH_TIMEOUT_S: Final = 20.0
"""Ranks may be late by half an hour; a switch that answers nothing is not late."""
HELLO_S: Final = 0.05
"""Pause between two hello frames."""
SHORT_AFTER: Final = 10
"""Number of unanswered hellos after which short ones are sent as well, to see whether the length is the fault."""
CUT_AFTER: Final = 40
"""Hellos after which, if short ones come through, long ones never will. (Links that lose half lose each by itself.)"""
BROKEN_OFF: Final = 0.9
"""A call that fails in less than this share of the time that it has was broken off."""
READY_S: Final = 1.0
"""Longest single call of Ready."""
CANCELLED_S: Final = 0.2
"""The same where another thread may end the waiting."""
EXPLAIN_S: Final = 2.0
"""How long to wait for what the controller knows about an error."""
_ALIKE: Final = "all ranks must make the same calls in the same order, on arrays of one shape and dtype"
RETRY_S: Final = 0.2
"""Pause before a connection that has ended is tried again."""
REPORT_S: Final = 0.4
"""Least time between two reports: heartbeats come once a second as a rule, news of other jobs' members more often."""
ATTEND_S: Final = 2.0
"""How long to wait for the first news: a controller that answers takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a rank that joins waits for what is away, in seconds."""

    call_s: float = CALL_S
    """Seconds that a call waits for a controller that is away."""
    answer_s: float = ANSWER_S
    """Seconds that a call waits for the answer of a controller that is there, or was there and has ended."""
    switch_s: float = SWITCH_TIMEOUT_S
    """Seconds that a call waits for a switch that does not answer the controller."""


_version_of = functools.cache(importlib.metadata.version)  # each reading takes 5 ms, and a process may join often


class Membership:
    """One rank's place in a job, held by a connection until `leave`.

    The kernel closes that when the process ends, and answers for a process that is stopped, or whose Python is busy.
    """

    left: frozenset[int] = frozenset()
    """Ranks that have left in order, as far as heartbeats tell."""
    lost: frozenset[int] = frozenset()
    """Ranks that are lost, likewise."""
    cancelled: threading.Event | None = None
    """Set by another thread to end `await_admission`."""
    links_down: frozenset[int] = frozenset()
    """Links, of several, that no member uses any more, as far as heartbeats tell."""

    def __init__(
        self,
        controller: str,
        *,
        job: str,
        rank: int,
        world_size: int,
        patience: Patience = Patience(),
        receive_bytes: int = 0,
        window_bytes: int = 0,
        rates: Sequence[float] = (),
    ) -> None:
        """Join; raises JoinRefused's kinds, ControllerUnreachable or SwitchLost.

        `patience` holds here, and for switches until the job is complete.
        `receive_bytes` may wait on the link, as the kernel counts them; 0: enough.  `window_bytes` of frames are worth
        having in flight there; 0: as many as may be.  `rates` are those of several links in Mbit/s, 0: not known.
        """
        self.job = job
        self.rank = rank
        self.error: SwitchsumError | None = None
        """Why the membership is over or the job is broken, as far as heartbeats tell."""
        self.loads = 0
        """How often the switch has been given its program, once admitted: more means that it was restarted."""
        self._absence = Absence(patience.switch_s)
        self._dead_links: dict[int, str] = {}
        """Own ones, by number, and why."""
        self._client = MemberClient(controller, timeout_s=CALL_S, waits=True)
        self.on_heartbeat: Callable[[], object] = lambda: None
        """Called on the thread of the heartbeats after each one; must not block."""
        self.report: Callable[[str, int], WorkerReport | None] = lambda job, nonce: None
        """Function that returns this worker's report for heartbeats, given job and nonce. It must not block."""
        self._reporting: Any = None
        self._report_at = 0.0
        self._stop = threading.Event()
        self._patience = patience
        self._is_admitted = False
        self._request = member_rpc.JoinRequest(
            job=job,
            rank=rank,
            world_size=world_size,
            package_version=_version_of("switchsum"),
            receive_bytes=receive_bytes,
            window_bytes=window_bytes,
            rates=list(rates),
        )
        try:
            with waiting_for(f"the controller at {controller} to let rank {rank} of job {job!r} join"):
                self.reply = self._join()
        except BaseException:
            self._client.close()
            raise
        self.switch = Address(mac=self.reply.switch_mac, ip=self.reply.switch_ip, port=self.reply.switch_port)
        """Address that contributions go to and results come from."""
        keep_to_this_process(controller)
        self._stream: Replies[member_rpc.HeartbeatReply] | None = None
        self._has_news = threading.Event()
        self._thread = threading.Thread(target=self._attend, name=f"switchsum heartbeat {rank}", daemon=True)
        self._thread.start()

    def _join(self) -> member_rpc.JoinReply:
        """Ask to become a member, again where the controller ends meanwhile, or its switch is away for a while."""
        limit, began = self._patience, time.monotonic()
        while True:
            asked = time.monotonic()
            try:
                return self._client.call("Join", self._request, member_rpc.JoinReply, limit.call_s, limit.answer_s)
            except SwitchLost:
                if time.monotonic() >= began + limit.switch_s:
                    raise
            except ControllerUnreachable:
                # A controller that was there and broke the call off has ended: another one may come.
                has_broken_off = time.monotonic() < asked + BROKEN_OFF * limit.call_s
                if not has_broken_off or time.monotonic() >= began + limit.answer_s:
                    raise
                self._check_launcher()
            self._stop.wait(RETRY_S)

    def _join_again(self, end: float) -> None:
        """Join a controller that knows nothing of this member, for it was started meanwhile; raises what `_join` does.

        Raises NotAdmitted if it has another switch than the one before: the link was opened for that one.
        """
        while True:
            try:
                reply = self._join()
                break
            except ControllerUnreachable:
                if time.monotonic() >= end:
                    raise
                self._check_launcher()
        before, self.reply = self.reply, reply
        fixed = ("lanes_per_frame", "growth_bytes", "switch_mac", "switch_ip", "switch_port")
        if any(getattr(before, name) != getattr(reply, name) for name in fixed):
            raise NotAdmitted(f"the controller of job {self.job!r} has come back with another switch: connect again")

    def most_in_flight(self, frame_bytes: int) -> int:
        """Return the largest window that this member can be given, in frames of that length.

        The controller gives all members the least of what each of them has asked for.
        """
        most, window_bytes = member_rpc.MOST_IN_FLIGHT, self._request.window_bytes
        return max(1, min(most, window_bytes // frame_bytes)) if window_bytes else most

    def _check_launcher(self) -> None:
        """Raise SwitchLost if the controller has ended together with what had started it: none comes in its place."""
        if (ended := launcher_has_ended(self._client.address)) is not None:
            raise ended

    def await_admission(self, links: Sequence[Transport], timeout_s: float) -> member_rpc.ReadyReply:
        """Show this member to the switch over each of its links, and wait until all members are admitted.

        Several links have one frame store.

        Hellos are as long as contributions, so that a link which does not take those is found out here.  A controller
        that ends meanwhile may be followed by another one, which this member then joins as it did the first.

        Raises CollectiveTimeout with the ranks that have not come, SwitchLost if it is the switch that is silent,
        ControllerUnreachable, or TransportError if the link does not take whole frames.
        """
        self._has_news.wait(ATTEND_S)  # before the caller goes on: to compile, or do what else keeps Python busy
        end, waiter = time.monotonic() + timeout_s, Waiter(self.job, self.rank, timeout_s, self._patience.switch_s)
        hellos, written_for = self._write_all_hellos(links), self._links_of(links)
        seen, sent = False, 0
        while True:
            if self.cancelled is not None and self.cancelled.is_set():
                raise UsageError(
                    f"rank {self.rank} stopped waiting for job {self.job!r} to be complete, because it was cancelled"
                )
            for one in links:
                one.wait(0.0)  # a link that has ended with its switch is opened again in there
            if written_for != (written_for := self._links_of(links)):
                hellos, seen, sent = self._write_all_hellos(links), False, 0
            if not seen:
                for which in (0, 1) if sent >= SHORT_AFTER else (0,):  # apart: a veth's queue seems full to a long one
                    for one, (rows, lengths) in zip(links, hellos, strict=True):
                        one.send(rows[which : which + 1], lengths[which : which + 1])
                sent += 1
            longest_s = READY_S if self.cancelled is None else CANCELLED_S
            reply = self._ask_ready(max(0.0, min(end - time.monotonic(), longest_s if seen else HELLO_S)), end, waiter)
            if reply is None:
                continue
            if reply.admitted:
                self._is_admitted = True
                self.loads = max(self.loads, reply.loads)
                return reply
            seen = reply.hello_seen
            waiter.note(reply)
            if reply.hello_cut and (sent >= CUT_AFTER or time.monotonic() >= end):
                raise cut(int(hellos[0][1][0]))
            if time.monotonic() >= end:
                raise waiter.error(reply)

    def _ask_ready(self, wait_s: float, end: float, waiter: Waiter) -> member_rpc.ReadyReply | None:
        """Ask whether all members are admitted; None if the controller has ended, or another one was joined."""
        request = member_rpc.ReadyRequest(job=self.job, nonce=self.reply.nonce, wait_s=wait_s)
        try:
            return self.ask("Ready", request, member_rpc.ReadyReply, wait_s)
        except UnknownMembership:
            self._join_again(end)
        except ControllerUnreachable:
            if time.monotonic() >= end:
                raise
            waiter.note_controller(self._client.address)
        return None

    def awaits_switch(self) -> str:
        """Return in words which switch the job waits for that does not answer the controller; empty: none."""
        request = member_rpc.ReadyRequest(job=self.job, nonce=self.reply.nonce, wait_s=0.0)
        try:
            return self._client.call("Ready", request, member_rpc.ReadyReply, CALL_S).lost_switch
        except SwitchsumError:
            return ""

    def _links_of(self, links: Sequence[Transport]) -> tuple[object, ...]:
        """Return what hellos are written for: this membership, and each link as it was opened last."""
        return (self.reply.nonce, *(one.reopened for one in links))

    def _write_all_hellos(self, links: Sequence[Transport]) -> list[tuple[Indices, Indices]]:
        return [self._write_hellos(one, number) for number, one in enumerate(links)]

    def _write_hellos(self, transport: Transport, link: int) -> tuple[Indices, Indices]:
        """Write a hello with lanes and one without, to rows of the link with this number; return rows and lengths."""
        number, digest = nonce_fields(self.reply.nonce)
        header = Header(
            kind=Kind.HELLO,
            job=self.reply.job_number,
            epoch=self.reply.epoch,
            rank=self.rank,
            tree=link,  # which is read as `Header.link`
            number=number,
            digest=digest,
        )
        lanes = bytes(payload_bytes(self.reply.lanes_per_frame))
        whole = build_frame(transport.address, self.switch, replace(header, flags=Flag.PAYLOAD), lanes)
        short = build_frame(transport.address, self.switch, header)
        rows = np.array([2 * link, 2 * link + 1], np.int32)
        for row, frame in zip(rows, (whole, short), strict=True):
            transport.tx_frames[row, transport.lead : transport.lead + len(frame)] = np.frombuffer(frame, np.uint8)
        return rows, np.array([len(whole), len(short)], np.int32)

    def _attend(self) -> None:
        """Keep a connection to the controller, and hear on it about the others."""
        address = self._client.address
        while not self._stop.is_set():
            joined = self.reply
            request = member_rpc.MemberRequest(job=self.job, nonce=joined.nonce)
            try:
                # Where both may have ended for good, each look that finds no controller is one for the switch, too: a
                # process that is about to end may still listen when its connections have been closed.
                waits = not is_noted(address)
                self._stream = self._client.stream("Attend", request, member_rpc.HeartbeatReply, waits=waits)
                if self._stop.is_set():
                    return
                for reply in self._stream:
                    self._note(reply, joined.epoch)
                    self._has_news.set()
            except ControllerUnreachable:
                if not self._stop.is_set() and (ended := launcher_has_ended(address)) is not None:
                    self.error = self.error or ended
                    return
                # Else it may come again, and a running job needs no controller.
            except SwitchsumError as error:
                self._has_news.set()
                if self._is_admitted or not isinstance(error, UnknownMembership):
                    if not self._stop.is_set():
                        self.error = error
                    return
                # Else whoever waits for admission joins again.
            except ValueError:
                return  # the channel was closed meanwhile
            self._stop.wait(min(RETRY_S, self.reply.heartbeat_s))

    def _note(self, reply: member_rpc.HeartbeatReply, epoch: int) -> None:
        self.links_down = frozenset(reply.down)  # of rails before `loads`: rounds are brought back over those left
        self.loads = max(self.loads, reply.loads)
        self.left, self.lost = frozenset(reply.left), frozenset(reply.lost)
        for link in self._dead_links.keys() - self.links_down:
            self._send_down(link)  # a controller that was away has not heard of it
        self.on_heartbeat()
        self._send_report()
        if reply.lost:
            names, job = ", ".join(map(str, reply.lost)), repr(self.job)
            one = f"rank {names} of job {job} is gone: its process has ended, or its machine cannot be reached"
            more = f"ranks {names} of job {job} are gone: processes have ended, or machines cannot be reached"
            self.error = WorkerLost(one if len(reply.lost) == 1 else more, reply.lost[0])
        elif reply.mismatch:
            self.error = self.error or OperationMismatch(reply.mismatch)
        elif reply.epoch != epoch:
            self.error = NotAdmitted(f"job {self.job!r} goes on under epoch {reply.epoch}: connect again")

    def _send_report(self) -> None:
        """Tell the controller how this worker is, unless it was told a moment ago; nobody waits for the answer."""
        last, now = self._reporting, time.monotonic()
        if now < self._report_at or (last is not None and not last.done()):
            return
        if last is not None and last.code() is grpc.StatusCode.UNIMPLEMENTED:
            return  # a controller of before
        self._report_at = now + REPORT_S
        if (report := self.report(self.job, self.reply.nonce)) is not None:
            self._reporting = self._client.report(report, CALL_S)
            ended = switch_has_ended(self._client.address) if report.waiting_s >= REPORT_S else None
            self.error = self.error or ended or self._absence.look(report.waiting_s, now, self.awaits_switch)

    def tell_down(self, link: int, reason: str) -> None:
        """Have all members do without a link of this number; nobody waits for the answer."""
        self._dead_links[link] = reason[: member_rpc.MOST_TEXT]
        self._send_down(link)

    def _send_down(self, link: int) -> None:
        report = member_rpc.LinkReport(job=self.job, nonce=self.reply.nonce, link=link, reason=self._dead_links[link])
        self._client.link_down(report, CALL_S)

    def explain(self, error: SwitchsumError) -> SwitchsumError:
        """Return an error with what only the controller knows, if that is to be had in a moment."""
        if isinstance(error, NotAdmitted):
            end = time.monotonic() + EXPLAIN_S
            while self.error is None and time.monotonic() < end:
                time.sleep(0.01)
            return self.error or error
        if not isinstance(error, OperationMismatch):
            return error
        request = member_rpc.CompareRequest(
            job=self.job, nonce=self.reply.nonce, operation=error.operation, wait_s=EXPLAIN_S
        )
        try:
            reply = self._client.call("Compare", request, member_rpc.CompareReply, 2 * EXPLAIN_S)
        except (SwitchsumError, ValueError):
            return error
        text = compared(reply.operations)
        return OperationMismatch(f"{text}; {_ALIKE}", error.operation) if text else error

    def reform(self, timeout_s: float) -> tuple[int, int]:
        """End the membership so that the job goes on without those that are lost; return the new rank and world size.

        Every other member must ask for it too; raises CollectiveTimeout with the ranks that neither do nor are lost.
        A controller that ends meanwhile is waited for as long as the other members.
        """
        end, quiet_until, was_away = time.monotonic() + timeout_s, time.monotonic() + QUIET_S, False
        while True:
            wait_s = max(0.0, min(end - time.monotonic(), READY_S))
            request = member_rpc.ReformRequest(job=self.job, nonce=self.reply.nonce, wait_s=wait_s)
            try:
                reply = self.ask("Reform", request, member_rpc.ReformReply, wait_s)
            except ControllerUnreachable:
                if time.monotonic() >= end:
                    raise
                was_away = True
                continue
            except UnknownMembership:
                if not was_away:
                    raise
                self._stop_beating()
                return self._place_without_lost()
            if reply.rank < 0 and time.monotonic() > quiet_until:
                quiet_until = math.inf
                say(f"waiting for {ranks_of(self.job, reply.missing)} to form it anew, for up to {timeout_s:g} s")
            if reply.rank >= 0:
                self._stop_beating()
                return reply.rank, reply.world_size
            if time.monotonic() >= end:
                names = ", ".join(map(str, reply.missing))
                text = f"rank {names} of job {self.job!r} is neither lost nor forms it anew"
                raise CollectiveTimeout(text, reply.missing)

    def ask(self, method: str, request: object, reply: type[Reply], wait_s: float) -> Reply:
        """Make a call that waits for others; raises ControllerUnreachable after a pause, for it may come again."""
        try:
            return self._client.call(method, request, reply, wait_s + CALL_S, wait_s + start_limit(ANSWER_S))
        except ControllerUnreachable:
            self._check_launcher()
            self._stop.wait(RETRY_S)
            raise

    def _place_without_lost(self) -> tuple[int, int]:
        """Return the new rank and world size, as the controller gives them to all that are neither lost nor have left.

        For a controller that had formed the job anew, and ended before it had told this member.  If it knew of more
        ranks that are gone, the job is smaller than this says, and refuses this member with WorldSizeMismatch.
        """
        gone = self.lost | self.left
        staying = [rank for rank in range(self._request.world_size) if rank == self.rank or rank not in gone]
        return staying.index(self.rank), len(staying)

    def leave(self, *, failed: bool = False, error: BaseException | None = None) -> None:
        """End the membership, as far as the controller can be told; with `failed` it finds out by silence.

        Then it tells the others that this rank is lost, whatever they wait for: who has left has done its part.
        `error` is why this rank gives up a job that is not complete, which the others are told.
        """
        if self._stop.is_set():
            return
        self._has_news.wait(ATTEND_S)  # the connection that is ended here is there, also where joining fails at once
        self._stop.set()
        gives_up = rpc_codec.details_of(error) if isinstance(error, CollectiveTimeout | SwitchLost) else ""
        request = member_rpc.LeaveRequest(job=self.job, nonce=self.reply.nonce, error=gives_up)
        try:
            if not failed:
                self._client.call("Leave", request, member_rpc.Empty, READY_S)
        except SwitchsumError:
            pass  # it will find out by silence
        self._stop_beating()

    def _stop_beating(self) -> None:
        self._stop.set()
        if self._stream is not None:
            self._stream.cancel()
        self._thread.join(READY_S)
        self._client.close()
