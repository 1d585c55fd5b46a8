"""A switch and a controller as children of a rank, for a training that was given neither."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from switchsum.launch.runs import findable
from switchsum.launch.session import daemon
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.frame import LANE_BUILDS
from switchsum_protocol.states import HOLDING
from switchsum_switch.connections.tls import VARIABLE
from switchsum_switch.notices import ranks_of, waiting_for
from switchsum_switch.process.children import Children

LEAVE_S: Final = 5.0
"""Seconds that the other ranks may take to leave before their job, or their switch, ends."""


class LocalServices:
    """The switch and controller that one rank has started; they end with this process, however that ends."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._pid = os.getpid()
        self.scratch = Path(tempfile.mkdtemp(prefix="switchsum-"))
        self._children = Children(str(self.scratch))
        self.link = f"shm:{self.scratch}/links"
        """Link of this machine's workers to the switch."""
        self.p4runtime = ""
        """Address of the switch's P4Runtime server."""
        self.controller = ""
        """The controller's address; it may be another rank's."""
        self._findable = ExitStack()
        """Open while commands in another terminal can find the controller."""
        atexit.register(self.stop)

    def start_switch(self, listen: str = "", udp: str = "", tls: Path | None = None) -> None:
        """Start the switch, with P4Runtime on a Unix socket unless `listen` says where else; raises LocalError."""
        command = ["switch", "--listen", listen or f"unix:{self.scratch}/p4runtime", "--shm", f"{self.scratch}/links"]
        command += ["--udp", udp] if udp else []
        self.p4runtime = str(self._start("switch", command, tls)["p4runtime"])

    def start_controller(self) -> None:
        """Start the controller of this switch alone; raises LocalError."""
        command = ["controller", "--listen", f"unix:{self.scratch}/controller", "--switch", self.p4runtime]
        command += ["--lanes", str(max(LANE_BUILDS))]  # shared memory carries frames of any length
        self.controller = str(self._start("controller", command)["controller"])
        self._findable.enter_context(findable(self.controller))

    def start_fleet(self, listen: str, fleet: Mapping[str, Any], lanes_per_frame: int, tls: Path) -> None:
        """Start the controller of this switch and others; `fleet` is the file of `--fleet`.  Raises LocalError."""
        path = self.scratch / "fleet.json"
        path.write_text(json.dumps(fleet, indent=1), encoding="utf-8")
        local = f"unix:{self.scratch}/controller"  # commands here have no certificate, and need none
        command = ["controller", "--listen", listen, "--fleet", str(path), "--lanes", str(lanes_per_frame)]
        self.controller = str(self._start("controller", [*command, "--local", local], tls)["controller"])
        self._findable.enter_context(findable(local))

    def _start(self, name: str, command: list[str], tls: Path | None = None) -> dict[str, object]:
        environment = os.environ if tls is None else {**os.environ, VARIABLE: str(tls)}
        return daemon(self._children, name, command, environment=environment)[1]

    def stop(self) -> None:
        """Let every member leave, and end all; does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.stop)
        try:
            if self.controller:
                self._await_members()
        finally:
            self._findable.close()
            self._children.stop(at_once=True)  # nobody is in a job any more, and their files are removed below
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _await_members(self) -> None:
        deadline = time.monotonic() + LEAVE_S
        here: dict[str, list[int]] = {}

        def names() -> str:
            return " and ".join(ranks_of(job, ranks) for job, ranks in here.items())

        with ControllerClient(self.controller) as client, waiting_for(lambda: f"{names()} to leave"):
            while time.monotonic() < deadline:
                try:
                    here = {job.job: ranks for job in client.list_jobs().jobs if (ranks := ranks_in(job))}
                except SwitchsumError:
                    return
                if not here:
                    return
                time.sleep(0.02)


def ranks_in(job: rpc.JobInfo) -> list[int]:
    """Return the ranks that have joined a job and have not left it."""
    return [member.rank for member in job.members if member.state in HOLDING]


def start_alone() -> LocalServices:
    """Start a switch on shared memory and its controller, for the ranks of one machine; raises LocalError."""
    services = LocalServices()
    try:
        services.start_switch()  # meanwhile another rank compiles what ranks run
        services.start_controller()
    except BaseException:
        services.stop()
        raise
    return services
