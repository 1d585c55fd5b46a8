"""What a frame needs of an engine is fetched into the processor's cache before its turn comes.

The loop of virtual time does this: a thousand engines have more than a cache holds (`switchsum_lab.simulation.loop`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from switchsum_protocol.frame import FRAME_BYTES
from switchsum_switch.kernels.decorators import inner
from switchsum_switch.kernels.memory import bytes_at, prefetch
from switchsum_switch.kernels.outlined import Outlined

from .header import slot_of
from .kernels import item_bytes
from .receiving import fetch_lines
from .state import CORE, OPERATION, OPERATIONS, PATH, ROW, SLOT, State, state_at


def _offset(record: np.dtype[Any], field: str) -> int:
    assert record.fields is not None
    return int(record.fields[field][1])


_FINISHED: Final = _offset(CORE, "progress") + _offset(CORE["progress"], "finished")
_SLOT_BYTES: Final = SLOT.itemsize
_ROW_BYTES: Final = ROW.itemsize
_OPERATION_BYTES: Final = OPERATION.itemsize
_PATH_BYTES: Final = PATH.itemsize
_WORD_BYTES: Final = 8
_PAIR_BYTES: Final = 128
"""Bytes of two cache lines: a processor that fetches one of them fetches the other as well."""
_MOST_AHEAD_BYTES: Final = 1024
"""Bytes of each block that are fetched ahead. The processor sees by itself how a longer block goes on."""


@Outlined
def fetch(arrays: int, start: int, lanes: int, step: int) -> int:
    """Fetch what a frame that is taken soon will need; `start` and `lanes` are addresses of its first byte and lanes.

    There are four steps, from 0 on: each finds its addresses in what the step before has fetched.
    """
    state = state_at(arrays)
    core = state.core[0]
    if step == 0:
        fetch_lines(state.core.ctypes.data, _FINISHED)
        return 0
    index = slot_of(core, bytes_at(start, FRAME_BYTES))
    if index >= core.member.window:
        return 0
    if step == 1:
        fetch_lines(state.slots.ctypes.data + index * _SLOT_BYTES, _SLOT_BYTES)
        fetch_lines(state.rows.ctypes.data + 2 * index * _ROW_BYTES, 2 * _ROW_BYTES)
        fetch_lines(state.last_sent.ctypes.data + index * _WORD_BYTES, _WORD_BYTES)
        return 0
    slot = state.slots[index]
    operation = slot.operation % OPERATIONS
    if step == 2:
        fetch_lines(state.operations.ctypes.data + operation * _OPERATION_BYTES, _OPERATION_BYTES)
        fetch_lines(state.paths.ctypes.data + slot.tree * _PATH_BYTES, _PATH_BYTES)
        return 0
    _fetch_blocks(state, index, lanes)
    row = 2 * index + (~slot.number & 1)
    fetch_much(core.sending.store + row * core.sending.stride, core.sending.stride)
    return 0


@inner
def _fetch_blocks(state: State, index: int, lanes: int) -> None:
    """Fetch the lanes of a result, and the blocks that its slot writes, sends and names when it takes the result."""
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    size = operation.per_block * item_bytes(operation.dtype)
    fetch_much(lanes, size)
    fetch_much(operation.address + slot.block * size, size)
    fetch_much(operation.address + slot.next_block * size, size)
    fetch_much(operation.address + (slot.next_block + operation.columns) * size, size)


@inner
def fetch_much(address: int, size: int) -> None:
    """Fetch the beginning of many bytes, by pairs of lines: only so many lines can be on their way."""
    for offset in range(0, min(size, _MOST_AHEAD_BYTES), _PAIR_BYTES):
        prefetch(address + offset)
