"""From LLVM IR to object code for the CPU of this machine."""

from __future__ import annotations

from typing import Final

import llvmlite.binding as llvm

from switchsum_switch.kernels.target import target_machine

OPTIMISATION: Final = 2
"""Level of the optimiser, as in -O2."""
QUICK: Final = 1
"""Level for programs of many tables.  The further passes of -O2, above all GVN, which follows each load back through
all lookups, take up to two thirds of their compilation; its code takes 0.97 to 1.02 of the time, in pairs."""
MOST_TABLES: Final = 32
"""Most tables of a program that gets the level `OPTIMISATION`."""


def optimised(source: str, level: int = OPTIMISATION) -> llvm.ModuleRef:
    """Parse and optimise a module that is given as LLVM IR; raises RuntimeError if it is malformed."""
    machine = target_machine(OPTIMISATION)
    module = llvm.parse_assembly(source)
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    # Code that gains from vector instructions is written with them already; the search for more only takes time.
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(source: str, level: int = OPTIMISATION) -> bytes:
    """Return the object code of a module that is given as LLVM IR."""
    return bytes(target_machine(OPTIMISATION).emit_object(optimised(source, level)))
