"""Where packets, tables and arrays lie in memory while native code runs.

A packet has two pieces of memory.

- *Hot* memory holds validity bytes, metadata that more than one graph uses, and the narrow fields of headers, as they
  are on the wire.  For each wide field it holds a pointer to the field's bytes, wherever they are at the moment: in the
  frame, in a register, in storage, or in a cell of zeros.  To copy hot memory is to copy the packet.
- *Storage* is room for the bytes of wide fields that were computed.

Example: a header of 8 narrow fields and 4 fields of 2,048 bits takes 8 fields' bytes and 4 pointers of hot memory.  A
program that never changes the 4 fields never copies their 1,024 bytes; the deparser takes them from the frame.

Metadata that only one graph uses lives in variables of that graph's function.

The *context* is an array of 64-bit words, most of them addresses.  Native code reaches the switch's state through it
alone, so that the code itself contains no address and can be cached.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from ..messages.matches import MatchKind
from ..program import ir
from ..program.passes.analysis import GRAPHS, is_wide, used_by
from ..queues.parking import PLACE_WORDS
from ..state.tables import TableSpec

RANDOM, DIRECTORY, SESSIONS, COPIES, ZEROS, DUMP, TEMPLATE, LEVELS, WAITING, QUEUES, TIME, POOL = range(12)
"""Words of the context: random generator; directories of multicast groups and of clone sessions; most copies of a frame
that `pipeline.room` counts; a cell of zeros, and a cell that takes writes beyond an array's end; hot memory of a new
packet; memory of the levels of packets, and of packets that wait to enter ingress again; state of the queues; time of
the batch in microseconds, which native code itself writes; pool of the places of packets that wait for egress, 0: none
waits."""
FIRST_ARRAY: Final = 12
TABLE_WORDS: Final = 13
ROWS, SLOTS, TAGS, SLOTS_MASK, COUNTS, METERS, CHOICES, TUPLES, ORDER, TUPLES_COUNT, FILTER, FILTER_WORDS, HITS = range(
    TABLE_WORDS
)
"""Words of a table: its rows; hash slots, their tags, and their number less 1; direct counters; direct meters; of an
action profile's choices, addresses of lists of rows and their lengths; of a table with a key field that is not exact,
its tuples, their numbers in the order of a lookup, and how many there are; of one with priorities, its filter
(`filters.py`) and how many words of bits each value has there in the place of that order; times of hits."""
CHOICE_OFFSET: Final = 4
"""Offset in a row of the number of its choice, 32 bits; 0: the row has an action itself."""
CHOICE_BYTES: Final = 16
"""Bytes of a choice: an address and a length, 64 bits each."""
RANDOM_BIT: Final = 63
"""Bit of a choice's length that says that a random number chooses."""
RANK_OFFSET, NEXT_OFFSET, MASK_OFFSET = 8, 24, 32
"""Offsets in a row of a table with a key field that is not exact: its rank, 128 bits; the next row of its chain; the
mask of its key."""
BEST_OFFSET, SEED_OFFSET, SINGLE_OFFSET, TUPLE_MASK_OFFSET = 0, 16, 24, 32
"""Offsets in a tuple: its best rank, 128 bits; what the hash of a key begins with; the first row of its only chain, or
0 if it has several; its mask, and behind it the value of its only chain."""

ALIGN: Final = 64


@dataclass(frozen=True, slots=True)
class Narrow:
    """Consecutive bytes of a header that hot memory holds as they are on the wire."""

    start: int
    """Offset in the header, in bytes."""
    size: int
    hot: int
    """Offset in hot memory."""


