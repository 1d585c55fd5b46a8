"""LLVM for this CPU: what makes machine code, and loads it where `elf.py` does not.

Only what compiles imports this module: llvmlite and LLVM take a process 40 MB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import llvmlite
import llvmlite.binding as llvm


def target_machine(optimisation: int) -> llvm.TargetMachine:
    """Return LLVM's target machine for this CPU, with the level of `-O<optimisation>`."""
    _initialise()
    name, features = _host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=optimisation, reloc="pic", codemodel="small", jit=True
    )


def description() -> str:
    """Describe LLVM and the CPU for which it makes code."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join((llvmlite.__version__, version, llvm.get_default_triple(), *_host()))


class LinkedImage:
    """Object code that LLVM's linker has loaded; it stays as long as this object lives."""

    def __init__(self, code: bytes, symbols: Sequence[str], given: Mapping[str, int]) -> None:
        """Load `code`, which defines `symbols` and may use what is `given`, and functions of this process.

        Raises RuntimeError when it does not define them, or uses others.
        """
        # JITLink has one range of addresses for all of it.  LLVM's older linker takes each section from where there is
        # room, and aborts where that is further than 32 bits away, as in a large process.
        self._engine = llvm.create_lljit_compiler(target_machine(2), use_jit_link=True)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol, address in given.items():
            builder.import_symbol(symbol, address)
        for symbol in symbols:
            builder.export_symbol(symbol)
        self._tracker = builder.link(self._engine, "program")

    def address(self, symbol: str) -> int:
        """Return the address of a symbol."""
        return int(self._tracker[symbol])


@cache
def _host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
