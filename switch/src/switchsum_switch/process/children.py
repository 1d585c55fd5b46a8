"""The launcher's child processes: it starts them, watches them and ends them together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Final

from switchsum_switch.errors import LocalError
from switchsum_switch.notices import waiting_for
from switchsum_switch.process.ending import Guard, shell_code
from switchsum_switch.process.lasting import on_lasting_thread

OURSELVES: Final = (sys.executable, "-P", "-m", "switchsum")
"""The command `switchsum` with this interpreter.  With -P nothing in the current directory, such as a folder with the
name `switchsum`, is imported in its place."""
STOP_S = 3.0
"""Seconds that a child may take to end after SIGTERM. Then it is killed."""
POLL_S = 0.05
LAST_LINES_S = 0.5
"""Seconds in which the last lines of a child that has ended are read."""
TRACEBACK: Final = "Traceback (most recent call last):"
DRAIN_S = 3.0
"""Seconds without a new line after which the output of ended children counts as complete. A process that they have
left behind may keep their pipes open, and the reader of our output may have stopped reading.
"""


@dataclass(slots=True, kw_only=True)
class Child:
    """One child process."""

    name: str
    """Name of the child in messages and in front of its output."""
    process: subprocess.Popen[bytes]
    may_end: bool = False
    """The job continues when this child has ended, with any exit code."""
    pumps: list[threading.Thread] = field(default_factory=list)
    """Threads that copy its output."""
    error: str = ""
    """Last line of a Python traceback in its standard error, if that was copied: why it has ended."""

    def ending(self, code: int) -> str:
        """Say that it has ended with this exit code of a shell, and why, as far as it has told."""
        for pump in self.pumps:
            pump.join(LAST_LINES_S)
        name, colon, text = self.error.partition(":")
        why = f" ({name.rpartition('.')[2]}{colon}{text})" if self.error else ""
        return f"{self.name} ended with exit code {code}{why}"


class Children:
    """Starts processes that end with this one at the latest, and ends all of them at the end of the `with` block.

    Each child leads a process group of its own, so that processes which it starts can be ended with it.  If this
    process is killed, the kernel kills each child at once (`setpriv --pdeathsig`), and a `Guard` kills the rest of the
    groups.
    """

    def __init__(self, scratch: str | None = None) -> None:
        """Have a `Guard` remove the folder `scratch` if this process is killed; otherwise that is the caller's."""
        self._scratch = scratch
        self._children: list[Child] = []
        self._output = threading.Lock()
        self._lines = 0
        self._lost: OSError | None = None
        self._guard: Guard | None = None

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        prefix: bool = False,
        quiet: bool = False,
        may_end: bool = False,
        pass_fds: Sequence[int] = (),
    ) -> Child:
        """Start a child.

        With `prefix` its name is in front of each line of its output, with `quiet` only its errors are shown.  With
        `may_end` it is no failure if it ends.  The kernel kills a child when the *thread* that started it ends.  So
        outside the main thread, one that lives as long as this process starts it.  Raises FileNotFoundError if
        `setpriv` (util-linux) is missing; if the command is missing, the exit code is 127, or 126 where PATH has a
        folder that this user may not read: the missing command could be there.
        """
        if self._guard is None:
            self._guard = Guard()
            if self._scratch is not None:
                self._guard.remove(os.path.abspath(self._scratch))
        process = on_lasting_thread(
            lambda: subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else subprocess.PIPE if prefix else None,
                stderr=subprocess.PIPE if prefix else None,
                pass_fds=pass_fds,
                process_group=0,
            )
        )
        child = Child(name=name, process=process, may_end=may_end)
        self._children.append(child)
        self._guard.watch(process.pid)
        for source, sink in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            if source is not None:
                pump = threading.Thread(target=self._copy, args=(child, source, sink), daemon=True)
                pump.start()
                child.pumps.append(pump)
        return child

    def _copy(self, child: Child, source: IO[bytes], sink: IO[str]) -> None:
        """Copy output line by line with a prefix, under a lock, so that lines of several children do not mix."""
        is_raised = False
        with source:
            for line in source:
                text = line.decode(errors="replace").rstrip("\n")
                if is_raised and not text.startswith(" "):
                    child.error, is_raised = text, False
                is_raised |= text == TRACEBACK
                with self._output:
                    self._lines += 1
                    if self._lost is not None:
                        continue  # the child is ended soon; until then it must not block on a full pipe
                    try:
                        sink.write(f"[{child.name}] {text}\n")
                        sink.flush()
                    except OSError as error:
                        self._lost = error

    def wait(self, workers: Sequence[Child]) -> tuple[Child | None, int]:
        """Wait until all `workers` have ended with exit code 0, or a child has failed.

        Returns (None, 0), or the first child that failed and its exit code as a shell gives it.  A child that is not a
        worker fails if it ends at all, unless it may end.  Of workers that may end one has to end with exit code 0.
        Raises BrokenPipeError if nobody reads the children's output any more, and LocalError if it cannot be written
        for another reason.
        """
        while True:
            self._check_output()
            if (failed := self.failed(workers)) is not None:
                return failed
            codes = [child.process.poll() for child in workers]
            if all(
                code == 0 or (child.may_end and code is not None) for child, code in zip(workers, codes, strict=True)
            ):
                self._drain(workers)
                self._check_output()
                return (None, 0) if 0 in codes else (workers[0], shell_code(codes[0] or 0))
            time.sleep(POLL_S)

    def failed(self, workers: Sequence[Child] = ()) -> tuple[Child, int] | None:
        """Return the first child that has failed, if one has, and its exit code as a shell gives it."""
        for child in self._children:
            code = child.process.poll()
            if code is not None and not child.may_end and (code != 0 or child not in workers):
                return child, shell_code(code)
        return None

    def _check_output(self) -> None:
        if isinstance(self._lost, BrokenPipeError):
            raise self._lost
        if self._lost is not None:
            raise LocalError(f"the output of the job cannot be written: {self._lost.strerror}")

    def _drain(self, children: Sequence[Child]) -> None:
        """Copy the rest of the output of children that have ended, until no line has come for DRAIN_S."""
        pumps = [pump for child in children for pump in child.pumps]
        seen, deadline = self._lines, time.monotonic() + DRAIN_S
        with waiting_for("processes that ended ranks have left behind, because they may still write"):
            while (pumps := [pump for pump in pumps if pump.is_alive()]) and time.monotonic() < deadline:
                pumps[0].join(timeout=POLL_S)
                if self._lines != seen:
                    seen, deadline = self._lines, time.monotonic() + DRAIN_S

    def stop(self, *, at_once: bool = False) -> None:
        """End every child that still runs, with all processes of its group, and copy the rest of their output.

        `at_once`: they have nothing left to do, and are killed.  One that has become another user's cannot be ended:
        that is said, and it goes on.
        """
        for child in reversed(self._children):
            _signal_group(child, signal.SIGKILL if at_once else signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        with waiting_for(
            lambda: f"{', '.join(one.name for one in self._children if one.process.poll() is None)} to end"
        ):
            for child in self._children:
                try:
                    child.process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    pass
                # Also processes that the child has left behind in its group.
                if _signal_group(child, signal.SIGKILL) or child.process.poll() is not None:
                    child.process.wait()
                else:
                    sys.stderr.write(f"switchsum: {child.name} is another user's and goes on: {child.process.pid}\n")
        self._drain([child for child in self._children if child.process.poll() is not None])
        self._children.clear()
        if self._guard is not None:
            self._guard.dismiss()
            self._guard = None


def _signal_group(child: Child, number: signal.Signals) -> bool:
    """Send a signal to a child's processes; return False if they are another user's, as those of `sudo` are."""
    try:
        os.killpg(child.process.pid, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    return True
