"""Limits how long a start waits for controller and switch, and says what is missing when they have not come.

On a busy machine everything that starts is late, and nothing is broken.  So a part waits long for a process that is
known to be there, and says what it waits for.  A process that has ended is noticed at once.
"""

from __future__ import annotations

import os
from typing import Final

from switchsum_protocol.errors import ControllerUnreachable, SwitchLost
from switchsum_switch.connections.addresses import is_listening
from switchsum_switch.process.runtime_directory import UNIX
from switchsum_switch.process.start_limit import HINT

LAUNCHER_VARIABLE: Final = "SWITCHSUM_LAUNCHER"
"""Environment variable in which a launcher tells its workers who has started their controller."""
_NOTHING_LISTENS: Final = "failed to connect"
"""How gRPC begins where nothing listens: what follows says no more than that, in raw terms."""
ANSWER_S: Final = 60.0
"""Seconds that a running controller or switch may take to answer: milliseconds if cores are free."""
_launchers: dict[str, str] = {}
"""Name of the program that has started the controller, by the controller's address."""
_switches: dict[str, str] = {}
"""P4Runtime address of the switch that was started with a controller and ends with it, by the controller's address."""


def note_launcher(address: str, launcher: str, switch: str) -> None:
    """Remember who has started the controller at an address, and the switch whose P4Runtime address is `switch`."""
    _launchers[address] = launcher
    _switches[address] = switch


def is_noted(address: str) -> bool:
    """Return whether `note_launcher` was told about the controller at an address."""
    return address in _switches


def launcher_has_ended(address: str) -> SwitchLost | None:
    """Return the error for a controller that has ended with the switch that was started with it; None: one is there.

    Nobody starts these two again: the process that had started them has ended.
    """
    if not is_noted(address) or is_listening(address) or is_listening(_switches[address]):
        return None
    return SwitchLost(f"{_launchers[address]}, which had started switch and controller, has ended, and they with it")


def switch_has_ended(address: str) -> SwitchLost | None:
    """Return the error where the switch has ended that came with the controller at an address; None: it is there.

    Nobody starts it again, and the process that had started it may go on: its ranks need not wait for it.
    """
    if not is_noted(address) or is_listening(_switches[address]):
        return None
    return SwitchLost(f"the switch that {_launchers[address]} had started has ended: its output says why")


def nobody_there(address: str, method: str, details: str) -> ControllerUnreachable:
    """Return the error for a controller that is not there."""
    launcher = _launchers.get(address) or os.environ.get(LAUNCHER_VARIABLE)
    if launcher:
        remedy = f"{launcher} had started it, and it has ended: the lines that it printed say why"
    elif not address.startswith(UNIX) and is_listening(address):
        remedy = "something listens there: one side may use TLS and the other not (SWITCHSUM_TLS, docs/security.md)"
    else:
        remedy = "`switchsum controller` starts one, or SWITCHSUM_CONTROLLER says where it is"
        if details.startswith(_NOTHING_LISTENS):
            return ControllerUnreachable(f"no controller answers at {address}; {remedy}")
    return ControllerUnreachable(f"no controller answers at {address}; {remedy} ({method}: {details})")


def too_busy(address: str, method: str, waited_s: float) -> ControllerUnreachable:
    """Return the error for a controller that is there, and has not answered."""
    return ControllerUnreachable(
        f"the controller at {address} listens but has not answered {method} for {waited_s:g} s: it or its switch is "
        f"stopped, or gets no processor time ({HINT})"
    )