@dataclass(frozen=True, slots=True)
class Wide:
    """Consecutive wide fields of a header, of equal width."""

    start: int
    """Offset in the header, in bytes."""
    size: int
    """Bytes of each field."""
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A field of variable length; what is behind it on the wire moves with its length."""

    start: int
    """Offset in the header, in bytes."""
    size: int
    """Most bytes of the field."""
    slot: int
    length: int
    """Slot that says how many bits it has."""
    shift: int
    """Bits of its first byte on the wire that belong to the field in front of it."""


Segment = Narrow | Wide | Variable


class Layout:
    """Offsets of a program's headers and fields."""

    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._hot = 0
        self._storage = 0
        self.segments: dict[int, tuple[Segment, ...]] = {}
        self.pointers: dict[int, int] = {}
        """Offset in hot memory of each wide field's pointer; a wide field that one graph alone uses has none."""
        self.storage: dict[int, int] = {}
        """Offset in storage of each wide field's own bytes."""
        self.metadata: dict[int, int] = {}
        """Offset in hot memory of each narrow field of metadata that several graphs use, and of the length of each
        variable field."""
        self.local = self._find_local()
        """For each graph, the metadata that it alone uses."""
        headers = [index for index, header in enumerate(program.headers) if not header.metadata]
        self.valid = {header: self._take(1, 1) for header in headers}
        """Offset in hot memory of each header's validity."""
        # Metadata first, with the alignment that it needs; then headers, each from a multiple of 8 bytes on.
        everywhere = set().union(*self.local.values())
        for header in program.headers:
            for slot in header.slots if header.metadata else ():
                if is_wide(program, slot):
                    self._place_wide(slot, slot in everywhere)
                elif slot not in everywhere:
                    self._place_number(slot)
        for index in headers:
            if (length := program.headers[index].length) is not None:
                self._place_number(length)
            self.segments[index] = tuple(self._segment(program.headers[index]))
        self.hot_bytes = -(-self._hot // ALIGN) * ALIGN
        self.level_bytes = self.hot_bytes + max(self._storage, ALIGN)
        """Bytes from the memory of one level of packets to the next: hot memory, then storage."""

    def bit_address(self, slot: int) -> tuple[int, int]:
        """Return the offset in hot memory of a narrow header field, in bytes and further bits."""
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

    def _place_number(self, slot: int) -> None:
        size = machine_bytes(self._program.fields[slot].width)
        self.metadata[slot] = self._take(size, min(size, 16))

    def _place_wide(self, slot: int, local: bool) -> None:
        if not local:
            self.pointers[slot] = self._take(8, 8)
        self.storage[slot] = self._storage
        self._storage += -(-self._program.fields[slot].width // (8 * ALIGN)) * ALIGN

    def _segment(self, header: ir.HeaderInfo) -> list[Segment]:
        """Cut a header into runs of narrow bytes and runs of wide fields, and place them in memory."""
        program = self._program
        # Fields join the segment before them if they are of its kind.  A narrow segment has whole bytes: fields that
        # share a byte are in one segment, since a wide field begins at a byte (`is_wide`).  Only a variable field may
        # begin within a byte; the segments around it then have a byte more, of which it has a part (`shifted.py`).
        made: list[Segment] = []
        for slot in header.wire:
            field = program.fields[slot]
            end = (field.offset + field.width + 7) // 8
            last = made[-1] if made else None
            if field.length is not None:
                made.append(Variable(field.offset // 8, field.width // 8, slot, field.length, field.offset % 8))
            elif is_wide(program, slot):
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
                for slot in segment.slots if isinstance(segment, Wide) else (segment.slot,):
                    self._place_wide(slot, False)
                placed.append(segment)
        return placed

    def _find_local(self) -> dict[str, set[int]]:
        # Fields that the switch itself, a new life or a header stack uses must outlive a graph.
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
    """Return the bytes of a variable for an integer of that width: a power of two, or a multiple of 16."""
    if width > 64:
        return -(-width // 128) * 16
    return 1 << max(0, (width - 1).bit_length() - 3)


@dataclass(frozen=True, slots=True)
class WaitingLayout:
    """The memory of a packet that waits to enter ingress again: four words, hot memory, wide metadata that it keeps."""

    hot_bytes: int
    wide: tuple[int, ...]
    """Slots of the wide fields of all field lists."""
    sizes: tuple[int, ...]
    """Bytes of each of these fields."""

    FRAME, LENGTH, TYPE, LIST = 0, 8, 16, 24
    HOT = ALIGN

    def wide_offset(self, slot: int) -> int:
        """Return the offset of a wide field's bytes."""
        return self.HOT + self.hot_bytes + sum(self.sizes[: self.wide.index(slot)])

    @property
    def stride(self) -> int:
        """Return the bytes from one waiting packet to the next."""
        return -(-(self.HOT + self.hot_bytes + sum(self.sizes)) // ALIGN) * ALIGN


def waiting_layout(program: ir.Program, layout: Layout) -> WaitingLayout:
    """Return the layout of a waiting packet."""
    kept = sorted({slot for slots in program.field_lists for slot in slots if is_wide(program, slot)})
    sizes = tuple(program.fields[slot].width // 8 for slot in kept)
    return WaitingLayout(layout.hot_bytes, tuple(kept), sizes)


@dataclass(frozen=True, slots=True)
class PlaceLayout:
    """The memory of a packet that waits for egress: words, hot memory, the bytes of all wide fields, the frame."""

    pointers: tuple[int, ...]
    """Offsets in hot memory of the pointers of the wide fields."""
    sizes: tuple[int, ...]
    """Bytes of each of these fields."""
    hot_bytes: int

    HOT = 8 * PLACE_WORDS

    @property
    def wide(self) -> tuple[int, ...]:
        """Return the offset of each wide field's bytes."""
        start = self.HOT + self.hot_bytes
        return tuple(start + sum(self.sizes[:number]) for number in range(len(self.sizes)))

    @property
    def frame(self) -> int:
        """Return the offset of the frame, which is also the number of bytes in a place beside the frame."""
        return -(-(self.HOT + self.hot_bytes + sum(self.sizes)) // ALIGN) * ALIGN


def place_layout(program: ir.Program, layout: Layout) -> PlaceLayout:
    """Return the layout of a packet that waits for egress."""
    slots = sorted(layout.pointers)
    sizes = tuple(program.fields[slot].width // 8 for slot in slots)
    return PlaceLayout(tuple(layout.pointers[slot] for slot in slots), sizes, layout.hot_bytes)


@dataclass(frozen=True)
class RowLayout:
    """A row of a table: numbers of action and choice (32 bits each), key, parameters of the action; little-endian.

    The key fields that are not ranges are side by side in one number, the first field highest, so that one comparison
    covers all of them.  If all fields are exact, the row holds this number.  Otherwise it holds its rank, the next row
    of its chain, a mask and the masked number, then low and high of each range.
    """

    spec: TableSpec

    @cached_property
    def exact(self) -> bool:
        """Return whether every key field is exact."""
        return all(key.kind is MatchKind.EXACT for key in self.spec.keys)

    @cached_property
    def filtered(self) -> bool:
        """Return whether a filter says which tuples are searched; if not, they are in the order of their ranks."""
        return self.spec.prioritised

    @cached_property
    def key_bits(self) -> int:
        """Return the width of the number that the fields other than ranges make, a multiple of 64."""
        return 64 * words(sum(key.width for key in self.spec.keys if key.kind is not MatchKind.RANGE))

    @cached_property
    def value_offset(self) -> int:
        """Return the offset of the key's number."""
        return 8 if self.exact else MASK_OFFSET + self.key_bits // 8

    @cached_property
    def tuple_stride(self) -> int:
        """Return the bytes from one tuple to the next."""
        return TUPLE_MASK_OFFSET + -(-2 * self.key_bits // 128) * 16

    @cached_property
    def range_offset(self) -> int:
        """Return the offset of low and high of the first range."""
        return self.value_offset + self.key_bits // 8

    @cached_property
    def params_offset(self) -> int:
        """Return the offset of an action's first parameter."""
        ranges = sum(words(key.width) for key in self.spec.keys if key.kind is MatchKind.RANGE)
        return self.range_offset + 16 * ranges

    def param_offset(self, action: int, index: int) -> int:
        """Return the offset of a parameter."""
        before = self.spec.actions[action].params[:index]
        return self.params_offset + 8 * sum(words(param.width) for param in before)

    @cached_property
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
    return FIRST_ARRAY + arrays + TABLE_WORDS * len(program.tables) + len(program.digests)


def register_word(register: int) -> int:
    """Return the context word that holds a register's address."""
    return FIRST_ARRAY + register


def counter_word(program: ir.Program, counter: int) -> int:
    """Return the context word that holds a counter's address."""
    return FIRST_ARRAY + len(program.registers) + counter


def meter_word(program: ir.Program, meter: int) -> int:
    """Return the context word that holds a meter's address."""
    return counter_word(program, len(program.counters)) + meter


def digest_word(program: ir.Program, digest: int) -> int:
    """Return the context word that holds the address of a digest's memory."""
    return table_word(program, len(program.tables), 0) + digest


def table_word(program: ir.Program, table: int, which: int) -> int:
    """Return one of a table's context words."""
    return meter_word(program, len(program.meters)) + TABLE_WORDS * table + which
