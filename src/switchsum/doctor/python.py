"""Checks of the interpreter and of Python packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import shlex
import sys

from switchsum.doctor.finding import Finding, Verdict

OLDEST_PYTHON = (3, 11)
TORCH_SERIES = ("2.13.", "2.14.", "2.15.")

# Import name -> distribution.  The generated modules of the package p4runtime cannot be imported together with a
# current protobuf, and need not be: their descriptors are read as bytes.  So that package is looked for and not
# imported.
IMPORTED = {
    "numpy": "numpy",
    "numba": "numba",
    "llvmlite.binding": "llvmlite",
    "ml_dtypes": "ml_dtypes",
    "grpc": "grpcio",
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "scapy": "scapy",
}
LOOKED_FOR = {"p4.v1.p4runtime_pb2": "p4runtime"}


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
    for module, distribution in LOOKED_FOR.items():
        if not has_module(module):
            problems[distribution] = f"{distribution}: no module {module}"
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
