"""One controller: a reconciler, its upkeep, and the two services that are given the reconciler."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .agreements import Agreements
from .config import Config
from .members import Members
from .reconciler import Reconciler
from .upkeep import Upkeep
from .users import Users


class Controller:
    """The parts of a controller of one or several switches."""

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic, **options: Any) -> None:
        """Make one; `options` are those of `Reconciler`."""
        self.reconciler = Reconciler(config, clock, **options)
        """Has the jobs and the switches, behind one lock."""
        self.upkeep = Upkeep(self.reconciler)
        """Has the loop: `run` on the main thread."""
        self.members = Members(self.reconciler)
        """Answers members."""
        self.agreements = Agreements(self.reconciler, self.members)
        """Answers members who ask who takes part in an operation."""
        self.users = Users(self.reconciler)
        """Answers users."""
