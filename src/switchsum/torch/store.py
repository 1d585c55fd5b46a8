"""Lets ranks of a process group exchange facts before they have a job, through the store that torch gives them."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import torch.distributed as dist

from switchsum.native.notices import waiting_for
from switchsum.protocol import rpc_codec
from switchsum.protocol.errors import CollectiveTimeout, SwitchsumError, UsageError

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

    def check_open(self) -> None:
        """Raise UsageError once the group is closed."""
        if self.closed.is_set():
            raise UsageError("the process group is closed: make another one with init_process_group")


def gather(meeting: Meeting, prefix: str) -> list[str]:
    """Return what every rank has set; raises CollectiveTimeout with those that have not."""
    deadline = time.monotonic() + meeting.timeout_s
    keys = [f"{prefix}/{rank}" for rank in range(meeting.size)]

    def absent() -> list[int]:
        return [rank for rank, key in enumerate(keys) if not meeting.store.check([key])]

    def names(ranks: list[int]) -> str:
        return f"rank {', '.join(map(str, ranks))} of {meeting.size}"

    with waiting_for(lambda: f"{names(absent())} to come to the process group"):
        while time.monotonic() < deadline and not meeting.store.check(keys):
            time.sleep(0.01)
    if missing := absent():
        text = f"{names(missing)} has not come to the process group within {meeting.timeout_s:g} s"
        raise CollectiveTimeout(text + _OPTION, missing)
    return [meeting.store.get(key).decode() for key in keys]


def fetch(meeting: Meeting, key: str, what: str, rank: int, extra_s: float = 0.0) -> Any:
    """Return what a rank has set at a key, from JSON; raises CollectiveTimeout, or what that rank has failed with.

    Without blocking in the store, which other threads use as well.
    """
    limit_s = meeting.timeout_s + extra_s
    deadline = time.monotonic() + limit_s
    with waiting_for(f"rank {rank}, which {what}"):
        while not meeting.store.check([key]):
            meeting.check_open()
            if time.monotonic() > deadline:
                raise CollectiveTimeout(
                    f"rank {rank}, which {what}, has not answered for {limit_s:g} s{_OPTION}", [rank]
                )
            time.sleep(0.005)
    value: bytes = meeting.store.get(key)
    found = json.loads(value)
    if isinstance(found, dict) and "error" in found:
        named = rpc_codec.error_from_details(f"{found['kind']}: {found['error']}")
        raise type(named)(f"rank {rank}: {found['error']}") if type(named) is not CollectiveTimeout else named
    return found


def tell_error(meeting: Meeting, key: str, error: SwitchsumError) -> None:
    """Let the other ranks raise an error where they fetch a key."""
    meeting.store.set(key, json.dumps({"error": str(error), "kind": type(error).__name__}))
