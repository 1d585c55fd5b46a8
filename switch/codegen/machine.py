"""From LLVM IR to machine code of this process, compiled for the CPU it runs on."""

from __future__ import annotations

from functools import cache
from typing import Final

import llvmlite
import llvmlite.binding as llvm

OPTIMISATION: Final = 2
"""As -O2."""


def fingerprint() -> str:
    """Describe everything outside the IR that decides what code comes out."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return "\n".join((llvmlite.__version__, version, llvm.get_default_triple(), *_host()))


def optimised(source: str) -> llvm.ModuleRef:
    """Return a module, given as LLVM IR, as the optimiser leaves it; raises RuntimeError when it is malformed."""
    machine = _target_machine()
    module = llvm.parse_assembly(source)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMISATION)
    options.loop_vectorization = options.slp_vectorization = False  # what gains from vectors is written with them
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(source: str) -> bytes:
    """Return the object code of a module given as LLVM IR."""
    return bytes(_target_machine().emit_object(optimised(source)))


def assembly_of(source: str) -> str:
    """Return the assembly of a module given as LLVM IR, to look at."""
    return str(_target_machine().emit_assembly(optimised(source)))


class Library:
    """Object code that is loaded into this process; it stays as long as this object lives."""

    def __init__(self, code: bytes, symbols: tuple[str, ...]) -> None:
        """Load `code`, which defines `symbols`; raises RuntimeError when it does not."""
        self._engine = llvm.create_lljit_compiler(_target_machine())
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for symbol in symbols:
            builder.export_symbol(symbol)
        self._tracker = builder.link(self._engine, "program")

    def address(self, symbol: str) -> int:
        """Return where a symbol is."""
        return int(self._tracker[symbol])


@cache
def _host() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _target_machine() -> llvm.TargetMachine:
    _initialise()
    name, features = _host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=name, features=features, opt=OPTIMISATION, reloc="pic", codemodel="small", jit=True
    )


@cache
def _initialise() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
