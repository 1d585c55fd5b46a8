"""From kernels to object code, by numba; imported only where something has to be compiled."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Callable, Iterator, Sequence
from enum import EnumMeta
from typing import Any, Final

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import types as _types
from numba.core.ccallback import CFunc
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import models, register_model, typeof_impl
from numba.np.numpy_support import from_dtype

from .intrinsics import Deferred, pointer
from .packages import is_ours
from .signatures import BOOLEAN, FLOAT, INTEGER, NOTHING, Made, Tag
from .target import target_machine

types: Any = _types
OPTIMISATION: Final = 3
"""Level of optimisation, the same as in numba."""
_OPTIONS: Final = {"nogil": True, "error_model": "numpy"}
LEFT_OUT: Final = (
    (JITCPUCodegen, "_add_module"),
    (JITCPUCodegen, "set_env"),
    (JITCodeLibrary, "_finalize_specific"),
)
"""Methods of numba's that are replaced by nothing while a kernel is compiled (`_for_kernels`).

They are numba's own affair, so pyproject.toml has an upper bound of its version, and tests/native/test_numba.py says
what each of them does in the versions that are allowed.
"""
_NUMBERS: Final[dict[str, Any]] = {
    INTEGER: types.int64,
    FLOAT: types.float64,
    BOOLEAN: types.boolean,
    NOTHING: types.none,
}


@typeof_impl.register(Deferred)  # type: ignore[untyped-decorator]
def _(value: Deferred, _context: object) -> Any:
    """Let numba take a `Deferred` for what it makes."""
    real = value.real
    cpu_target.typing_context.refresh()  # an intrinsic has registered itself
    return cpu_target.typing_context.resolve_value_type(real)


class _Numbers(types.IntEnumClass):  # type: ignore[misc]
    """An enumeration of ours whose members are int64 to kernels, which compute with them and index by them."""

    @property
    def member_type(self) -> Any:
        """Type of a member for numba."""
        return types.int64


register_model(_Numbers)(models.OpaqueModel)


@contextlib.contextmanager
def _our_enumerations() -> Iterator[None]:
    """Let kernels write `Flag.PAYLOAD`: numba has no IntFlag, and adds no member of an IntEnum to a smaller integer.

    What numba makes of an enumeration is one function for the whole process, which others' kernels need as it was.
    """
    usual = typeof_impl.dispatch(EnumMeta)

    def typeof(value: EnumMeta, context: object) -> Any:
        ours = issubclass(value, int) and is_ours(value.__module__)
        return _Numbers(value, types.int64) if ours else usual(value, context)

    typeof_impl.register(EnumMeta)(typeof)
    try:
        yield
    finally:
        typeof_impl.register(EnumMeta)(usual)


def dispatcher(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    """Return numba's dispatcher, which compiles a function into others or for Python."""
    return numba.njit(**_OPTIONS, **options)(function)


def outlined(function: Callable[..., Any], tags: Sequence[str], result: str) -> tuple[Made, bytes]:
    """Compile a kernel that is called by its address, with its own arguments."""
    signature = tuple(_NUMBERS[tag] for tag in tags), _NUMBERS[result]
    with _for_kernels():
        symbol, given, code = _compile(function, signature)
    return Made(symbol=symbol, result=result, arguments=tuple(tags), given=given), code


def entry(made: Any, tags: Sequence[Tag]) -> tuple[Made, bytes]:
    """Compile a function of numbers alone that makes a kernel's arguments of them and calls it; `made` is numba's."""
    with _for_kernels():
        return _entry(made, tags)


def _entry(made: Any, tags: Sequence[Tag]) -> tuple[Made, bytes]:
    arguments, name = tuple(map(_type_of, tags)), made.py_func.__qualname__
    made.compile(arguments)
    returned = made.overloads[arguments].signature.return_type
    result, results, lines = _ending(returned, name)
    parts = _Parts()
    call = f"target({', '.join(parts.expression(tag) for tag in tags)})"
    head = f"def stub({', '.join([*parts.names, 'results'])}):"
    # Numba compiles functions of Python alone, and each kernel has another number of arguments, so no closure takes
    # them: the stub is source.
    source = "\n    ".join((head, *(line.format(call) for line in lines)))
    scope = {**parts.scope, "target": made, "carray": numba.carray, "pointer": pointer}
    scope |= {"np": np, "count": len(results)}
    exec(compile(source, f"<entry of {name}>", "exec"), scope)
    signature = (*parts.types, types.int64), types.float64 if result == FLOAT else types.int64
    symbol, given, code = _compile(scope["stub"], signature)
    return Made(symbol=symbol, result=result, results=results, given=given), code


