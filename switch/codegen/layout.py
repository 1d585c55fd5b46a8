"""Where everything lies in memory while native code runs.

A packet has two pieces of memory.  *Hot*: validity bytes, metadata that more than one graph uses, the narrow parts of
headers as they are on the wire, and for each wide field a pointer to wherever its bytes are at the moment (the frame, a
register, zeros).  Copying it copies the packet.  *Storage*: room for the bytes of wide fields that were computed.
Metadata that only one graph uses lives in that graph's function.

The *context* is an array of 64-bit words, most of them addresses, through which native code reaches the switch's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from switchsum.switch import ir
from switchsum.switch.passes.analysis import GRAPHS, is_wide, used_by
from switchsum.switch.tables import MatchKind, TableSpec

RANDOM, DIRECTORY, SESSIONS, COPIES, ZEROS, DUMP, TEMPLATE, LEVELS, WAITING, QUEUES, TIME, SHARD, SHARD_MASK = range(13)
"""Words of the context: generator; multicast directory and clone sessions; the most copies that `room` allows a frame;
a cell of zeros, and one that takes writes beyond an array's end; hot memory of a new packet; memory of packets, and of
those that wait to enter ingress again; how each port's queues are; the time of
the batch in microseconds, which native code itself writes; which packets a sharded program runs with this context."""
FIRST_ARRAY: Final = 13
TABLE_WORDS: Final = 5
ROWS, INDEX, INDEX_SIZE, COUNTS, METERS = range(TABLE_WORDS)
"""Words of a table: its rows; hash slots, or the order of rows; their number (of slots, less 1); direct counters and
meters."""

ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class Narrow:
    """Bytes of a header that are kept as they are on the wire."""

    start: int
    """Bytes from the header's first."""
    size: int
    hot: int
    """Offset in hot memory."""


@dataclass(frozen=True, slots=True)
class Wide:
    """Wide fields of equal width side by side in a header."""

    start: int
    """Bytes from the header's first."""
    size: int
    """Bytes of each field."""
    slots: tuple[int, ...]


Segment = Narrow | Wide


