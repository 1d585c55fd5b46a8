"""Compiled functions: how hot loops are written, compiled, kept on disk and called.

Writing one:

- `decorators`: `@kernel`, a function of its own machine code that Python calls; `@inner`, one that only kernels call.
- `outlined`: `@Outlined`, a kernel that is called by its address; `Native`, the same by its module and name.
- `records`: a structured record said once, for numpy's dtype and for mypy.
- `intrinsics`: what kernels use of numba and LLVM, and arrays at an address.
- `memory` (words and bytes by address), `atomics` (words that processes share), `floats` (how the processor treats
  them), `mixing` (numbers that are drawn by counting): what kernels call.

From there to machine code:

- `loading`: the code of a kernel, from disk or compiled; where it is kept (`kernel_store`).
- `compiler`: from a function and the types of its arguments to object code, by numba; imported only where something
  has to be compiled.
- `turns`: of processes that start together one compiles, and the others wait.
- `machinecode`: object code that is loaded, and what it depends on; names of functions for perf.
- `elf`: loads object code without LLVM; `target`: LLVM for this CPU, which makes it.
- `cache`: files in a directory that nobody else can have put code into; `sources`: the digest that names it.
- `signatures`: kinds of arguments and results.
- `plain`: the same source without a compiler, with `NUMBA_DISABLE_JIT=1`.

Nothing here imports numba or llvmlite before a kernel is compiled.
"""