@contextlib.contextmanager
def _for_kernels() -> Iterator[None]:
    """Set numba to kernels, and back: whatever else this process compiles with numba finds it as it was.

    Numba leaves out what it does for functions that run in this process, for what is compiled meanwhile does not run in
    it: it would make machine code of every function with all that it calls, at every level of callers, which is a
    quarter of the time.  Garbage collection stops, too: everything that was made is still in use.
    """
    with global_compiler_lock, _our_enumerations(), contextlib.ExitStack() as kept:
        for owner, name in LEFT_OUT:
            kept.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, lambda *_: None)
        if gc.isenabled():
            kept.callback(gc.enable)
            gc.disable()
        yield


def _type_of(tag: Tag) -> Any:
    """Return numba's type of an argument."""
    if isinstance(tag, str):
        return _NUMBERS[tag]
    if isinstance(tag[0], np.dtype):
        return types.Array(from_dtype(tag[0]), tag[1], "C")
    return types.BaseTuple.from_types(tuple(map(_type_of, tag[1:])), None if tag[0] is tuple else tag[0])


class _Parts:
    """The arguments of a stub, and what its source needs."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.types: list[Any] = []
        self.scope: dict[str, Any] = {}

    def expression(self, tag: Tag) -> str:
        """Add the words of an argument; return how the stub makes it of them."""
        if tag == NOTHING:
            return "None"
        if isinstance(tag, str):
            name = self._word(types.float64 if tag == FLOAT else types.int64)
            return f"{name} != 0" if tag == BOOLEAN else name
        if isinstance(tag[0], np.dtype):
            address, *shape = (self._word(types.int64) for _ in range(1 + tag[1]))
            return f"carray(pointer({address}), ({', '.join(shape)},), {self._constant(tag[0])})"
        inside = "".join(f"{self.expression(item)}, " for item in tag[1:])
        return f"({inside})" if tag[0] is tuple else f"{self._constant(tag[0])}({inside})"

    def _word(self, kind: Any) -> str:
        self.names.append(f"word{len(self.names)}")
        self.types.append(kind)
        return self.names[-1]

    def _constant(self, value: Any) -> str:
        name = f"constant{len(self.scope)}"
        self.scope[name] = value
        return name


def _ending(returned: Any, name: str) -> tuple[str, tuple[str, ...], list[str]]:
    """Return what a kernel returns, by kind, and the lines of its stub that hand it over."""
    if isinstance(returned, types.BaseTuple):
        kinds = tuple(BOOLEAN if isinstance(item, types.Boolean) else INTEGER for item in returned)
        if all(isinstance(item, (types.Boolean, types.Integer)) for item in returned):
            store = [f"out[{index}] = np.int64(found[{index}])" for index in range(len(kinds))]
            return (
                INTEGER,
                kinds,
                ["found = {}", "out = carray(pointer(results), (count,), np.int64)", *store, "return 0"],
            )
    elif isinstance(returned, types.NoneType):
        return NOTHING, (), ["{}", "return 0"]
    elif isinstance(returned, types.Float):
        return FLOAT, (), ["return np.float64({})"]
    elif isinstance(returned, (types.Boolean, types.Integer)):
        return BOOLEAN if isinstance(returned, types.Boolean) else INTEGER, (), ["return np.int64({})"]
    raise TypeError(f"{name} returns {returned}: Python can call those that return a number or integers")


def _compile(function: Callable[..., Any], signature: tuple[Any, Any]) -> tuple[str, tuple[str, ...], bytes]:
    """Return the symbol of a function compiled for C, what it uses of numba's, and the code."""
    made = CFunc(function, signature, locals={}, options={"error_model": "numpy"})._compile_uncached()  # type: ignore[attr-defined]
    made.library.finalize()
    symbol = made.fndesc.llvm_cfunc_wrapper_name
    module = llvm.parse_assembly(_without_counting(made.library.get_llvm_str()))
    module.link_in(llvm.parse_assembly(_memory_functions()))
    for defined in module.functions:
        if not defined.is_declaration and defined.name != symbol:
            defined.linkage = "internal"
    machine = target_machine(OPTIMISATION)
    leave_out_arguments(module, machine)
    _check_memory(module, function)
    given = tuple(used.name for used in module.functions if used.is_declaration and used.name.startswith("numba_"))
    return symbol, given, bytes(machine.emit_object(module))


