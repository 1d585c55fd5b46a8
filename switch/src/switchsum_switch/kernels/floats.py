"""How the processor treats floats in a kernel, whatever the thread that calls it has asked for.

`torch.set_flush_denormal(True)`, a library that was linked with `-ffast-math` or `fesetround` change it for a whole
thread: numbers near zero vanish when they are read or written, and sums are rounded another way than on other ranks.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any, Final

from .intrinsics import cgutils, intrinsic, ir, types

_IS_X86: Final = platform.machine() in ("x86_64", "AMD64")
_IS_ARM: Final = platform.machine() in ("aarch64", "arm64")
_STICKY: Final = 0x3F
"""Bits of x86's control register MXCSR that only record past exceptions."""
_USUAL: Final = 0x1F80 if _IS_X86 else 0
"""Usual control register: nothing is flushed to zero, no interrupts, and rounding to nearest even."""


def _assembly(builder: Any, text: str, arguments: list[Any], result: Any = None) -> Any:
    """Write an instruction that no load or store is moved across."""
    from llvmlite import binding  # noqa: PLC0415

    binding.initialize_native_asmparser()  # numba itself writes no assembly
    kind = ir.FunctionType(ir.VoidType() if result is None else result, [argument.type for argument in arguments])
    places = "=r," * (result is not None) + "r," * len(arguments)
    return builder.asm(kind, text, f"{places}~{{memory}}", arguments, side_effect=True)


def _read(builder: Any) -> Any:
    """Read the control register."""
    if not _IS_X86:
        return _assembly(builder, "mrs $0, fpcr", [], ir.IntType(64))
    place = cgutils.alloca_once(builder, ir.IntType(32))
    _assembly(builder, "stmxcsr ($0)", [place])
    return builder.zext(builder.load(place), ir.IntType(64))


def _write(builder: Any, mode: Any) -> None:
    """Write the control register."""
    if not _IS_X86:
        _assembly(builder, "msr fpcr, $0", [mode])
        return
    place = cgutils.alloca_once(builder, ir.IntType(32))
    builder.store(builder.trunc(mode, ir.IntType(32)), place)
    _assembly(builder, "ldmxcsr ($0)", [place])


def _is_unusual(builder: Any, mode: Any) -> Any:
    return builder.icmp_unsigned(
        "!=", builder.and_(mode, ir.Constant(ir.IntType(64), ~_STICKY)), ir.Constant(ir.IntType(64), _USUAL)
    )


def _usual_floats(_context: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        if not (_IS_X86 or _IS_ARM):
            return ir.Constant(ir.IntType(64), _USUAL)
        mode = _read(builder)
        with builder.if_then(_is_unusual(builder, mode), likely=False):
            _write(builder, ir.Constant(ir.IntType(64), _USUAL))
        return mode

    return types.int64(), generate


def _restore_floats(_context: Any, mode: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if _IS_X86 or _IS_ARM:
            with builder.if_then(_is_unusual(builder, arguments[0]), likely=False):
                _write(builder, arguments[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic(_usual_floats)
def usual_floats() -> int:
    """Keep floats near zero as they are, and round to nearest even; return the old state for `restore_floats`."""
    environment = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    _mathematics().fegetenv(environment)
    _mathematics().fesetenv(_USUAL_ENVIRONMENT)
    return int.from_bytes(environment.raw, "little")


@intrinsic(_restore_floats)
def restore_floats(mode: int) -> None:
    """Give the thread back the state that it had set."""
    _mathematics().fesetenv(mode.to_bytes(_ENVIRONMENT_BYTES, "little"))


_ENVIRONMENT_BYTES: Final = 64
"""Bytes for a `fenv_t`, which is smaller."""
_USUAL_ENVIRONMENT: Final = ctypes.c_void_p(-1)
"""FE_DFL_ENV of the C libraries that Linux has."""


@cache
def _mathematics() -> Any:
    """Return the mathematical part of the C library, for kernels that are Python."""
    return ctypes.CDLL(None)
