"""`switchsum shell`: p4runtime-shell, attached to the switch."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from switchsum.cli.remote import CONTROLLER, ControllerOption, DeviceOption, connect
from switchsum_protocol.errors import LocalError


def shell(
    arguments: Annotated[list[str] | None, typer.Argument(help="More arguments for p4runtime-shell, after --.")] = None,
    switch: Annotated[
        str | None, typer.Option(help="P4Runtime server of the switch. Default: the controller's switch.")
    ] = None,
    device_id: DeviceOption = 0,
    controller: ControllerOption = CONTROLLER,
) -> None:
    """Start p4runtime-shell on the switch.

    Beside a running controller the shell can only read, because the controller is the primary client.  With
    `-- --election-id 1,0` the shell becomes the primary client, and running jobs end.
    """
    from switchsum.doctor.python import check_shell, find_shell_python

    python = find_shell_python()
    if python is None:
        finding = check_shell()
        raise LocalError(f"p4runtime-shell: {finding.found}; to install it: {finding.remedy}")
    if switch is None:
        with connect(controller) as client:
            switch = client.info().switch
    command = [str(python), "-m", "p4runtime_sh", "--grpc-addr", switch, "--device-id", str(device_id)]
    # Its own default is 2^64, which outbids every controller.  What the caller gives comes later, and counts.
    command += ["--election-id", "0,1"]
    os.execv(python, [*command, *(arguments or ())])
