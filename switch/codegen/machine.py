"""From LLVM IR to machine code of this process, compiled for the CPU it runs on."""

from __future__ import annotations

from typing import Final

import llvmlite.binding as llvm

from switchsum.protocol.machinecode import Library, fingerprint, target_machine

OPTIMISATION: Final = 2
"""As -O2."""


def optimised(source: str) -> llvm.ModuleRef:
    """Return a module, given as LLVM IR, as the optimiser leaves it; raises RuntimeError when it is malformed."""
    machine = target_machine(OPTIMISATION)
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
    return bytes(target_machine(OPTIMISATION).emit_object(optimised(source)))


def assembly_of(source: str) -> str:
    """Return the assembly of a module given as LLVM IR, to look at."""
    return str(target_machine(OPTIMISATION).emit_assembly(optimised(source)))


__all__ = ["Library", "assembly_of", "compile_object", "fingerprint", "optimised"]
