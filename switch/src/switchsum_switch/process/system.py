"""What kernels of drivers ask of the operating system: the time, sleep, eventfds as bells, and many messages at a time.

The functions of the C library are called by name, so that compiled kernels can be kept on disk.  All of them are called
without the GIL, as kernels are; descriptors are int64, times seconds of the clock that `time.monotonic` reads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..kernels.intrinsics import cgutils, intrinsic, ir, types

Watched = npt.NDArray[np.int32]
"""Descriptors to sleep on with `poll`, `[n, 2]`: `struct pollfd` as two words."""

READY: Final = (select.POLLIN | select.POLLHUP | select.POLLERR) << 16
"""Bits of a watched descriptor's second word that `poll` sets: data came, or the other end hung up."""


class _Types:
    """LLVM's types, made when a kernel is compiled."""

    @cached_property
    def byte(self) -> Any:
        """A pointer to bytes."""
        return ir.IntType(8).as_pointer()

    @cached_property
    def int(self) -> Any:
        """C's int."""
        return ir.IntType(32)

    @cached_property
    def long(self) -> Any:
        """C's long."""
        return ir.IntType(64)

    @cached_property
    def timespec(self) -> Any:
        """Seconds and nanoseconds."""
        return ir.ArrayType(self.long, 2)


_C: Final = _Types()
_MSG_DONTWAIT: Final = 0x40
_CLOCK_MONOTONIC: Final = 1
"""Linux's numbers for this flag and this clock."""


def _call(builder: Any, name: str, result: Any, arguments: Sequence[Any]) -> Any:
    """Call a function of the C library."""
    signature = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), arguments)


def _monotonic(_context: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        place = cgutils.alloca_once(builder, _C.timespec)
        _call(
            builder, "clock_gettime", _C.int, [ir.Constant(_C.int, _CLOCK_MONOTONIC), builder.bitcast(place, _C.byte)]
        )
        seconds, nanoseconds = (
            builder.sitofp(builder.extract_value(builder.load(place), index), ir.DoubleType()) for index in range(2)
        )
        return builder.fadd(seconds, builder.fmul(nanoseconds, ir.Constant(ir.DoubleType(), 1e-9)))

    return types.float64(), generate


def _poll(_context: Any, watched: Any, count: Any, timeout_ns: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        watched, count, timeout_ns = arguments
        billion = ir.Constant(_C.long, 1_000_000_000)
        place = cgutils.alloca_once(builder, _C.timespec)
        for index, part in enumerate((builder.sdiv(timeout_ns, billion), builder.srem(timeout_ns, billion))):
            builder.store(part, cgutils.gep_inbounds(builder, place, 0, index))
        pointers = builder.inttoptr(watched, _C.byte), builder.bitcast(place, _C.byte)
        ready = _call(builder, "ppoll", _C.int, [pointers[0], count, pointers[1], ir.Constant(_C.byte, None)])
        return builder.sext(ready, _C.long)

    return types.int64(types.int64, types.int64, types.int64), generate


def _write_bell(_context: Any, descriptor: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _call(builder, "eventfd_write", _C.int, [builder.trunc(arguments[0], _C.int), ir.Constant(_C.long, 1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _read_bell(_context: Any, descriptor: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(cgutils.alloca_once(builder, _C.long), _C.byte)
        _call(builder, "eventfd_read", _C.int, [builder.trunc(arguments[0], _C.int), place])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _many(name: str, *, with_timeout: bool = False) -> Callable[..., Any]:
    """Return the declaration of sendmmsg, or of recvmmsg, which has one argument more: a time-out, always none."""

    def declare(_context: Any, descriptor: Any, messages: Any, count: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            descriptor, messages, count = arguments
            values = [
                builder.trunc(descriptor, _C.int),
                builder.inttoptr(messages, _C.byte),
                builder.trunc(count, _C.int),
            ]
            flags = ir.Constant(_C.int, _MSG_DONTWAIT)
            rest = [ir.Constant(_C.byte, None)] if with_timeout else []
            return builder.sext(_call(builder, name, _C.int, [*values, flags, *rest]), _C.long)

        return types.int64(types.int64, types.int64, types.int64), generate

    return declare


def _yield_core(_context: Any) -> Any:
    def generate(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        _call(builder, "sched_yield", _C.int, [])
        return context.get_dummy_value()

    return types.void(), generate


def _last_error(_context: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        place = _call(builder, "__errno_location", _C.int.as_pointer(), [])
        return builder.sext(builder.load(place), _C.long)

    return types.int64(), generate


@intrinsic(_many("sendmmsg"))
def send_many(descriptor: int, messages: int, count: int) -> int:
    """Send messages (address of their headers, how many) to a socket without waiting; return how many went, or -1."""
    return int(_library().sendmmsg(int(descriptor), ctypes.c_void_p(int(messages)), int(count), _MSG_DONTWAIT))


@intrinsic(_many("recvmmsg", with_timeout=True))
def receive_many(descriptor: int, messages: int, count: int) -> int:
    """Receive messages (address of their headers, how many) without waiting; return how many came, or -1."""
    return int(_library().recvmmsg(int(descriptor), ctypes.c_void_p(int(messages)), int(count), _MSG_DONTWAIT, None))


@intrinsic(_last_error)
def last_error() -> int:
    """Return errno, right after a call that failed."""
    return ctypes.get_errno()


@intrinsic(_monotonic)
def monotonic() -> float:
    """Return the time, in seconds."""
    return time.monotonic()


def watch(descriptors: Sequence[int]) -> Watched:
    """Return the argument of `poll` for descriptors that become readable."""
    return np.array([(descriptor, select.POLLIN) for descriptor in descriptors], np.int32).reshape(-1, 2)


@intrinsic(_poll)
def poll(watched: int, count: int, timeout_ns: int) -> int:
    """Sleep until one of the watched descriptors (address, how many) is ready, at most so many nanoseconds.

    Return how many are ready, 0 when the time has passed, negative when a signal came.
    """
    limit = (ctypes.c_long * 2)(*divmod(int(timeout_ns), 1_000_000_000))
    return int(_library().ppoll(ctypes.c_void_p(int(watched)), ctypes.c_ulong(int(count)), limit, None))


@intrinsic(_write_bell)
def ring_bell(descriptor: int) -> None:
    """Wake whoever sleeps on an eventfd; nothing happens where it has been rung 2**64 - 2 times already."""
    with contextlib.suppress(OSError):
        os.eventfd_write(int(descriptor), 1)


@intrinsic(_read_bell)
def silence_bell(descriptor: int) -> None:
    """Set an eventfd that does not block back to 0, however often it was rung."""
    with contextlib.suppress(OSError):
        os.eventfd_read(int(descriptor))


@intrinsic(_yield_core)
def yield_core() -> None:
    """Let other threads that want the core run; return at once if there are none."""
    os.sched_yield()


@cache
def _library() -> Any:
    """Return the C library, for kernels that are Python."""
    return ctypes.CDLL(None, use_errno=True)
