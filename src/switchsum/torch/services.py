"""A switch and a controller as children of a rank, for a training that was given neither.

Both take a second to start, and so do the imports of a rank.  So rank 0 starts them before it imports what groups need
(`begin_early`), where its launcher says that all ranks share its machine.  This module imports little for that.
"""

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
from typing import TYPE_CHECKING, Any, Final

from switchsum.launch.daemons import Daemon, daemon
from switchsum.launch.runs import findable
from switchsum_protocol.errors import LocalError, SwitchsumError
from switchsum_protocol.states import HOLDING
from switchsum_switch.notices import ranks_of, waiting_for
from switchsum_switch.process.children import Children

if TYPE_CHECKING:
    from switchsum_protocol import rpc

LANES: Final = 2048
"""Lanes of a frame on one machine, the longest build (`LANE_BUILDS`): shared memory carries frames of any length."""
LEAVE_S: Final = 5.0
"""Seconds that the other ranks may take to leave before their job, or their switch, ends."""

_ON_THIS_MACHINE: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Variables in which torchrun, Open MPI and MPICH say how many ranks this machine has."""
_NAMES_A_SWITCH: Final = ("SWITCHSUM_CONTROLLER", "SWITCHSUM_LINK")


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
        self._starting: list[Daemon] = []
        atexit.register(self.stop)

    def start_switch(self, listen: str = "", udp: str = "", tls: Path | None = None) -> None:
        """Start the switch, with P4Runtime on a Unix socket unless `listen` says where else; raises LocalError."""
        command = ["switch", "--listen", listen or f"unix:{self.scratch}/p4runtime", "--shm", f"{self.scratch}/links"]
        command += ["--udp", udp] if udp else []
        self.p4runtime = str(self._start("switch", command, tls)["p4runtime"])

    def begin_alone(self) -> None:
        """Start the switch, and a controller of it alone, without waiting for them; raises LocalError."""
        self.p4runtime = f"unix:{self.scratch}/p4runtime"
        command = ["switch", "--listen", self.p4runtime, "--shm", f"{self.scratch}/links", "--prepare", str(LANES)]
        self._starting.append(Daemon(self._children, "switch", command))
        command = ["controller", "--listen", f"unix:{self.scratch}/controller", "--switch", self.p4runtime]
        self._starting.append(Daemon(self._children, "controller", [*command, "--lanes", str(LANES)]))

    def await_alone(self) -> None:
        """Wait for what `begin_alone` has started; raises LocalError."""
        self.controller = str([one.ready() for one in self._starting][-1]["controller"])
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
        from switchsum_switch.connections.tls import VARIABLE  # noqa: PLC0415 - which imports gRPC

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
            for one in self._starting:
                one.let_go()
            self._children.stop(at_once=True)  # nobody is in a job any more, and their files are removed below
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _await_members(self) -> None:
        from switchsum_protocol.clients.controller_client import ControllerClient  # noqa: PLC0415 - as above

        deadline = time.monotonic() + LEAVE_S
        here: dict[str, list[int]] = {}

        def whom() -> str:
            names = " and ".join(ranks_of(job, ranks) for job, ranks in here.items())
            return f"{names} to leave" if names else "the controller to say who has not left"

        with ControllerClient(self.controller) as client, waiting_for(whom):
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


_begun: list[LocalServices] = []
"""What `begin_early` has started and no group has taken yet, one at most."""


def begin_early(rank: int, size: int) -> None:
    """Start a switch and its controller, if a group of all ranks is sure to need them.

    So it is where rank 0's launcher says that all ranks are on one machine, and nobody has named a controller.  What
    cannot be started is tried again by `start_alone`, when all ranks can be told why.
    """
    here = next((os.environ[name] for name in _ON_THIS_MACHINE if name in os.environ), "")
    if rank or size < 2 or here != str(size) or any(os.environ.get(name) for name in _NAMES_A_SWITCH):
        return
    try:
        _begun.append(LocalServices())
        _begun[-1].begin_alone()
    except (OSError, LocalError):
        drop_begun()


def drop_begun() -> None:
    """End what no group has taken: there is none, or it has started other services."""
    while _begun:
        _begun.pop().stop()


def start_alone() -> LocalServices:
    """Start a switch on shared memory and its controller, for the ranks of one machine; raises LocalError."""
    from switchsum_host.links.warm import warm_up  # noqa: PLC0415 - `begin_early` does without

    services = _begun.pop() if _begun else LocalServices()
    try:
        if not services.p4runtime:
            services.begin_alone()
        warm_up(services.link)  # while they start; another rank compiles what is not in the cache
        services.await_alone()
    except BaseException:
        services.stop()
        raise
    return services
