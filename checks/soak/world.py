"""A switch, a controller and workers as processes, started and ended; and what may be left of them."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from switchsum.launch.daemons import daemon
from switchsum_switch.bmv2.process import free_port
from switchsum_switch.process.children import Child, Children

MARK: Final = "SWITCHSUM_SOAK"
"""Environment variable by which processes of a soak are told from others."""
END_S: Final = 20.0


class WorkerProcess:
    """A worker process that takes one order at a time."""

    def __init__(self, index: int, environment: dict[str, str], reports: queue.SimpleQueue[Any]) -> None:
        self.index = index
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", "checks.soak.worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.was_killed = False
        self.jobs = 0
        self._thread = threading.Thread(target=self._read, args=(reports,), daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def _read(self, reports: queue.SimpleQueue[Any]) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                reports.put((self, json.loads(line)))
        reports.put((self, None))

    def order(self, **what: Any) -> None:
        """Send the worker to a job."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process, whatever it is doing."""
        self.was_killed = True
        self.process.kill()

    def end(self) -> int:
        """Let the process end; return its exit code."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            code = self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._thread.join(END_S)
        return code


class World:
    """Switch and controller, and places for workers."""

    shared_slots = 0
    """Slots that jobs may share."""

    def __init__(self, children: Children, scratch: Path) -> None:
        self.mark = f"soak-{os.getpid()}"
        self.controller = f"unix:{scratch}/controller"
        self.reports: queue.SimpleQueue[Any] = queue.SimpleQueue()
        os.environ[MARK] = self.mark
        self._children, self._scratch = children, scratch
        self.switches: dict[str, Child] = {}
        self.controller_child, _ = daemon(
            children, "controller", ["controller", "--listen", self.controller, *self._start_switches()]
        )

    def _start_switches(self) -> list[str]:
        """Start all switches; return the controller's options."""
        command = ["switch", "--listen", f"unix:{self._scratch}/p4runtime", "--shm", self.mark]
        self.switches["switch"], facts = daemon(self._children, "switch", command)
        return ["--switch", str(facts["p4runtime"])]

    def link(self, index: int) -> str:
        """Return the link of a place."""
        return f"shm:{self.mark}"

    def place(self, index: int) -> WorkerProcess:
        """Start a worker."""
        environment = {
            **os.environ,
            "SWITCHSUM_CONTROLLER": self.controller,
            "SWITCHSUM_LINK": self.link(index),
            "OMP_NUM_THREADS": "1",
        }
        return WorkerProcess(index, environment, self.reports)

    def daemons(self) -> dict[str, Child]:
        """Return the processes that live from start to end, by name."""
        return {**self.switches, "controller": self.controller_child}


class TreeWorld(World):
    """A root and leaves, which are killed and started again."""

    aggregators: tuple[str, ...] = ()
    """Further switches, which are no leaves."""

    def __init__(self, children: Children, scratch: Path, leaves: int = 0) -> None:
        self._names = ["root", *(f"leaf{at}" for at in range(leaves)), *self.aggregators]
        self._commands: dict[str, list[str]] = {}
        super().__init__(children, scratch)

    def _start_switches(self) -> list[str]:
        fleet = {}
        for name in self._names:
            p4runtime, udp = f"unix:{self._scratch}/{name}", f"127.0.0.1:{free_port()}"
            fleet[name] = {"p4runtime": p4runtime, "udp": udp, **self._place_of(name)}
            self._commands[name] = [
                "switch",
                "--listen",
                p4runtime,
                "--udp",
                udp,
                "--shm",
                f"{self._scratch}/{name}.shm",
            ]
            self._start(name)
        path = self._scratch / "fleet.json"
        path.write_text(json.dumps({"switches": fleet, "shared_slots": self.shared_slots}))
        return ["--fleet", str(path)]

    def _place_of(self, name: str) -> dict[str, str | None]:
        """Return what the fleet's file says of a switch, beside its addresses."""
        return {"above": None if name == "root" else "root"}

    def _start(self, name: str) -> None:
        self.switches[name], _ = daemon(self._children, name, self._commands[name])

    def link(self, index: int) -> str:
        """Return the link of a place: places take turns among the leaves."""
        return f"shm:{self._scratch}/{self._names[1 + index % (len(self._names) - 1)]}.shm"

    def kill_switches(self, names: Sequence[str]) -> None:
        """Kill switches, all before any is started again."""
        for name in names:
            self.switches[name].may_end = True
            self.switches[name].process.kill()
            self.switches[name].process.wait()
        for name in names:
            (self._scratch / name).unlink(missing_ok=True)
            self._start(name)

    def daemons(self) -> dict[str, Child]:
        """Return the controller: switches come and go."""
        return {"controller": self.controller_child}


class SharedWorld(TreeWorld):
    """A switch whose slots jobs share, and their aggregator: both are killed and started again."""

    shared_slots = 32
    aggregators = ("spare",)

    def _place_of(self, name: str) -> dict[str, str | None]:
        return {"role": "aggregator" if name in self.aggregators else None}

    def link(self, index: int) -> str:
        """Return the link of a place: all are at the root."""
        return f"shm:{self._scratch}/root.shm"


def processes_with(variable: str) -> list[int]:
    """Return the ids of processes that have NAME=VALUE in their environment, as far as this user may look."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if variable.encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def leftovers(mark: str) -> list[str]:
    """Return what is left of a soak after its end: processes, sockets, files in shared memory, namespaces."""
    found = [f"process {pid}" for pid in processes_with(f"{MARK}={mark}") if pid != os.getpid()]
    found += [f"socket {line.split()[-1]}" for line in Path("/proc/net/unix").read_text().splitlines() if mark in line]
    for folder in (Path("/dev/shm"), Path("/run/netns")):
        if folder.is_dir():
            found += [str(path) for path in folder.iterdir() if mark in path.name]
    return found
