"""The steps from a program to an engine: passes, layout, LLVM IR, machine code, memory.

Machine code is looked for in the cache first.  If several processes want the same program at once, one compiles and the
others wait for it (`kernels/turns.py`).
"""

from __future__ import annotations

import functools
from weakref import WeakValueDictionary

from switchsum_switch.kernels.cache import Store
from switchsum_switch.kernels.machinecode import Library
from switchsum_switch.kernels.turns import compiling

from ..errors import LARGER_THAN_MEMORY, ProgramError
from ..program import ir
from ..program.passes import gather_tests, leave_out_remarks, narrow_repeated, split_carries
from ..program.verify import verify
from ..state.state import ProgramState
from .cache import keep, key_of, load
from .engine import EGRESS_ENTRY, ENTRY, Native
from .layout import Layout


def compile_program(program: ir.Program, state: ProgramState, *, cache: Store | None, debug: bool = False) -> Native:
    """Compile a program, or take its code from `cache`, and connect it with its state; raises ProgramError."""
    program, layout, key = _prepared(program, debug)
    library = _loaded.get(key)
    if library is None:
        library = _loaded[key] = Library(_compiled(program, layout, key, cache, debug), (ENTRY, EGRESS_ENTRY))
    try:
        return Native(program, layout, state, library)
    except MemoryError:
        raise ProgramError(LARGER_THAN_MEMORY) from None


def _compiled(program: ir.Program, layout: Layout, key: str, cache: Store | None, debug: bool) -> bytes:
    """Return the machine code of a program after the passes."""
    code = load(cache, key)
    if code is None:
        with compiling(cache, "the switch's program"):
            code = load(cache, key)  # another process may have compiled it meanwhile
            if code is None:
                code = _made(program, layout, debug)
                keep(cache, key, code)
    return code


def _made(program: ir.Program, layout: Layout, debug: bool) -> bytes:
    # Imported late, as in `module_text`: a process that finds its program on disk saves the time and the 40 MB of LLVM.
    from . import machine  # noqa: PLC0415

    level = machine.OPTIMISATION if len(program.tables) <= machine.MOST_TABLES else machine.QUICK
    return machine.compile_object(module_text(program, layout, debug=debug), level)


_loaded: WeakValueDictionary[str, Library] = WeakValueDictionary()
"""Code in this process by its cache key: switches with one program share it, and the processor's cache has it once."""


@functools.lru_cache(maxsize=4)
def _prepared(program: ir.Program, debug: bool) -> tuple[ir.Program, Layout, str]:
    """Return a program after the passes, its layout, and its cache key."""
    program = verify(split_carries(narrow_repeated(gather_tests(leave_out_remarks(program)))))
    return program, Layout(program), key_of(program, debug=debug)


def module_text(program: ir.Program, layout: Layout, *, debug: bool = False) -> str:
    """Return the LLVM IR of a program after the passes."""
    import llvmlite.ir as ll  # noqa: PLC0415

    from .driver import Driver  # noqa: PLC0415
    from .emitter import Unit  # noqa: PLC0415

    module = ll.Module("switch")
    Driver(Unit(program=program, layout=layout, module=module, debug=debug)).emit()
    return str(module)
