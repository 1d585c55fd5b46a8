"""What a frame will need is brought near while the one before it is taken."""

from __future__ import annotations

from typing import Final

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.memory import bytes_at, prefetch
from switchsum.protocol.frame import FRAME_BYTES

from .header import slot_of
from .kernels import item_bytes
from .state import OPERATIONS, Phase, State

LINE_BYTES: Final = 64
"""Of a cache."""
MOST_AHEAD_BYTES: Final = 1024
"""So much of each block is fetched ahead; the processor sees by itself how a longer one goes on."""


@inner
def fetch_ahead(state: State, start: int, lanes: int) -> None:
    """Have brought near what the frame at an address will need, if it is the result that its slot waits for.

    While nothing is lost, blocks follow one another in memory and the processor does so by itself; once slots are in
    different rounds, they do not, and each round would wait for memory three times.
    """
    core = state.core[0]
    index = slot_of(core, bytes_at(start, FRAME_BYTES))
    if index >= core.window or state.slots[index].phase != Phase.WAITING:
        return
    slot = state.slots[index]
    operation = state.operations[slot.operation % OPERATIONS]
    size = operation.per_block * item_bytes(operation.dtype)
    near = min(size, MOST_AHEAD_BYTES)
    fetch_lines(lanes, near)
    fetch_lines(operation.address + slot.block * size, near)
    fetch_lines(operation.address + slot.next_block * size, near)
    fetch_lines(operation.address + (slot.next_block + operation.columns) * size, near)


@inner
def fetch_lines(address: int, size: int) -> None:
    """Have some bytes at an address brought near; the address may be anything."""
    for offset in range(0, size, LINE_BYTES):
        prefetch(address + offset)
