"""Lets ranks of a process group exchange facts before they have a job, through the store that torch gives them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

from switchsum_protocol import rpc_codec
from switchsum_protocol.errors import CollectiveTimeout, LocalError, SwitchsumError, UsageError, WorkerLost
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.start_limit import HINT, start_limit

SERVICES_S: Final = 600.0
"""Seconds that a rank may take to start switch and controller: on a busy machine they are compiled meanwhile."""
STARTS: Final = "switchsum/starts"
"""Key, with a rank's number, which that rank sets when it begins to start services."""
MACHINE: Final = "switchsum/machine"
"""Key, with a rank's number, which that rank sets first when it meets the group of all ranks."""
_ABSENT: Final = ": it has not called init_process_group, or with another backend"
_FAILED: Final = "switchsum/failed"
_SIZE: Final = "switchsum/size"
_ENDED: Final = "the store at which the ranks meet has ended, and rank 0 or the launcher, which kept it"
_OPTION: Final = " (init_process_group(timeout=...) changes how long)"


@dataclass(frozen=True, slots=True)
class Meeting:
    """One rank's view of the group that meets."""

    store: dist.Store
    rank: int
    size: int
    timeout_s: float
    closed: threading.Event = field(default_factory=threading.Event)
    """Set when the group is closed: whoever still waits for the others gives up."""

    def has(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are set; raises WorkerLost where the store has ended, and what another rank refuses.

        Nothing is waited for in the store, which other threads use as well.
        """
        try:
            if self.store.check(list(keys)):
                return True
            failed = json.loads(self.store.get(_FAILED)) if self.store.check([_FAILED]) else None
        except RuntimeError as error:
            raise _ended(error) from None
        if failed is not None and failed["rank"] != self.rank:
            raise _error_of(failed)
        return False

    def value(self, key: str) -> bytes:
        """Return what is set at a key; raises WorkerLost where the store has ended since the key was found in it."""
        try:
            return self.store.get(key)
        except RuntimeError as error:
            raise _ended(error) from None

    def tell_all(self, error: Exception) -> None:
        """Let all ranks that wait for others raise an error of this one; whoever was first is told."""
        with suppress(RuntimeError):
            if not self.store.check([_FAILED]):
                self.store.set(_FAILED, json.dumps({"rank": self.rank, **_as_text(error)}))

    def agree_on_size(self) -> None:
        """Raise UsageError where another rank has another number of ranks."""
        try:
            found = int(self.store.compare_set(_SIZE, "", str(self.size)))
        except RuntimeError as error:
            raise _ended(error) from None
        if found != self.size:
            raise UsageError(
                f"rank {self.rank} is one of {self.size} ranks, and another rank one of {found}: give every rank the "
                "same WORLD_SIZE, or the same number of processes to torchrun, mpirun or srun"
            )

    def check_open(self) -> None:
        """Raise UsageError once the group is closed."""
        if self.closed.is_set():
            raise UsageError("the process group is closed: make another one with init_process_group")


def times_come(store: dist.Store, key: str) -> int:
    """Count, in a store, how often a rank with this key has come to make a group; this time included."""
    try:
        return int(store.add(f"switchsum/came/{key}", 1))
    except RuntimeError as error:
        raise _ended(error) from None


def _ended(error: RuntimeError) -> WorkerLost:
    """Return what to raise for torch's errors of sockets, which have a trace of C++."""
    return WorkerLost(f"{_ENDED} ({str(error).splitlines()[0]})", 0)


def gather(meeting: Meeting, prefix: str) -> list[str]:
    """Return what every rank has set; raises CollectiveTimeout with those that have not."""
    deadline = time.monotonic() + meeting.timeout_s
    keys = [f"{prefix}/{rank}" for rank in range(meeting.size)]

    def absent() -> list[int]:
        try:
            return [rank for rank, key in enumerate(keys) if not meeting.has([key])]
        except SwitchsumError:  # whoever waits here raises it
            return []

    def names(ranks: list[int]) -> str:
        return f"rank {', '.join(map(str, ranks))} of {meeting.size}"

    with waiting_for(lambda: f"{names(absent())} to come to the process group"):
        while time.monotonic() < deadline and not meeting.has(keys):
            time.sleep(0.01)
    if missing := absent():
        text = f"{names(missing)} has not come to the process group within {meeting.timeout_s:g} s"
        raise CollectiveTimeout(f"{text}{_ABSENT}{_OPTION}", missing)
    return [meeting.value(key).decode() for key in keys]


def fetch(meeting: Meeting, key: str, what: str, rank: int, extra_s: float = 0.0, *, has_machine: bool = False) -> Any:
    """Return what a rank has set at a key, from JSON; raises CollectiveTimeout, or what that rank has failed with.

    With `has_machine` the rank has set `MACHINE` before, if it has come at all.  One that starts switch and controller
    may take longer than the group's time-out, which is for ranks that wait for one another.
    """
    limit_s, began, starts_at = meeting.timeout_s + extra_s, time.monotonic(), f"{STARTS}/{rank}"
    with waiting_for(f"rank {rank}, which {what}"):
        while not meeting.has([key]):
            meeting.check_open()
            waited_s, is_starting = time.monotonic() - began, False
            if waited_s > limit_s:
                is_starting = meeting.has([starts_at])
            if waited_s > (start_limit(SERVICES_S) + limit_s if is_starting else limit_s):
                option = f" ({HINT})" if is_starting else _OPTION
                absent = _ABSENT if has_machine and not meeting.has([f"{MACHINE}/{rank}"]) else ""
                raise CollectiveTimeout(
                    f"rank {rank}, which {what}, has not answered for {waited_s:.3g} s{absent}{option}", [rank]
                )
            time.sleep(0.001 if waited_s < 0.1 else 0.005 if waited_s < 1 else 0.02)
    found = json.loads(meeting.value(key))
    if isinstance(found, dict) and "error" in found:
        raise _error_of({"rank": rank, **found})
    return found


def tell_error(meeting: Meeting, key: str, error: Exception) -> None:
    """Let the other ranks raise an error where they fetch a key."""
    with suppress(RuntimeError):  # the store has ended, and they with it
        meeting.store.set(key, json.dumps(_as_text(error)))


def _as_text(error: Exception) -> dict[str, str]:
    if isinstance(error, SwitchsumError):
        return {"error": str(error), "kind": type(error).__name__}
    return {"error": f"{type(error).__name__}: {error}", "kind": LocalError.__name__}


def _error_of(found: dict[str, Any]) -> SwitchsumError:
    """Return what another rank has failed with."""
    named = rpc_codec.error_from_details(f"{found['kind']}: {found['error']}")
    if isinstance(named, CollectiveTimeout):
        return named
    return type(named)(f"rank {found['rank']}: {found['error']}")
