"""Several cores for one program: a batch is divided by its packets' shards, and the parts run at the same time.

`passes/provenance.py` has proven that packets of two shards never use the same register cell, so the parts need no
locks. One thread, the caller, has the batch:

1. It finds the shard of each frame with a function that only parses, and copies the frame's address to the part of that
   shard (`_divide`).
2. It gives each part a share of the output of its own (`_share_output`), posts the parts of the other shards to their
   helper threads, runs its own part, and waits for the helpers (`_run_parts`).
3. It moves the parts of the output together, in the order of the shards (`_gather`).

A batch that is too small to be worth this, or that does not fit, runs on the caller's core as if there were no shards.
Frames of one shard keep their order; frames of two shards may leave in another order than they arrived.

Each helper has a *line* of memory with the caller: what the caller writes and what the helper writes are on two cache
lines, so that the cores do not take them from each other.  Helpers run native code without the GIL.  A thread that
waits looks at the other's word for a moment and then sleeps on an eventfd (`switchsum.native.patience`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.native.atomics import fence, load_acquire, store_release
from switchsum.native.kernels import Outlined, inner, kernel
from switchsum.native.memory import call, carray, integers_at, longs_at, pointer, words_at
from switchsum.native.patience import FIELDS, Patience, give_way, look_until, note_wait
from switchsum.native.system import monotonic, ring_bell, silence_bell

from .entry import ENTRY_WORDS, call_program

MIN_PART_FRAMES: Final = 8
"""Fewest frames of a part for which a helper is woken; the caller runs smaller parts itself."""
MOST_FRAMES: Final = 1024
"""Most frames that are divided at a time."""
_ALIGN_BYTES: Final = 64

SHARDS, COPIES, GROWTH, CODE, CONTEXT, FIND, FOUND, LINES, PATIENCE = range(9)
"""Words of a program that is sharded: number of shards; most frames that one frame may become, and most bytes that each
may gain; code and context of the program without shards; code that finds the shards, and where it writes them; address
of the lines; from PATIENCE on the caller's `Patience`."""
HEAD_WORDS: Final = PATIENCE + FIELDS

TURN, AWAKE_BELL, IS_ASLEEP = 0, 1, 2
DONE, DONE_BELL, IS_WAITED_FOR = 8, 9, 10
COUNT, NOW, ROOM, ADDRESSES, LENGTHS, PORTS = range(16, 22)
ENTRY: Final = 24
LINE_WORDS: Final = 40
"""Words of a line.  TURN is the number of the last part that the caller has posted, DONE that of the last one that the
helper has run; behind each stand an eventfd and 1 if the other thread sleeps on it.  Then the part: number of frames,
time, bytes of the output that are left, addresses of the columns.  Then its `CodeEntry`, and behind it the result."""
RESULT: Final = ENTRY + ENTRY_WORDS
_ARENA, _ARENA_BYTES, _MADE, _ROWS = ENTRY + 2, ENTRY + 3, ENTRY + 4, ENTRY + 9
"""Words of the entry that a part has of its own: memory for frames and its size, first of five columns, their rows."""
_COLUMN_BYTES: Final = (4, 8, 4, 4, 8)
"""Bytes of an item of each column: ports, addresses, lengths, heads, bodies."""
END: Final = -1
"""The turn that makes a helper end."""

Words = npt.NDArray[np.int64]


@inner
def _wait(line: int, word: int, old: int, patience: Patience) -> Any:
    """Wait until a word of a line is not `old` any more; return it.  Its bell and its flag stand behind it."""
    address = line + 8 * word
    began = now = monotonic()
    until = look_until(patience, now)
    while load_acquire(address) == old and now < until:
        now = give_way(patience, now)
    paid = load_acquire(address) != old
    while load_acquire(address) == old:
        # Say that this thread sleeps, then look once more; `_post` writes the word, then looks for the flag.  The
        # fences between make sure that one of the two sees the other's write.
        store_release(address + 16, 1)
        fence()
        if load_acquire(address) == old:
            silence_bell(load_acquire(address + 8))  # blocks until the bell is rung
        store_release(address + 16, 0)
    note_wait(patience, paid, monotonic() - began)
    return load_acquire(address)


@inner
def _post(line: int, word: int, value: int) -> None:
    """Write a word of a line, and wake the thread that sleeps on it."""
    address = line + 8 * word
    store_release(address, value)
    fence()
    if load_acquire(address + 16) != 0:
        ring_bell(load_acquire(address + 8))


@inner
def _run_part(line: Words) -> None:
    entry = line[ENTRY : ENTRY + ENTRY_WORDS]
    call_program(entry, line[ADDRESSES], line[LENGTHS], line[PORTS], line[COUNT], line[NOW])


@kernel
def help_out(address: int, patience: Patience) -> None:
    """Run the parts of one shard until the caller posts END; the body of a helper thread."""
    line = integers_at(address, LINE_WORDS)
    turn: Any = np.int64(0)
    while True:
        turn = _wait(address, TURN, turn, patience)
        if turn == END:
            return
        _run_part(line)
        _post(address, DONE, turn)


