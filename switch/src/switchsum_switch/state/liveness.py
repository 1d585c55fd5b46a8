"""Which ports are up, and what follows from it: a replica whose port is down goes to one of its backups."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Protocol

from ..queues.queues import PORTS


class Follower(Protocol):
    """Something that depends on which ports are up."""

    def ports_changed(self) -> None:
        """Look again which ports are up."""
        ...


class Liveness:
    """The state of all ports; the programs of a switch share it.

    Example:
        >>> ports = Liveness()
        >>> ports.set(3, up=False)
        >>> ports.is_up(3), ports.is_up(4)
        (False, True)

    """

    def __init__(self, down: Iterable[int] = ()) -> None:
        """Begin with all ports up but for those that are `down`."""
        self._down = set(down)
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()

    def is_up(self, port: int) -> bool:
        """Whether a port is up."""
        return port not in self._down

    @property
    def down(self) -> frozenset[int]:
        """The ports that are down."""
        return frozenset(self._down)

    def set(self, port: int, *, up: bool) -> None:
        """Note that a port went up or down; raises ValueError if there can be no such port."""
        if not 0 <= port < PORTS:
            raise ValueError(f"there is no port {port}: ports are numbered from 0 to {PORTS - 1}")
        if up == self.is_up(port):
            return
        if up:
            self._down.discard(port)
        else:
            self._down.add(port)
        for follower in list(self._followers):
            follower.ports_changed()

    def follow(self, follower: Follower) -> None:
        """Tell somebody of each change, as long as he lives."""
        self._followers.add(follower)
