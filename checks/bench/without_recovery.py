"""The worker's kernels compiled without loss recovery, beside the ordinary ones: to see what recovery costs.

What is left out: timing rounds, looking for what was overtaken, probes, and what a restarted switch would need.  A
worker that runs these kernels waits for ever when a frame is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np

import switchsum_host.engine.loop
import switchsum_host.links
from switchsum_host.api.communicator import Communicator
from switchsum_host.engine import sending
from switchsum_host.engine.loop import Driver
from switchsum_host.engine.state import Core, Slot, State
from switchsum_switch.kernels.cache import open_directory
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.loading import kept_in
from switchsum_switch.kernels.memory import Scalar
from switchsum_switch.kernels.outlined import Native

_MODULES = ("engine.sending", "engine.recovery", "engine.receiving", "engine.loop")
"""Those that hold recovery's kernels, and those that such kernels are compiled into; in the order of imports."""


@inner
def _queue_contribution(state: State, index: int, row: int, now: float) -> None:
    sending.queue_frame(state, row)


@inner
def _of_state(state: State, now: float) -> None:
    pass


@inner
def _of_slot(core: Core, slot: Slot) -> None:
    pass


@inner
def _of_result(state: State, index: int, now: float) -> None:
    pass


@inner
def _never(core: Core) -> Scalar:
    return np.inf


_REPLACED = {
    "queue_contribution": _queue_contribution,
    "acknowledge": _of_slot,
    "note_result": _of_result,
    "repeat_overtaken": _of_state,
    "probe": _of_state,
    "probe_at": _never,
    "resend_outstanding": _of_state,
}


class WithoutRecovery:
    """A second set of kernels."""

    def __init__(self, cache: Path) -> None:
        """Load the modules a second time; what is compiled of them goes to `cache`, not to the ordinary one's place."""
        ordinary = {name: sys.modules.pop(f"switchsum_host.{name}") for name in _MODULES}
        store = open_directory(cache)
        try:
            with kept_in(lambda: store):
                self._modules = {name: self._load(name) for name in _MODULES}
        finally:
            for name, module in ordinary.items():
                sys.modules[f"switchsum_host.{name}"] = module
                package, _, own = name.partition(".")
                setattr(getattr(switchsum_host, package), own, module)

    @staticmethod
    def _load(name: str) -> ModuleType:
        module = import_module(f"switchsum_host.{name}")
        for replaced, stub in _REPLACED.items():
            if hasattr(module, replaced):
                setattr(module, replaced, stub)
        return module

    def warm_up(self, communicator: Communicator) -> None:
        """Compile what takes long; other processes then find it in the cache."""
        with self.used_by(communicator):
            communicator.queue.driver.step(0.0)

    @contextmanager
    def used_by(self, communicator: Communicator) -> Iterator[None]:
        """Have a communicator use these kernels; nothing may be in flight before or after."""
        driver, loop = communicator.queue.driver, self._modules["engine.loop"]
        assert isinstance(driver, Driver)
        ordinary = driver.kernels
        self._drive_by(driver, (loop.submit_and_run, loop.run))
        try:
            yield
        finally:
            self._drive_by(driver, ordinary)

    @staticmethod
    def _drive_by(driver: Driver, kernels: tuple[Native, Native]) -> None:
        driver.kernels = kernels
        driver.describe()