@kernel
def end(address: int) -> None:
    """Make a helper end."""
    _post(address, TURN, END)


@Outlined
def run_batch(
    program: int,
    addresses: int,
    lengths: int,
    ports: int,
    count: int,
    now: int,
    arena: int,
    arena_bytes: int,
    made_ports: int,
    made_addresses: int,
    made_lengths: int,
    made_heads: int,
    made_bodies: int,
    rows: int,
    result: int,
) -> int:
    """Run a batch; `program` is the address of the words above, the rest are the arguments of a program's code."""
    head = integers_at(program, HEAD_WORDS)
    made = (made_ports, made_addresses, made_lengths, made_heads, made_bodies)
    if count >= MIN_PART_FRAMES * head[SHARDS]:
        # Not by reshape, which calls a function of numba's that is not there where compiled code is only loaded.
        lines = carray(pointer(head[LINES]), (head[SHARDS], LINE_WORDS), np.int64)
        _share_output(lines, arena, arena_bytes, made, rows)
        lines[:, NOW] = now
        taken = _divide(head, lines, addresses, lengths, ports, min(count, MOST_FRAMES))
        if taken >= MIN_PART_FRAMES:
            _run_parts(head, lines)
            _gather(lines, made, integers_at(result, 2))
            return taken  # type: ignore[no-any-return]
    return call(  # type: ignore[no-any-return]
        *(head[CODE], head[CONTEXT], addresses, lengths, ports, count, now, arena, arena_bytes),
        *(made_ports, made_addresses, made_lengths, made_heads, made_bodies, rows, result),
    )


@inner
def _share_output(lines: Words, arena: int, arena_bytes: int, made: tuple[int, ...], rows: int) -> None:
    """Give each shard an equal share of the output."""
    shards = len(lines)
    size, share = arena_bytes // shards // _ALIGN_BYTES * _ALIGN_BYTES, rows // shards
    for shard in range(shards):
        line = lines[shard]
        line[COUNT] = 0
        line[_ARENA], line[_ARENA_BYTES], line[ROOM], line[_ROWS] = arena + shard * size, size, size, share
        for column in range(5):
            line[_MADE + column] = made[column] + shard * share * _COLUMN_BYTES[column]


@inner
def _divide(head: Words, lines: Words, addresses: int, lengths: int, ports: int, count: int) -> Any:
    """Copy frames to the parts of their shards, until a part may have no room for the next; return how many."""
    call(head[FIND], head[CONTEXT], addresses, lengths, ports, count, lines[0, NOW], head[FOUND])
    found, frames = longs_at(head[FOUND], count), longs_at(addresses, count)
    sizes, came_at = words_at(lengths, count), words_at(ports, count)
    mask, copies = np.uint64(head[SHARDS] - 1), head[COPIES]
    for i in range(count):
        line = lines[np.int64(found[i] & mask)]
        place = line[COUNT]
        needed = copies * (np.int64(sizes[i]) + head[GROWTH])
        if needed > line[ROOM] or copies * (place + 1) > line[_ROWS]:
            return np.int64(i)
        longs_at(line[ADDRESSES], MOST_FRAMES)[place] = frames[i]
        words_at(line[LENGTHS], MOST_FRAMES)[place] = sizes[i]
        words_at(line[PORTS], MOST_FRAMES)[place] = came_at[i]
        line[ROOM] -= needed
        line[COUNT] += 1
    return np.int64(count)


@inner
def _run_parts(head: Words, lines: Words) -> None:
    """Run all parts; the caller runs the first one and those that are too small for a helper."""
    for shard in range(1, len(lines)):
        if lines[shard, COUNT] >= MIN_PART_FRAMES:
            _post(head[LINES] + 8 * shard * LINE_WORDS, TURN, lines[shard, TURN] + 1)
    for shard in range(len(lines)):
        if shard == 0 or lines[shard, COUNT] < MIN_PART_FRAMES:
            _run_part(lines[shard])
    for shard in range(1, len(lines)):
        if lines[shard, COUNT] >= MIN_PART_FRAMES:
            patience = head[PATIENCE:].view(np.float64)
            _wait(head[LINES] + 8 * shard * LINE_WORDS, DONE, lines[shard, TURN] - 1, patience)


@inner
def _gather(lines: Words, made: tuple[int, ...], result: Words) -> None:
    """Move the rows of all parts together, so that the columns have no gaps."""
    result[:] = 0
    for shard in range(len(lines)):
        line = lines[shard]
        count, size = line[RESULT], 0
        for column in range(5):
            size = _COLUMN_BYTES[column]
            target, source = made[column] + result[0] * size, line[_MADE + column]
            if target != source:
                # Rows move towards the start and are copied from the first on, so source and target may overlap.
                to, of = words_at(target, count * size // 4), words_at(source, count * size // 4)
                for i in range(len(to)):
                    to[i] = of[i]
        result[0] += count
        result[1] += line[RESULT + 1]
