"""The typer application.

Each command has a module of its own, which is imported where that command is meant, or all are to be shown.  A command
imports what it needs when it runs, so that `switchsum --help` does not wait for numpy and numba.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from typing import Annotated, Any, Final

import typer

import switchsum
from switchsum import extensions
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_switch.connections.threads import is_exhausted

USAGE_EXIT_CODE = 2
"""Exit code for wrong options, the same as click's."""
INTERRUPT_EXIT_CODE = 128 + signal.SIGINT
"""Exit code after an interrupt, the same as a shell's."""

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""Errors of writing the output, such as a full disk.  If the reader has ended (EPIPE), a command ends silently."""

ELSEWHERE: Final = ""
"""Stands for a command that another distribution brings (`switchsum.extensions`)."""
COMMANDS: Final = {
    "run": "run:run",
    "demo": "shipped:demo",
    "agent": "agent:agent",
    "switch": "switch:app",
    "controller": "controller:controller",
    "job": "job:app",
    "topology": "topology:app",
    "tree": "tree:app",
    "network": "network:network",
    "simulate": ELSEWHERE,
    "sweep": ELSEWHERE,
    "plan": ELSEWHERE,
    "link": "link:app",
    "aggregator": "switch:aggregator",
    "slots": "observe:slots",
    "stats": "observe:stats",
    "ports": "observe:ports",
    "explain": "explain:explain",
    "exercise": "exercise:app",
    "top": "top:top",
    "drop-probability": "observe:drop_probability",
    "send": "packets:send",
    "capture": "packets:capture",
    "replay": "packets:replay",
    "conform": ELSEWHERE,
    "compare": ELSEWHERE,
    "stf": "stf:stf",
    "trace": "stf:trace",
    "differ": "stf:differ",
    "shell": "shell:shell",
    "tls": "tls:tls",
    "doctor": "doctor:doctor",
    "warm": "warm:warm",
    "path": "shipped:path",
}
"""Commands in the order of `--help`: the module of each, and what that has of it, a function or an application."""


def application(only: str = "") -> typer.Typer:
    """Return the command line with all commands, or with one alone.

    A job waits for the start of its switch, controller and `run`.  So these import only their own command: to import
    all commands and describe their options to typer took a fifth of a command's processor time.
    """
    app = typer.Typer(name="switchsum", no_args_is_help=True, pretty_exceptions_show_locals=False)
    app.callback()(switchsum_command)
    for name in (only,) if only else _all_names():
        command = _command(name)
        if isinstance(command, typer.Typer):
            app.add_typer(command)
        else:
            app.command(name)(command)
    return app


def _all_names() -> list[str]:
    """Return our commands and those of other distributions that are installed, in the order of `--help`."""
    others = extensions.names(extensions.COMMANDS)
    return [name for name in COMMANDS if COMMANDS[name] != ELSEWHERE or name in others] + [
        name for name in others if name not in COMMANDS
    ]


def _command(name: str) -> Any:
    """Return a command: a function, or an application of several."""
    where = COMMANDS.get(name, ELSEWHERE)
    if where == ELSEWHERE:
        return extensions.load(extensions.COMMANDS, name, f"switchsum {name}")
    module, _, attribute = where.partition(":")
    return getattr(import_module(f"switchsum.cli.{module}"), attribute)


def print_version(wanted: bool) -> None:
    """If the option was given, print the version and the digests that must be equal on all machines, and exit."""
    if wanted:
        from switchsum import p4src
        from switchsum_protocol.frame import WIRE_DIGEST, WIRE_VERSION
        from switchsum_switch.wires.outbox import LAYOUT_DIGEST

        typer.echo(f"switchsum {switchsum.__version__}")
        typer.echo(f"wire {WIRE_VERSION} ({WIRE_DIGEST}), ring {LAYOUT_DIGEST}, program {p4src.compiled_digest()[:8]}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
]


def switchsum_command(version: VersionOption = False) -> None:
    """In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""


def look_where_administrators_do() -> None:
    """Append the folders of ip, tc and ethtool to PATH; on Debian, ordinary users do not have them there."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in ("/usr/sbin", "/sbin") if folder not in path)])


def main() -> None:
    """Run the command line; entry of the console script.  A SwitchsumError is printed as one line."""
    # After `>&-` there is no standard output: the output would be lost, and the next file that is opened would get its
    # descriptor.
    if sys.stdout is None:
        sys.exit("switchsum: standard output is closed; >/dev/null discards it")
    look_where_administrators_do()
    try:
        first = sys.argv[1] if len(sys.argv) > 1 else ""
        application(first if first in COMMANDS else "")()
    except KeyboardInterrupt:  # an interrupt before typer runs a command; later ones typer handles itself
        sys.exit(INTERRUPT_EXIT_CODE)
    except SwitchsumError as error:
        typer.echo(f"switchsum: {error}", err=True)
        try:
            sys.stdout.flush()
        except OSError:
            sys.stdout = None  # else Python would try to write the rest again when it ends, and end with another code
        sys.exit(USAGE_EXIT_CODE if isinstance(error, UsageError) else 1)
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        sys.stdout = None  # as above
        sys.exit(f"switchsum: the output cannot be written: {error.strerror}")
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_exhausted(error):
            raise
        what = "no thread could be started" if isinstance(error, RuntimeError) else "there is no memory left"
        sys.exit(f"switchsum: {what}; limits of this process: ulimit -v, ulimit -u, or its container's")
