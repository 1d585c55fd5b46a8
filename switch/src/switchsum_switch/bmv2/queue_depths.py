"""Sets the length and the rate of BMv2's egress queues, which only its Thrift server can do."""

from __future__ import annotations

import time
from typing import Final

from switchsum_switch.errors import LocalError

from .thrift import Client, Int64

_CALL_S: Final = 5.0
_RETRY_S: Final = 0.02


def set_queue_depths(port: int, frames: int, *, patience_s: float = 5.0) -> None:
    """Let every egress queue of the BMv2 whose Thrift server is at local `port` hold `frames`; raises LocalError.

    Otherwise a queue holds 64 frames, and drops further ones without counting them.  A BMv2 that has just been started
    may take `patience_s` until it serves Thrift.
    """
    _set(port, "simple_switch:set_all_egress_queue_depths", frames, patience_s)


def set_queue_rates(port: int, frames_per_s: int, *, patience_s: float = 5.0) -> None:
    """Let each egress queue of that BMv2 send so many frames a second; raises LocalError."""
    _set(port, "simple_switch:set_all_egress_queue_rates", Int64(frames_per_s), patience_s)


def _set(port: int, method: str, number: int | Int64, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with Client(port, 0.0, call_s=_CALL_S) as client:
                client.call(method, number)
                return
        except LocalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
