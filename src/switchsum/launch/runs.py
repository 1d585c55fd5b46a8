"""Lets commands in another terminal find the controllers of jobs that `switchsum run` and torchrun have started.

Such a controller listens in a folder of its own, which is gone with the job.  While it runs, a symbolic link in the
directory of this user's sockets leads there: run-PID-NAME.  PID is the process that started the job.  NAME is the name
of its folder, because containers that share the directory may use one PID twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.connections.addresses import is_listening
from switchsum_switch.process.runtime_directory import UNIX, controller_address, distrust, path_of, runtime_directory

PREFIX: Final = "run-"


@contextmanager
def findable(controller: str) -> Iterator[None]:
    """Let this user's commands find a controller, at the address of a Unix socket, while the block runs.

    Where no directory can be trusted, or the disk is full, nobody finds it: that is no reason not to train.
    """
    link = None
    with suppress(OSError, LocalError):
        if (target := path_of(controller)) is not None:
            link = runtime_directory() / f"{PREFIX}{os.getpid()}-{Path(target).parent.name}"
            link.symlink_to(target)
    try:
        yield
    finally:
        with suppress(OSError):
            if link is not None:
                link.unlink(missing_ok=True)


def controller_to_ask() -> str:
    """Return this user's controller, or else that of the only job that runs.

    Raises UsageError where there are several, and LocalError where no directory can be trusted.
    """
    own = controller_address()
    if is_listening(own):
        return own
    found = controllers_of_runs()
    if len(found) > 1:
        listed = ", ".join(f"--controller {address}" for address in found)
        raise UsageError(f"{len(found)} jobs with their own controllers run here: name one with {listed}")
    return found[0] if found else own


def controllers_here() -> list[str]:
    """Return the addresses of all controllers of this user on this machine that listen; raises LocalError."""
    own = controller_address()
    return [*([own] if is_listening(own) else []), *controllers_of_runs()]


def controllers_of_runs() -> list[str]:
    """Return the addresses of the jobs' controllers; links that runs left behind which were killed are removed.

    Where such a link leads, another user may have made a folder of that name since.
    """
    found = []
    for link in sorted(runtime_directory().glob(f"{PREFIX}*")):
        with suppress(OSError):  # the job ends just now
            target = Path(os.path.realpath(link))  # Path.resolve raises RuntimeError where links lead in a circle
            if not target.exists() or distrust(target.parent) is not None:
                link.unlink(missing_ok=True)
            elif is_listening(f"{UNIX}{target}"):
                found.append(f"{UNIX}{target}")
    return found
