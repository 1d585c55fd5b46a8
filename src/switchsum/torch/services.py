"""A switch and a controller as children of rank 0, for a training on one machine that was given neither."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import time

from switchsum.launch.children import Children
from switchsum.launch.session import daemon
from switchsum.native.controller_client import ControllerClient
from switchsum.protocol.errors import SwitchsumError, UsageError
from switchsum.protocol.frame import LANE_BUILDS
from switchsum.torch.rendezvous import LEAVE_S


class LocalServices:
    """A running switch on shared memory, and its controller; they end with this process, however it ends."""

    def __init__(self) -> None:
        """Start both; raises LocalError."""
        if threading.current_thread() is not threading.main_thread():
            raise UsageError(
                "init_process_group outside the main thread cannot start a switch, which would end with that thread: "
                "start it yourself, and set SWITCHSUM_CONTROLLER"
            )
        self._pid = os.getpid()
        self._scratch = tempfile.mkdtemp(prefix="switchsum-")
        self._children = Children(self._scratch)
        self.link = f"shm:{self._scratch}/links"
        self.p4runtime = f"unix:{self._scratch}/p4runtime"
        try:
            command = ["switch", "--listen", self.p4runtime, "--shm", f"{self._scratch}/links"]
            _, facts = daemon(self._children, "switch", command)  # meanwhile another rank compiles what ranks run
            listen = f"unix:{self._scratch}/controller"
            command = ["controller", "--listen", listen, "--switch", str(facts["p4runtime"])]
            command += ["--lanes", str(max(LANE_BUILDS))]  # shared memory carries frames of any length
            _, facts = daemon(self._children, "controller", command)
            self.controller = str(facts["controller"])
        except BaseException:
            self._end()
            raise
        atexit.register(self.stop)

    def stop(self) -> None:
        """Let every member leave, and end both; does nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        atexit.unregister(self.stop)
        try:
            self._await_members()
        finally:
            self._end()

    def _await_members(self) -> None:
        deadline = time.monotonic() + LEAVE_S
        with ControllerClient(self.controller) as client:
            while time.monotonic() < deadline:
                try:
                    members = [member for job in client.list_jobs().jobs for member in job.members]
                except SwitchsumError:
                    return
                if not any(member.state in ("joined", "seen", "admitted") for member in members):
                    return
                time.sleep(0.02)

    def _end(self) -> None:
        self._children.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)
