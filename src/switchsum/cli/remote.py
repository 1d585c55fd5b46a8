"""Options and functions of all commands that call a controller, and checks of addresses."""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from switchsum_protocol.errors import ControllerUnreachable, SwitchLost, UsageError
from switchsum_switch.connections.addresses import check_form
from switchsum_switch.process.runtime_directory import controller_address

if TYPE_CHECKING:
    from switchsum_protocol.clients.controller_client import ControllerClient

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="SWITCHSUM_CONTROLLER", help="Controller to ask, host:port or unix:path.")
]
DeviceOption = Annotated[int, typer.Option("--device-id", min=0, max=2**64 - 1, help="Device id of P4Runtime.")]
CONTROLLER: Final = ""
"""Default of the option: this user's controller."""
PATIENCE_S: Final = 60.0
"""Seconds that a command waits for a controller or switch that does not answer yet, unless --wait says otherwise. A
script starts both in the line before. They need a second or two, or half a minute on a busy machine or one that has
compiled nothing yet.
"""

LAST_SWITCH_PORT: Final = 510
"""Largest port number of a switch: v1model's ports have 9 bits, and 511 means drop."""

Reply = TypeVar("Reply")


def check_address(address: str) -> None:
    """Check that a server can listen at an address; raises UsageError that says what to do."""
    check_form(address)
    if address.startswith("unix:"):
        return
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        [(family, kind, _, _, place), *_] = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        remedy = {
            errno.EADDRINUSE: f"`ss -lntp sport = :{port}` says by whom; --listen takes another address (port 0: any)",
            errno.EADDRNOTAVAIL: "`ip -brief address` lists those of this machine",
            errno.EACCES: "ports below 1024 are for root; --listen takes another",
        }.get(error.errno or 0, "--listen takes another address")
        raise UsageError(f"cannot listen at {address}: {error.strerror}: {remedy}") from error


def connect(controller: str) -> ControllerClient:
    """Return a client of the controller at an address."""
    from switchsum.cli.waiting_client import WaitingClient

    controller = address_of(controller)
    check_form(controller)
    return WaitingClient(controller)


def connect_to_look(controller: str) -> ControllerClient:
    """Return a client for a command that changes nothing: of the controller given, or of the one to ask.

    Raises UsageError where there are several to choose from.
    """
    from switchsum.launch.runs import controller_to_ask

    return connect(controller or controller_to_ask())


def address_of(controller: str) -> str:
    """Return the address of a controller: the given one, or else that of this user's; raises LocalError."""
    return controller or controller_address()


def persist(call: Callable[[], Reply], patience_s: float = PATIENCE_S) -> Reply:
    """Return the result of `call`; try again while no controller answers, or while it has no switch."""
    deadline, has_said = time.monotonic() + patience_s, False
    while True:
        try:
            return call()
        except (ControllerUnreachable, SwitchLost) as error:
            if time.monotonic() >= deadline:
                raise
            if not has_said:
                who = "controller" if isinstance(error, ControllerUnreachable) else "switch"
                sys.stderr.write(f"switchsum: no {who} yet, waiting {patience_s:g} s (--wait) for it\n")
                has_said = True
            time.sleep(0.2)
