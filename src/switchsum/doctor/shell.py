"""Finds a Python that can run p4runtime-shell.

The shell's generated modules fail with protobuf 3.21 and later.  If this environment has a newer protobuf, the shell
needs an environment of its own.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from switchsum.doctor.finding import Finding, Verdict
from switchsum.doctor.python import has_module, version_of

FIRST_PROTOBUF_THAT_FAILS = (3, 21)
PYTHON_VARIABLE = "SWITCHSUM_P4RT_SHELL_PYTHON"


def shell_environment() -> Path:
    """Return the virtual environment that `switchsum shell` uses if this one cannot run the shell."""
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "switchsum" / "shell"


def runs_here() -> bool:
    """Return whether this environment has p4runtime-shell and a protobuf that it can use."""
    version = tuple(int(part) for part in version_of("protobuf").split(".")[:2] if part.isdigit())
    return has_module("p4runtime_sh") and version < FIRST_PROTOBUF_THAT_FAILS


def find_shell_python() -> Path | None:
    """Return an interpreter that can run `-m p4runtime_sh`, or None; the environment variable comes first."""
    if python := os.environ.get(PYTHON_VARIABLE):
        return Path(python)
    if runs_here():
        return Path(sys.executable)
    environment = shell_environment()
    if any(environment.glob("lib/python3*/site-packages/p4runtime_sh/__main__.py")):
        return environment / "bin" / "python"
    return None


def check_shell() -> Finding:
    """Look for p4runtime-shell in this environment and in its own."""
    name, purpose = "p4runtime-shell", "switchsum shell"
    python = find_shell_python()
    if python is not None:
        return Finding(name=name, state=Verdict.OK, found=f"runs under {python}", purpose=purpose)
    environment = shell_environment()
    here = has_module("p4runtime_sh")
    return Finding(
        name=name,
        state=Verdict.LIMITED if here else Verdict.MISSING,
        found=f"conflicts with protobuf {version_of('protobuf')}" if here else "not installed",
        purpose=purpose,
        remedy=f"python3 -m venv {shlex.quote(str(environment))} && "
        + shlex.join([str(environment / "bin" / "pip"), "install", "p4runtime-shell"]),
    )
