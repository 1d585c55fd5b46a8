"""Compile the engine's kernels before any frame is on its way: no time-out waits for a compiler."""

from __future__ import annotations

from switchsum.native.natives import prepare

from ..engine.loop import BEGIN, RUN
from ..engine.state import BLOCK_KERNELS
from ..engine.worker import RESTORE
from .shm import ShmTransport


def warm_up(link: str = "") -> None:
    """Compile every kernel of the engine, or load it; of processes that start together one compiles.

    With a link, as `connect` takes it, those of its loop as well, where they need nothing that a switch gives.
    """
    operations = ShmTransport.natives.values() if link.startswith("shm:") else ()
    prepare((RUN, BEGIN, RESTORE, *BLOCK_KERNELS.values(), *operations))
