"""Machine code of this process's CPU: made from LLVM IR, and loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache

import llvmlite
import llvmlite.binding as llvm

PERF_MAP_VARIABLE = "SWITCHSUM_PERF_MAP"
"""Where it is set, perf is told the names of what is loaded (`native/perf_map.py`)."""


def fingerprint() -> str:
    """Describe everything outside the IR that decides what code comes out."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join((llvmlite.__version__, version, llvm.get_default_triple(), *_host()))


def target_machine(optimisation: int) -> llvm.TargetMachine:
    """Return what makes code for this CPU, as `-O<optimisation>` does."""
    _initialise()
    name, features = _host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=optimisation, reloc="pic", codemodel="small", jit=True
    )


class Library:
    """Object code that is loaded into this process; it stays as long as this object lives."""

    def __init__(self, code: bytes, symbols: Sequence[str], given: Mapping[str, int] | None = None) -> None:
        """Load `code`, which defines `symbols` and may use what is `given`, and functions of this process.

        Raises RuntimeError when it does not define them, or uses others.
        """
        # JITLink has one range of addresses for all of it.  LLVM's older linker takes each section from where there is
        # room, and aborts where that is further than 32 bits away, as in a large process.
        self._engine = llvm.create_lljit_compiler(target_machine(2), use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol, address in (given or {}).items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        self._tracker = builder.link(self._engine, "program")
        if os.environ.get(PERF_MAP_VARIABLE) and symbols:
            from .perf_map import note  # noqa: PLC0415

            note(code, symbols[0], self.address(symbols[0]))

    def address(self, symbol: str) -> int:
        """Return where a symbol is."""
        return int(self._tracker[symbol])


@cache
def _host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
