"""What commands that ask a controller have in common."""

from __future__ import annotations

import errno
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from switchsum.protocol.errors import ControllerUnreachable, SwitchLost, UsageError
from switchsum.protocol.rpc import DEFAULT_CONTROLLER

if TYPE_CHECKING:
    from switchsum.controller.rpc_client import ControllerClient

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="SWITCHSUM_CONTROLLER", help="Controller to ask, host:port.")
]
CONTROLLER = DEFAULT_CONTROLLER
PATIENCE_S: Final = 10.0
"""How long a command waits for daemons that the line before it in a script has started; they take a second or two."""

Reply = TypeVar("Reply")


def check_address(address: str) -> None:
    """See whether a server could listen at `host:port`; raises UsageError with what to do if not."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:") or not port.isdigit():
        return
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
    from switchsum.controller.rpc_client import ControllerClient

    return ControllerClient(controller)


def persist(call: Callable[[], Reply], patience_s: float = PATIENCE_S) -> Reply:
    """Return what `call` does, tried again while there is no controller yet, or it has no switch yet."""
    deadline, told = time.monotonic() + patience_s, False
    while True:
        try:
            return call()
        except (ControllerUnreachable, SwitchLost) as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                who = "controller" if isinstance(error, ControllerUnreachable) else "switch"
                sys.stderr.write(f"switchsum: no {who} yet, waiting {patience_s:g} s for it\n")
                told = True
            time.sleep(0.2)
