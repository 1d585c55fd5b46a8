from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from switchsum_controller.jobs.slots import Cell, SlotRange, first_fit, longest_free, plan_numbers
from switchsum_protocol import serial

TOTAL = 32


@st.composite
def layouts(draw: st.DrawFn) -> list[SlotRange]:
    """Ranges that do not overlap, in any order."""
    edges = sorted(draw(st.sets(st.integers(0, TOTAL), max_size=10)))
    pairs = [(first, end) for first, end in zip(edges[::2], edges[1::2], strict=False)]
    return draw(st.permutations([SlotRange(first=first, count=end - first) for first, end in pairs]))


@given(layouts(), st.integers(1, TOTAL))
def test_first_fit_is_the_lowest_gap_that_is_free(taken: list[SlotRange], count: int) -> None:
    used = {slot for slots in taken for slot in slots.indices()}
    fitting = [first for first in range(TOTAL - count + 1) if used.isdisjoint(range(first, first + count))]
    found = first_fit(taken, count, TOTAL)
    assert found == (SlotRange(first=fitting[0], count=count) if fitting else None)
    assert (longest_free(taken, TOTAL) >= count) == bool(fitting)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, TOTAL)), max_size=40))
def test_what_is_given_back_can_be_had_again(requests: list[tuple[bool, int]]) -> None:
    taken: list[SlotRange] = []
    for is_release, count in requests:
        if is_release and taken:
            taken.pop(count % len(taken))
        elif (found := first_fit(taken, count, TOTAL)) is not None:
            taken.append(found)
        slots = [slot for other in taken for slot in other.indices()]
        assert len(slots) == len(set(slots))
        assert all(0 <= slot < TOTAL for slot in slots)
    assert first_fit([], TOTAL, TOTAL) == SlotRange(first=0, count=TOTAL)


numbers = st.one_of(
    st.integers(0, 0xFFFF_FFFF),
    st.sampled_from([0, 1, 0x7FFF_FFFE, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, 0xFFFF_FFFF]),
)


@st.composite
def cells(draw: st.DrawFn) -> list[Cell]:
    """Both versions of some slots; a used cell's number has its version."""
    found = []
    for slot in range(draw(st.integers(1, 6))):
        for version in (0, 1):
            number = draw(numbers) & ~1 | version
            found.append(Cell(slot=slot, version=version, number=number, seen=draw(st.sampled_from([0, 1, 3]))))
    return found


def takes(cell: Cell, number: int) -> bool:
    """Whether the switch opens a new round for this number (rows 3 to 5 of the protocol's slot_rules.py)."""
    return cell.seen == 0 or (number != cell.number and not serial.is_older(number, cell.number))


@given(cells())
@example([Cell(slot=0, version=0, number=0, seen=1), Cell(slot=0, version=1, number=0x8000_0001, seen=1)])
@example(
    [Cell(slot=slot, version=0, number=number, seen=1) for slot, number in enumerate((0, 0x5555_5554, 0xAAAA_AAAA))]
)
def test_every_cell_takes_the_first_rounds_afresh(found: list[Cell]) -> None:
    start, spent = plan_numbers(found)
    for cell in found:
        opening = start if serial.version(start) == cell.version else serial.advance(start)
        assert takes(cell, opening) or cell in spent
        assert cell.seen or cell not in spent


@given(cells())
def test_cells_within_half_the_circle_need_no_clearing(found: list[Cell]) -> None:
    near = [
        Cell(slot=cell.slot, version=cell.version, number=cell.number & 0x3FFF_FFFF, seen=cell.seen) for cell in found
    ]
    start, spent = plan_numbers(near)
    assert not spent
    used = [cell.number for cell in near if cell.seen]
    assert start == (max(used) + 1 if used else 1)
