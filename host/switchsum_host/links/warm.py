"""Compile the engine's kernels before any frame is on its way: no time-out waits for a compiler."""

from __future__ import annotations

from switchsum_switch.kernels.outlined import Native, prepare

from ..engine.by_hand import restore_by_hand
from ..engine.loop import run, submit_and_run
from ..engine.state import BLOCK_KERNELS


def warm_up(link: str = "") -> None:
    """Compile every kernel of the engine, or load it; of processes that start together one compiles.

    With a link, as `connect` takes it, those of its loop as well, where they need nothing that a switch gives.
    """
    wanted: list[Native] = [run, submit_and_run, restore_by_hand, *BLOCK_KERNELS]
    if link.startswith("shm:"):
        from .shm import ShmTransport  # noqa: PLC0415 - a worker imports the one link that it has

        wanted += ShmTransport.natives.values()
    prepare(wanted)
