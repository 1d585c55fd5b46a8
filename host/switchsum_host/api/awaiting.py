"""What a rank says of the others: whom it waits for, when it waits in vain, and how calls differ."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from switchsum_protocol.errors import (
    TIMEOUT_OPTIONS,
    CollectiveTimeout,
    SwitchLost,
    SwitchsumError,
    TransportError,
    WorkerLost,
)
from switchsum_protocol.member_rpc import ReadyReply
from switchsum_switch.notices import QUIET_S, ranks_of, say
from switchsum_switch.wires.headers import ETHERNET_BYTES

from .driver import CommunicatorDriver

OLDER_S: Final = 1.0
"""Seconds after the news that a rank has left, in which older answers of the switch may still arrive."""
LOOK_S: Final = 0.25
"""Pause between two looks at what the switch has answered."""


class Waiter:
    """One rank's wait for the rest of its job."""

    def __init__(self, job: str, rank: int, timeout_s: float, switch_timeout_s: float) -> None:
        """Wait for other ranks for `timeout_s` from now on, and for a switch that is away for `switch_timeout_s`."""
        self._job, self._rank = job, rank
        self._timeout_s, self._switch_timeout_s = timeout_s, switch_timeout_s
        self._quiet_until = time.monotonic() + QUIET_S
        self._has_said_controller_ended = False
        self._lost_at = math.inf
        self._undisturbed = ReadyReply(admitted=False, hello_seen=False), -math.inf  # the latest with a switch; when

    def note(self, reply: ReadyReply) -> None:
        """Take the controller's answer; raises SwitchLost when a switch has been away for too long."""
        now = time.monotonic()
        self._lost_at = min(self._lost_at, now) if reply.lost_switch else math.inf
        if now >= self._lost_at + self._switch_timeout_s:
            raise SwitchLost(f"{reply.lost_switch}, for {self._switch_timeout_s:g} s")
        if reply.hello_seen and not reply.lost_switch:
            self._undisturbed = reply, now
        if now > self._quiet_until:  # the others may wait for half an hour
            self._quiet_until = math.inf
            say(not_yet(reply, self._job, self._rank, QUIET_S, self._timeout_s))

    def note_controller(self, address: str) -> None:
        """Say once that the controller has ended, and that another one is waited for."""
        if not self._has_said_controller_ended:
            self._has_said_controller_ended = True
            say(f"the controller at {address} has ended: waiting for another one, for up to {self._timeout_s:g} s")

    def error(self, reply: ReadyReply) -> SwitchsumError:
        """Return the error of a job that is not complete in time. A switch lost in the last half of it is not why."""
        before, at_s = self._undisturbed
        if time.monotonic() < at_s + self._timeout_s / 2 and (before.missing or before.gave_up):
            return not_complete(before, self._job, self._rank, self._timeout_s, reply.lost_switch)
        return not_complete(reply, self._job, self._rank, self._timeout_s)


