"""Why a job did not come about, or its ranks do not agree, in words: imported by those whose job fails."""

from __future__ import annotations

from collections.abc import Sequence

from switchsum.native.waiting import ranks_of
from switchsum.protocol.errors import TIMEOUT_OPTIONS, CollectiveTimeout, SwitchLost, SwitchsumError, TransportError
from switchsum.protocol.frame import ETHERNET_BYTES
from switchsum.protocol.member_rpc import ReadyReply


def cut(length: int) -> TransportError:
    """Say that hellos of this length get lost, and short ones do not."""
    return TransportError(
        f"frames of {length} bytes get lost on the way to the switch, short ones do not: `ip link set IF mtu "
        f"{length - ETHERNET_BYTES}` on both ends of each link, or a controller with fewer --lanes"
    )


def not_yet(reply: ReadyReply, job: str, rank: int, after_s: float, limit_s: float) -> str:
    """Say what a job waits for before it begins."""
    if not reply.hello_seen:
        return f"{no_hello(rank, after_s, reply.unseen)} It is tried for up to {limit_s:g} s"
    what = ranks_of(job, reply.missing) if reply.missing else f"the switches of job {job!r} to be set up"
    return f"waiting for {what}, for up to {limit_s:g} s"


def not_complete(reply: ReadyReply, job: str, rank: int, timeout_s: float) -> SwitchsumError:
    """Say which ranks of a job have not come in time, or that the switch is silent."""
    if not reply.hello_seen:
        return SwitchLost(no_hello(rank, timeout_s, reply.unseen))
    ranks = ("rank " if len(reply.missing) == 1 else "ranks ") + ", ".join(map(str, reply.missing))
    why = f"{ranks} missing" if reply.missing else "all ranks have come, and a switch is not yet set up for them"
    text = f"job {job!r} is not complete after the timeout of {timeout_s:g} s: {why}"
    return CollectiveTimeout(text + TIMEOUT_OPTIONS, reply.missing)


def no_hello(rank: int, silent_s: float, unseen: Sequence[int]) -> str:
    """Say that the switch has handed on no hello of a rank, over any link or those that are named."""
    which = f"link {', '.join(map(str, unseen))} of " if any(unseen) else ""
    return f"the switch has handed on no hello of {which}rank {rank} for {silent_s:g} s: does this link lead to it?"


def compared(operations: Sequence[str]) -> str:
    """Say which ranks issued what, those that differ from most first; empty where all have said the same."""
    issuers: dict[str, list[int]] = {}
    for rank, operation in enumerate(operations):
        issuers.setdefault(operation or "nothing that is known of", []).append(rank)
    if len(issuers) < 2:
        return ""
    parts = [
        f"rank {', '.join(map(str, ranks))} issued {operation}"
        for operation, ranks in sorted(issuers.items(), key=lambda item: (len(item[1]), item[1]))
    ]
    return "; ".join(parts)
