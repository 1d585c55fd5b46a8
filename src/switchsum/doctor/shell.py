"""Where p4runtime-shell can run.

Its modules fail on protobuf 3.21 and later (it pins protobuf below that), so beside a newer one it needs an
environment of its own.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from switchsum.doctor.finding import Finding, State
from switchsum.doctor.python import has_module, version_of

FIRST_PROTOBUF_THAT_FAILS = (3, 21)
PYTHON_VARIABLE = "SWITCHSUM_P4RT_SHELL_PYTHON"


def shell_environment() -> Path:
    """Return the virtual environment that `switchsum shell` falls back on."""
    data_home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data_home) / "switchsum" / "shell"


def runs_here() -> bool:
    """Whether p4runtime-shell is in this environment beside a protobuf that it can use."""
    version = tuple(int(part) for part in version_of("protobuf").split(".")[:2] if part.isdigit())
    return has_module("p4runtime_sh") and version < FIRST_PROTOBUF_THAT_FAILS


def find_shell_python() -> Path | None:
    """Return an interpreter that can run `-m p4runtime_sh`, or None; the variable goes before what is found."""
    if python := os.environ.get(PYTHON_VARIABLE):
        return Path(python)
    if runs_here():
        return Path(sys.executable)
    environment = shell_environment()
    if any(environment.glob("lib/python3*/site-packages/p4runtime_sh/__main__.py")):
        return environment / "bin" / "python"
    return None


def check_shell() -> Finding:
    """Look for p4runtime-shell here and in its own environment."""
    name, purpose = "p4runtime-shell", "switchsum shell"
    python = find_shell_python()
    if python is not None:
        return Finding(name=name, state=State.OK, found=f"runs under {python}", purpose=purpose)
    environment = shell_environment()
    here = has_module("p4runtime_sh")
    return Finding(
        name=name,
        state=State.LIMITED if here else State.MISSING,
        found=f"conflicts with protobuf {version_of('protobuf')}" if here else "not installed",
        purpose=purpose,
        remedy=f"python3 -m venv {shlex.quote(str(environment))} && "
        + shlex.join([str(environment / "bin" / "pip"), "install", "p4runtime-shell"]),
    )