class Absence:
    """How long the switch of other ranks has been away, while this rank's own one answers that it waits for them."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since = math.inf

    def look(self, waiting_s: float, now: float, ask: Callable[[], str]) -> SwitchLost | None:
        """Return the error of a rank that waits in vain; `ask` says which switch does not answer the controller.

        Frames may pass a switch that does not answer the controller: as long as results come, nobody asks.
        """
        away = ask() if waiting_s >= self._limit_s / 2 else ""
        self._since = min(self._since, now) if away else math.inf
        if waiting_s >= self._limit_s and now >= self._since + self._limit_s / 2:  # a restart is over by then
            return SwitchLost(f"no result for {waiting_s:.0f} s: {away}")
        return None


class Departures:
    """Ranks that have left in order, and for which this one waits in vain: it says so, long before its time-out.

    A rank leaves when all collectives have ended that it had begun, so nobody waits for it in those.  Where ranks begin
    different numbers of collectives (one has fewer batches, or returns early), the others wait in one that it never
    begins.  The controller says who has left, the switch for whom a slot waits: both together say that the wait is in
    vain.

    An answer of the switch may be older than the news, and the rank's contribution may have come in between.  So
    answers count from the news on, and not before a second has passed, in which older ones have arrived.

    Nothing is concluded in two cases, and the time-out ends the wait: where the switch was restarted, for there another
    member that has the result may bring back what a rank contributed that has left since; and of ranks at other
    switches of a tree, for which the bitmap of this one has no places.
    """

    def __init__(self, driver: CommunicatorDriver, loads: int) -> None:
        """Watch what the switch answers, which has been given its program `loads` times."""
        self._driver = driver
        self._loads = loads
        self._left: frozenset[int] = frozenset()
        self._look_at_s = 0.0

    def check(self, left: frozenset[int], loads: int, now_s: float) -> None:
        """Raise WorkerLost if this rank waits for one of the ranks that have left."""
        if loads != self._loads:
            return
        if left != self._left:
            self._left = left
            self._driver.note_departure()
            self._look_at_s = now_s + OLDER_S
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        if awaited := {rank for _, _, missing in self._driver.held_slots(earlier=False) for rank in missing} & left:
            raise _in_vain(sorted(awaited))


def cut(length: int) -> TransportError:
    """Say that hellos of this length get lost, and short ones do not."""
    return TransportError(
        f"frames of {length} bytes get lost on the way to the switch, short ones do not: `ip link set IF mtu "
        f"{length - ETHERNET_BYTES}` on both ends of each link, or a controller with fewer --lanes"
    )


def not_yet(reply: ReadyReply, job: str, rank: int, after_s: float, limit_s: float) -> str:
    """Say what a job waits for before it begins."""
    if reply.lost_switch:
        return f"waiting for a switch: {reply.lost_switch}"
    if not reply.hello_seen:
        return f"{no_hello(rank, after_s, reply.unseen)} It is tried for up to {limit_s:g} s"
    what = ranks_of(job, reply.missing) if reply.missing else f"the switches of job {job!r} to be set up"
    return f"waiting for {what}, for up to {limit_s:g} s"


def not_complete(reply: ReadyReply, job: str, rank: int, timeout_s: float, lost_meanwhile: str = "") -> SwitchsumError:
    """Say which ranks of a job have not come in time, or that the switch is silent; `lost_meanwhile` is one, too.

    Ranks that came and gave up are the missing ones only if no rank stayed away: else those made them give up.
    """
    if reply.lost_switch:
        return SwitchLost(reply.lost_switch)
    if not reply.hello_seen:
        return SwitchLost(no_hello(rank, timeout_s, reply.unseen))
    came = f"{_ranks(reply.gave_up)} had come, and gave up before" if reply.gave_up else ""
    if reply.missing:
        why = f"{_ranks(reply.missing)} missing" + (f" ({came})" if came else "")
    else:
        why = came or "all ranks have come, and a switch is not yet set up for them"
    why += f"; by now {lost_meanwhile}" if lost_meanwhile else ""
    text = f"job {job!r} is not complete after the timeout of {timeout_s:g} s: {why}"
    return CollectiveTimeout(text + TIMEOUT_OPTIONS, reply.missing or reply.gave_up)


def _ranks(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def no_hello(rank: int, silent_s: float, unseen: Sequence[int]) -> str:
    """Say that the switch has handed on no hello of a rank, over any link or those that are named."""
    which = f"link {', '.join(map(str, unseen))} of " if any(unseen) else ""
    return f"the switch has handed on no hello of {which}rank {rank} for {silent_s:g} s: does this link lead to it?"


def _in_vain(ranks: list[int]) -> WorkerLost:
    who = f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"
    return WorkerLost(
        f"{who} left the job without an error and will not begin the collective in which this rank waits: have all "
        "ranks call the same collectives, as often as each other",
        ranks[0],
    )
