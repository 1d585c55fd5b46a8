"""The switches of one network: each is kept as it should be, alone; a change comes to all of them or to none.

A switch may come, go, be restarted and be replaced at any time, and none waits for another one: `keep` connects with
one switch and writes what it lacks.  `change` is for a job that uses several: it needs all of them, and where one does
not take its part, the others get back what they had.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from switchsum.protocol.errors import RemoteError

from .connection import SwitchConnection
from .entries import SwitchState


class Fleet:
    """Switches by name, and what each of them should have."""

    def __init__(self, connections: Mapping[str, SwitchConnection]) -> None:
        self.connections = dict(connections)
        self.loads = dict.fromkeys(self.connections, 0)
        """How often each switch was given its program; each time it has forgotten all rounds."""
        self._desired: dict[str, SwitchState] = {}
        """What each switch should have; one that is not here keeps what it has."""
        self._lock = threading.RLock()

    def keep(self, name: str) -> bool:
        """Connect with a switch if it is away, and write what it lacks; return whether it has all now.

        Errors are logged: whoever calls this calls it again.  Connecting may take long, and holds up no other switch.
        """
        connection = self.connections[name]
        try:
            if not connection.is_up:
                switch, was_loaded = connection.open()
                with self._lock:
                    connection.attach(switch)
                    self.loads[name] += was_loaded
            with self._lock:
                connection.put(self._desired.get(name, connection.current))
        except RemoteError as error:
            with self._lock:
                connection.note(error)
            return False
        return True

    def change(self, desired: Mapping[str, SwitchState]) -> None:
        """Bring switches to new states, one after the other in this order.

        Raises SwitchLost before anything is written if one is away, and the error of one that does not take its state;
        what was written before that is taken back, on a switch that is lost meanwhile by the next `keep`.
        """
        with self._lock:
            before = {}
            for name in desired:
                self.connections[name].need()
                before[name] = self._desired.get(name, self.connections[name].current)
            begun: list[str] = []
            try:
                for name, state in desired.items():
                    begun.append(name)
                    self.connections[name].put(state)
            except RemoteError:
                for name in reversed(begun):
                    self._take_back(name, before[name])
                raise
            self._desired.update(desired)

    def _take_back(self, name: str, state: SwitchState) -> None:
        """Bring a switch to the state that it had; one that is lost now gets it when it is back."""
        self._desired[name] = state
        connection = self.connections[name]
        try:
            if connection.is_up:
                connection.put(state)
        except RemoteError as error:
            connection.note(error)

    def lose(self, name: str, error: RemoteError) -> None:
        """Note that the connection with a switch has ended."""
        with self._lock:
            self.connections[name].detach(error)

    def close(self) -> None:
        """Close all connections; the entries stay on the switches."""
        with self._lock:
            for connection in self.connections.values():
                connection.close()
