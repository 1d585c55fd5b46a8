"""What commands that ask a controller have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.protocol.rpc import DEFAULT_CONTROLLER

if TYPE_CHECKING:
    from switchsum.controller.rpc_client import ControllerClient

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="SWITCHSUM_CONTROLLER", help="Controller to ask, host:port.")
]
CONTROLLER = DEFAULT_CONTROLLER


def connect(controller: str) -> ControllerClient:
    """Return a client of the controller at an address."""
    from switchsum.controller.rpc_client import ControllerClient

    return ControllerClient(controller)
