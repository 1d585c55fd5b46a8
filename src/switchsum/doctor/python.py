"""What a check finds, and checks of this Python: its version, packages, p4runtime-shell.

The shell's generated modules fail with protobuf 3.21 and later.  If this environment has a newer protobuf, the shell
needs an environment of its own.
"""

from __future__ import annotations

import enum
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path


class Verdict(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    LIMITED = "limited"
    """It works, but not for everything."""
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check has found."""

    name: str
    """The thing that was checked, in a word or two."""
    state: Verdict
    """State: good enough or not."""
    found: str
    """Finding: a version, a count, or the reason of a failure."""
    purpose: str
    """Purpose: the feature that needs it."""
    remedy: str = ""
    """A shell command that mends it, or the address of a page that says how; empty if nothing is wrong."""
    essential: bool = False
    """Whether switchsum cannot run at all without it."""


OLDEST_PYTHON = (3, 11)
TORCH_SERIES = ("2.13.", "2.14.", "2.15.")

# Import name -> distribution.
IMPORTED = {
    "numpy": "numpy",
    "numba": "numba",
    "llvmlite.binding": "llvmlite",
    "ml_dtypes": "ml_dtypes",
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    "scapy": "scapy",
}


def pip_install(*requirements: str) -> str:
    """Return the command that installs packages for this interpreter."""
    return shlex.join([sys.executable, "-m", "pip", "install", *requirements])


def check_interpreter() -> Finding:
    """Check the version of Python."""
    oldest = ".".join(map(str, OLDEST_PYTHON))
    will_do = sys.version_info >= OLDEST_PYTHON
    return Finding(
        name="Python",
        state=Verdict.OK if will_do else Verdict.MISSING,
        found=f"{platform.python_version()}, {platform.machine()}",
        purpose="everything",
        remedy="" if will_do else f"sudo apt install python{oldest}",
        essential=True,
    )


def check_packages() -> Finding:
    """Import the packages that switchsum needs."""
    problems: dict[str, str] = {}
    for module, distribution in IMPORTED.items():
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken binary package may raise anything
            problems[distribution] = f"{distribution}: {error}"
    versions = ", ".join(f"{name} {version_of(name)}" for name in ("numpy", "numba", "grpcio", "protobuf"))
    return Finding(
        name="packages",
        state=Verdict.MISSING if problems else Verdict.OK,
        found="; ".join(problems.values()) or versions,
        purpose="everything",
        remedy=pip_install("--upgrade", *problems) if problems else "",
        essential=True,
    )


def check_compiler() -> Finding:
    """Let LLVM find out the processor and make a target machine for it."""
    purpose, name = "native code of switch and hosts", "LLVM"
    try:
        llvm = importlib.import_module("llvmlite.binding")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        processor = llvm.get_host_cpu_name()
        llvm.Target.from_default_triple().create_target_machine(cpu=processor)
        version = ".".join(map(str, llvm.llvm_version_info))
    except Exception as error:  # a broken LLVM may raise anything; the text is the finding
        return Finding(
            name=name,
            state=Verdict.MISSING,
            found=str(error),
            purpose=purpose,
            remedy=pip_install("--force-reinstall", "llvmlite"),
            essential=True,
        )
    return Finding(name=name, state=Verdict.OK, found=f"{version} for {processor}", purpose=purpose, essential=True)


def check_scikit_learn() -> Finding:
    """Look for scikit-learn, which has the demo's data set."""
    version = version_of("scikit-learn")
    return Finding(
        name="scikit-learn",
        state=Verdict.OK if version else Verdict.MISSING,
        found=version or "not installed",
        purpose="the demo's data (make demo)",
        remedy="" if version else pip_install("scikit-learn"),
    )


def check_torch() -> Finding:
    """Look for PyTorch of the series that is supported, without importing it."""
    version = version_of("torch")
    will_do = version.startswith(TORCH_SERIES)
    return Finding(
        name="PyTorch",
        state=Verdict.OK if will_do else Verdict.LIMITED if version else Verdict.MISSING,
        found=version or "not installed",
        purpose="training with torch 2.13 to 2.15, comparison with gloo",
        remedy="" if will_do else pip_install("torch>=2.13,<2.16"),
    )


def version_of(distribution: str) -> str:
    """Return the installed version, or an empty string."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def has_module(name: str) -> bool:
    """Return whether a module can be found; its parent packages are imported, the module is not."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


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
