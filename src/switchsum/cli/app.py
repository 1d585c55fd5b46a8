"""The typer application: its commands live one to a module and import what they need when they run."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Annotated

import typer

import switchsum
from switchsum.cli import job, observe
from switchsum.cli.agent import agent
from switchsum.cli.controller import controller
from switchsum.cli.doctor import doctor
from switchsum.cli.packets import capture, send
from switchsum.cli.run import run
from switchsum.cli.shell import shell
from switchsum.cli.shipped import demo, path
from switchsum.cli.switch import switch
from switchsum.cli.tls import tls
from switchsum.cli.warm import warm
from switchsum.protocol.errors import SwitchsumError, UsageError

USAGE_EXIT_CODE = 2
"""What click itself returns for options that it does not understand."""
INTERRUPT_EXIT_CODE = 128 + signal.SIGINT
"""What a shell returns for a command that an interrupt has ended."""

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)
"""What writing to a full disk and its like raises; a reader that is gone (EPIPE) ends a command without a word."""

app = typer.Typer(name="switchsum", no_args_is_help=True, pretty_exceptions_show_locals=False)
app.command()(run)
app.command()(demo)
app.command()(agent)
app.command()(switch)
app.command()(controller)
app.add_typer(job.app)
app.command()(observe.slots)
app.command()(observe.stats)
app.command()(observe.ports)
app.command("drop-probability")(observe.drop_probability)
app.command()(send)
app.command()(capture)
app.command()(shell)
app.command()(tls)
app.command()(doctor)
app.command()(warm)
app.command()(path)


def print_version(wanted: bool) -> None:
    """Print the version, and what must agree between machines, and leave, if the option was given."""
    if wanted:
        from switchsum import p4src
        from switchsum.protocol.ring import LAYOUT_DIGEST
        from switchsum.protocol.wire import WIRE_DIGEST, WIRE_VERSION

        typer.echo(f"switchsum {switchsum.__version__}")
        typer.echo(f"wire {WIRE_VERSION} ({WIRE_DIGEST}), ring {LAYOUT_DIGEST}, program {p4src.compiled_digest()[:8]}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
]


@app.callback()
def switchsum_command(version: VersionOption = False) -> None:
    """In-network allreduce for distributed training: a P4 switch adds gradients while they pass."""


def look_where_administrators_do() -> None:
    """Extend PATH by the folders of ip, tc and ethtool, which Debian leaves out of ordinary users' PATH."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in ("/usr/sbin", "/sbin") if folder not in path)])


def main() -> None:
    """Run the command line; the console script's entry.  An error that we raise on purpose is one line."""
    if sys.stdout is None:  # `>&-`: what a command prints would be lost, and the next file opened would take its place
        sys.exit("switchsum: standard output is closed; >/dev/null discards it")
    look_where_administrators_do()
    try:
        app()
    except KeyboardInterrupt:  # one that comes before typer runs a command, which it takes from there on
        sys.exit(INTERRUPT_EXIT_CODE)
    except SwitchsumError as error:
        typer.echo(f"switchsum: {error}", err=True)
        sys.exit(USAGE_EXIT_CODE if isinstance(error, UsageError) else 1)
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        sys.stdout = None  # so that Python does not write the rest once more at its end
        sys.exit(f"switchsum: the output cannot be written: {error.strerror}")
