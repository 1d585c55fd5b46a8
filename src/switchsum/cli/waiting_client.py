"""A client of the controller that says what it waits for."""

from __future__ import annotations

from typing import Any

from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.clients.member_client import Reply
from switchsum_switch.notices import waiting_for


class WaitingClient(ControllerClient):
    """A connection to a controller, usable in a `with` block, for commands."""

    def call(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        timeout_s: float | None = None,
        patience_s: float = 0.0,
    ) -> Reply:
        """Call a method by its name; a call of more than two seconds says so."""
        with waiting_for(f"the controller at {self.address} to answer {method}"):
            return super().call(method, request, reply, timeout_s, patience_s)