def leave_out_arguments(module: Any, machine: llvm.TargetMachine) -> None:
    """Let functions that are called only within their module take only the arguments that they use.

    An array is seven words to numba, the engine's state seven arrays: a call that hands it on stored some fifty words,
    which took half of the time of the functions between.  Numba leaves arguments as they are, for others might call.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_ipsccp_pass()
    passes.add_dead_arg_elimination_pass()
    passes.add_argument_promotion_pass()
    passes.add_dead_arg_elimination_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))


_COUNTS: Final = re.compile(r"^\s*(?:tail )?call void @NRT_(?:in|de)cref\(.*$", re.MULTILINE)
_ALLOCATES: Final = re.compile(r"call .*@NRT_(?:Allocate|MemInfo_alloc)")


def _without_counting(code: str) -> str:
    """Leave out the counting of references to memory where nothing is allocated.

    Callers pass arrays as addresses, so that there is nothing to count; numba would find that out at every call.
    """
    return code if _ALLOCATES.search(code) else _COUNTS.sub("", code)


def _check_memory(module: llvm.ModuleRef, function: Callable[..., Any]) -> None:
    """Raise TypeError where code needs more of numba's runtime than `_memory_functions` has.

    Whether a kernel's code does so depends on the versions of numba and of Python.
    """
    lacks = [used.name for used in module.functions if used.is_declaration and used.name.startswith("NRT_")]
    if lacks:
        raise TypeError(
            f"{function.__qualname__} uses {', '.join(lacks)} of numba: kernels make arrays with np.empty and "
            "np.zeros, and have no lists, sets or arrays as indices"
        )


_HEADER_BYTES: Final = 64
"""Bytes in front of an array that a kernel makes: its `MemInfo`. Compiled code reads its first five words (the number
of references, a destructor and its argument, the address of the data, the size).
"""


def _memory_functions() -> str:
    """Return what kernels that make arrays need of numba's runtime, without numba."""
    word, address = ir.IntType(64), ir.IntType(8).as_pointer()
    module = ir.Module("memory")
    malloc = ir.Function(module, ir.FunctionType(address, [word]), "malloc")
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [address]), "free")
    abort = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "abort")
    make = ir.Function(module, ir.FunctionType(address, [word, ir.IntType(32)]), "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(make.append_basic_block())
    size, align = make.args[0], builder.zext(make.args[1], word)
    block = builder.call(malloc, [builder.add(builder.add(size, align), word(_HEADER_BYTES))])
    with builder.if_then(builder.icmp_unsigned("==", block, address(None)), likely=False):
        builder.call(abort, [])
    first = builder.add(builder.ptrtoint(block, word), word(_HEADER_BYTES - 1))
    data = builder.and_(builder.add(first, align), builder.neg(align))
    words = builder.bitcast(block, word.as_pointer())
    for index, value in enumerate((word(1), word(0), word(0), data, size)):
        builder.store(value, builder.gep(words, [word(index)]))
    builder.ret(block)
    allocate = ir.Function(module, ir.FunctionType(address, [word]), "NRT_Allocate")
    builder = ir.IRBuilder(allocate.append_basic_block())
    builder.ret(builder.call(malloc, [allocate.args[0]]))
    for name in ("NRT_MemInfo_call_dtor", "NRT_Free"):
        give_back = ir.Function(module, ir.FunctionType(ir.VoidType(), [address]), name)
        builder = ir.IRBuilder(give_back.append_basic_block())
        builder.call(free, [give_back.args[0]])
        builder.ret_void()
    return str(module)