class Layout:
    """Offsets of a program's headers and fields."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._hot = 0
        self._storage = 0
        self.segments: dict[int, tuple[Segment, ...]] = {}
        self.pointers: dict[int, int] = {}
        """Hot offset of each wide field's pointer; wide fields of one graph have none."""
        self.storage: dict[int, int] = {}
        """Offset of each wide field's own bytes."""
        self.metadata: dict[int, int] = {}
        """Hot offset of narrow metadata that several graphs use."""
        self.local = self._find_local()
        """Metadata that one graph alone uses, by graph."""
        headers = [index for index, header in enumerate(program.headers) if not header.metadata]
        self.valid = {header: self._take(1, 1) for header in headers}
        """Hot offset of each header's validity."""
        everywhere = set().union(*self.local.values())
        for header in program.headers:
            for slot in header.slots if header.metadata else ():
                if is_wide(program, slot):
                    self._place_wide(slot, slot in everywhere)
                elif slot not in everywhere:
                    size = machine_bytes(program.fields[slot].width)
                    self.metadata[slot] = self._take(size, min(size, 16))
        for index in headers:
            self.segments[index] = tuple(self._segment(program.headers[index]))
        self.hot_bytes = -(-self._hot // ALIGN) * ALIGN
        self.level_bytes = self.hot_bytes + max(self._storage, ALIGN)
        """From the memory of one packet to the next: hot memory, then storage."""

    def bit_address(self, slot: int) -> tuple[int, int]:
        """Return hot offset and bits behind it of a narrow header field."""
        field = self._program.fields[slot]
        for segment in self.segments[field.header]:
            inside = field.offset - 8 * segment.start
            if isinstance(segment, Narrow) and 0 <= inside < 8 * segment.size:
                return segment.hot + inside // 8, inside % 8
        raise KeyError(field.name)

    def _take(self, size: int, align: int) -> int:
        start = -(-self._hot // align) * align
        self._hot = start + size
        return start

    def _place_wide(self, slot: int, local: bool) -> None:
        if not local:
            self.pointers[slot] = self._take(8, 8)
        self.storage[slot] = self._storage
        self._storage += -(-self._program.fields[slot].width // (8 * ALIGN)) * ALIGN

    def _segment(self, header: ir.HeaderInfo) -> list[Segment]:
        program = self._program
        made: list[Segment] = []
        for slot in header.slots:
            field = program.fields[slot]
            end = (field.offset + field.width + 7) // 8
            last = made[-1] if made else None
            if is_wide(program, slot):
                size = field.width // 8
                if isinstance(last, Wide) and last.size == size:
                    made[-1] = Wide(last.start, size, (*last.slots, slot))
                else:
                    made.append(Wide(field.offset // 8, size, (slot,)))
            elif isinstance(last, Narrow):
                made[-1] = Narrow(last.start, end - last.start, 0)
            else:
                made.append(Narrow(field.offset // 8, end - field.offset // 8, 0))
        placed: list[Segment] = []
        for segment in made:
            if isinstance(segment, Narrow):
                placed.append(Narrow(segment.start, segment.size, self._take(segment.size, 8)))
            else:
                for slot in segment.slots:
                    self._place_wide(slot, False)
                placed.append(segment)
        return placed

    def _find_local(self) -> dict[str, set[int]]:
        program = self._program
        names = program.intrinsics
        shared = {getattr(names, name) for name in names.__slots__}
        shared.update(program.stack_counts, *program.field_lists)
        users = {name: used_by(program, getattr(program, name)) for name in GRAPHS}
        local = {}
        for name in GRAPHS:
            others = set().union(*(used for other, used in users.items() if other != name))
            local[name] = {
                slot for slot in users[name] - others - shared if program.headers[program.fields[slot].header].metadata
            }
        return local


def machine_bytes(width: int) -> int:
    """Return the bytes that an integer of that width takes in memory."""
    if width > 64:
        return -(-width // 128) * 16
    return 1 << max(0, (width - 1).bit_length() - 3)


@dataclass(frozen=True, slots=True)
class WaitingLayout:
    """A packet that waits to enter ingress again: four words, a copy of its hot memory, kept wide metadata."""

    hot_bytes: int
    wide: tuple[int, ...]
    """Wide fields of the field lists."""
    sizes: tuple[int, ...]
    """Bytes of each."""

    FRAME, LENGTH, TYPE, LIST = 0, 8, 16, 24
    HOT = ALIGN

    def wide_offset(self, slot: int) -> int:
        """Return where a wide field's bytes are kept."""
        return self.HOT + self.hot_bytes + sum(self.sizes[: self.wide.index(slot)])

    @property
    def stride(self) -> int:
        """Return the bytes of a place."""
        return -(-(self.HOT + self.hot_bytes + sum(self.sizes)) // ALIGN) * ALIGN


def waiting_layout(program: ir.Program, layout: Layout) -> WaitingLayout:
    """Return where things are in a waiting packet."""
    kept = sorted({slot for slots in program.field_lists for slot in slots if is_wide(program, slot)})
    sizes = tuple(program.fields[slot].width // 8 for slot in kept)
    return WaitingLayout(layout.hot_bytes, tuple(kept), sizes)


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A row of a table: action number (32 bits), key, parameters of the action; integers little-endian.

    The fields of the key that are not ranges lie side by side in one number, the first field highest.  A table that is
    all exact keeps that number; others keep the mask and the masked number, then low and high of each range.
    """

    spec: TableSpec

    @property
    def exact(self) -> bool:
        """Return whether every key field is exact."""
        return all(key.kind is MatchKind.EXACT for key in self.spec.keys)

    @property
    def key_bits(self) -> int:
        """Return the bits of the number that the fields other than ranges make, a multiple of 64."""
        return 64 * words(sum(key.width for key in self.spec.keys if key.kind is not MatchKind.RANGE))

    @property
    def value_offset(self) -> int:
        """Return where the key's number starts."""
        return 8 if self.exact else 8 + self.key_bits // 8

    @property
    def range_offset(self) -> int:
        """Return where low and high of the first range start."""
        return self.value_offset + self.key_bits // 8

    @property
    def params_offset(self) -> int:
        """Return where an action's first parameter starts."""
        ranges = sum(words(key.width) for key in self.spec.keys if key.kind is MatchKind.RANGE)
        return self.range_offset + 16 * ranges

    def param_offset(self, action: int, index: int) -> int:
        """Return where a parameter starts."""
        before = self.spec.actions[action].params[:index]
        return self.params_offset + 8 * sum(words(param.width) for param in before)

    @property
    def stride(self) -> int:
        """Return the bytes from one row to the next."""
        longest = max(8 * sum(words(param.width) for param in action.params) for action in self.spec.actions)
        return -(-(self.params_offset + longest) // 16) * 16


def words(width: int) -> int:
    """Return how many 64-bit words hold that many bits."""
    return (width + 63) // 64


def context_words(program: ir.Program) -> int:
    """Return the length of the context."""
    arrays = len(program.registers) + len(program.counters) + len(program.meters)
    return FIRST_ARRAY + arrays + TABLE_WORDS * len(program.tables)


def register_word(register: int) -> int:
    """Return the context word that holds a register's address."""
    return FIRST_ARRAY + register


def counter_word(program: ir.Program, counter: int) -> int:
    """Return the context word that holds a counter's address."""
    return FIRST_ARRAY + len(program.registers) + counter


def meter_word(program: ir.Program, meter: int) -> int:
    """Return the context word that holds a meter's address."""
    return counter_word(program, len(program.counters)) + meter


def table_word(program: ir.Program, table: int, which: int) -> int:
    """Return one of a table's context words."""
    return meter_word(program, len(program.meters)) + TABLE_WORDS * table + which
