"""The thread that sends controllers what no call and no packet-in brings them: digests and idle timeouts."""

from __future__ import annotations

from threading import Event, Thread
from typing import Final

from switchsum_switch.connections.threads import Exhausted, start

from .device import Pipeline
from .service import Service

LOOK_S: Final = 0.01
"""How often the thread looks while a program has digests or idle timeouts."""
IDLE_LOOK_S: Final = 0.2
"""How often it looks whether such a program has come."""


class Notices:
    """Calls `Service.tell_due` from construction to `close`."""

    def __init__(self, service: Service[Pipeline], exhausted: Exhausted) -> None:
        self._stopped = Event()
        self._thread = Thread(target=self._run, args=(service,), name="p4runtime-notices", daemon=True)
        self._started = start(self._thread, exhausted)

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._started:
            self._thread.join()

    def _run(self, service: Service[Pipeline]) -> None:
        while not self._stopped.wait(LOOK_S if service.tells else IDLE_LOOK_S):
            service.tell_due()
