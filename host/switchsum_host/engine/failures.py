"""Words for what ends an operation: a refusal of the switch, or that nothing comes any more.

They name ranks as far as the switch has told whom its slots wait for.
"""

from __future__ import annotations

import numpy as np

from switchsum_protocol.errors import (
    TIMEOUT_OPTIONS,
    CollectiveTimeout,
    NotAdmitted,
    OperationMismatch,
    SwitchLost,
    SwitchsumError,
)
from switchsum_protocol.frame import Reason

from .config import EngineConfig
from .operation import Operation
from .state import Failure, Held, Phase, State

_OWN = ", the time-out of this call"
SILENT_PROBES = 4
"""A switch that has answered none of so many probes in a row is taken to be away."""


def refused(config: EngineConfig, state: State, operation: Operation) -> SwitchsumError:
    """Say why the switch has refused an operation."""
    core = state.core[0]
    if core["progress"]["failure"] == Failure.MISMATCH:
        own = f"{operation} (call {int(core['progress']['failed']) + 1} of its communicator)"
        return OperationMismatch(f"another rank issued another operation than rank {config.rank}'s {own}", own)
    return NotAdmitted(f"the switch refuses contributions of rank {config.rank}: {_name(core['progress']['reason'])}")


def held_slots(config: EngineConfig, state: State, *, earlier: bool = True) -> list[tuple[int, int, list[int]]]:
    """Return each slot for which the switch has said that it waits, the round's number, and the ranks without a bit.

    -1 stands for a place whose ranks are at other switches.  `earlier` answers may be older than the news that a rank
    has left.
    """
    places = config.places or range(config.world_size)
    member = state.core[0]["member"]
    found = []
    for index, slot in enumerate(state.slots):
        if slot["phase"] == Phase.WAITING and (slot["held"] == Held.NOW or (earlier and slot["held"])):
            missing = [rank for place, rank in enumerate(places) if not int(slot["seen"]) >> place & 1]
            shift = int(member["shared_shift"]) if slot["tree"] == member["shared_tree"] else 0
            found.append((config.first_slot + index + shift, int(slot["number"]) & 0xFFFFFFFF, missing))
    return found


def timed_out(config: EngineConfig, state: State, own_s: float | None = None) -> SwitchsumError:
    """Say whom the slots wait for, as far as the switch has told.

    `own_s` is the time-out of the operation, where it has another one than its member.
    """
    seconds = f"{config.timeout_s if own_s is None else own_s:g} s"
    advice = TIMEOUT_OPTIONS if own_s is None else _OWN
    awaited = _awaited(config, state)
    if awaited is None or state.core[0]["recovery"]["timer"]["silent"] > SILENT_PROBES:
        return SwitchLost(f"no answer from the switch for {seconds}{advice}")
    names, ranks = awaited
    return CollectiveTimeout(f"no progress for {seconds}: the switch waits for {names}{advice}", ranks)


def overdue(config: EngineConfig, state: State, timeout_s: float) -> CollectiveTimeout:
    """Say whom the slots wait for when a caller waits for an operation no longer, which goes on."""
    awaited = _awaited(config, state)
    if awaited is None:
        return CollectiveTimeout(f"not done within {timeout_s:g} s; the switch has not said whom it waits for")
    names, ranks = awaited
    return CollectiveTimeout(f"not done within {timeout_s:g} s: the switch waits for {names}", ranks)


def _awaited(config: EngineConfig, state: State) -> tuple[str, list[int]] | None:
    """Return in words, and as ranks, whom the slots wait for; None: the switch has not said so."""
    slots = state.slots
    held = slots[(slots["phase"] == Phase.WAITING) & (slots["held"] != 0)]
    if not len(held):
        return None
    seen = int(np.bitwise_and.reduce(held["seen"]))
    places = config.places or range(config.world_size)
    missing = [rank for place, rank in enumerate(places) if not seen >> place & 1]
    ranks = [rank for rank in missing if rank >= 0]
    names = [f"rank {', '.join(map(str, ranks))}"] if ranks else []
    if -1 in missing or not missing:  # what other switches wait for is not in the bitmaps of this one
        names.append("ranks at other switches, which `switchsum slots` shows")
    return " and ".join(names), ranks


def _name(reason: int) -> str:
    try:
        return Reason(reason).name.lower().replace("_", " ")
    except ValueError:
        return f"reason {reason}"
