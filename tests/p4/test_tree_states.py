"""A cell of a leaf, an inner switch and a root: in each state, each frame does in the program what the rules say.

`checks/verify/relation.py` is the same for rows 1 to 12, with hand-overs.  Here are rows 13 to 19 of
`protocol.tree_rules`.  The network may do what it likes: any frame of the two members and of the switch above may come
in any state, any number of times or never.  The two cells of a slot share nothing, so one is looked at: rounds 1 and 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from support.tree_pair import FIRST, UP, Pair
from switchsum.testing.embedded import Embedded
from switchsum_protocol.frame import Flag, Kind, Reason
from switchsum_protocol.slot_rules import Cell, Replies

LANES = 128
CELL = FIRST << 1 | 1
ROUNDS = (1, 3)
REGISTERS = ("tags", "seen_members", "outcomes", "slot.lanes.sums")
ROWS = {"leaf": {13, 14, 16, 17, 18, 19}, "inner": {13, 14, 15, 16, 17, 18, 19}, "root": {15}}
"""Rows that apply: only switches say that lanes are final, and nothing is above a root."""

State = tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What may come."""

    send: Callable[[], Replies]
    is_from_above: bool = False
    is_final: bool = False


class Search:
    """A switch and its definition, whose cell is brought into each state that it can have."""

    def __init__(self, role: str) -> None:
        self.engine = Embedded(LANES, "native")
        self.pair = Pair(self.engine, members=2, is_inner=role == "inner", is_root=role == "root")
        self.slices = []
        for name in REGISTERS:
            register = self.engine.pipeline.registers[f"SwitchIngress.dispatch.cells.{name}"]
            size = register.memory.nbytes // 2048
            self.slices.append(register.memory.view(np.uint8)[CELL * size : (CELL + 1) * size])
        self.rows: set[int] = set()
        self.frames = list(self.members()) + ([] if role == "root" else list(self.above()))

    def members(self) -> Iterator[Frame]:
        """Yield what the members may send."""
        payload, repeat = Flag.PAYLOAD, Flag.PAYLOAD | Flag.REPEAT
        ways = (payload, Flag(0), repeat, Flag.REPEAT, repeat | Flag.RECALL, payload | Flag.FINAL, repeat | Flag.FINAL)
        for number in ROUNDS:
            for place in range(2):
                for flags in ways:
                    value = 100 * number + (7 if flags & Flag.FINAL else place + 1)
                    send = partial(self.pair.contribute, place, value, number=number, flags=flags)
                    yield Frame(send=send, is_final=bool(flags & Flag.FINAL))
            yield Frame(send=partial(self.pair.contribute, 1, 2, number=number, digest=5))

    def above(self) -> Iterator[Frame]:
        """Yield what the switch above may say."""
        for number in ROUNDS:
            said: list[dict[str, Any]] = [{"flags": one} for one in (Flag.PAYLOAD, 0, Flag.PAYLOAD | Flag.OVERFLOW)]
            said += [{"kind": Kind.HELD, "flags": 0}, {"kind": Kind.REJECT, "reason": Reason.SLOT, "flags": 0}]
            for fields in said:
                yield Frame(send=partial(self.pair.tell, 100 * number + 7, number=number, **fields), is_from_above=True)

    def state(self) -> tuple[State, Cell | None]:
        """Return the cell of both."""
        cell = self.pair.definition.cells.get(CELL)
        return tuple(part.tobytes() for part in self.slices), cell and replace(cell, lanes=cell.lanes.copy())

    def meaning(self) -> tuple[Any, ...]:
        """Return what the cell's state is by the rules: lanes mean something only with the payload flag."""
        cell = self.pair.definition.cells.get(CELL)
        if cell is None or cell.seen == 0:
            return ()
        lanes = cell.lanes.tobytes() if cell.flags & Flag.PAYLOAD else b""
        return (cell.number, cell.seen, cell.tag, cell.next_block, cell.next_exponent, cell.flags, cell.asked, lanes)

    def load(self, state: State, cell: Cell | None) -> None:
        """Bring both into an earlier state."""
        for part, saved in zip(self.slices, state, strict=True):
            part[:] = np.frombuffer(saved, np.uint8)
        self.pair.definition.cells = {} if cell is None else {CELL: replace(cell, lanes=cell.lanes.copy())}

    def note_row(self, frame: Frame, sent: Replies, before: Cell | None) -> None:
        """Note which row of the table has applied."""
        counted = self.pair.counted
        goes_up = bool(sent) and sent[0][0] == UP
        if frame.is_from_above:
            row = 18 if not sent else 16 if Reason.COMPLETED in counted else 17
            self.rows.add(row)
        elif Reason.REPEATED in counted and (goes_up or not sent):
            is_final = before is not None and bool(before.flags & Flag.FINAL)
            self.rows.add(19 if not sent else 14 if is_final else 13)
        elif Reason.COMPLETED in counted and frame.is_final:
            self.rows.add(15)

    def run(self) -> int:
        """Visit every state; return how many there are."""
        known, ahead = {self.meaning()}, deque([self.state()])
        while ahead:
            state, cell = ahead.popleft()
            for frame in self.frames:
                self.load(state, cell)
                sent = frame.send()  # both must do the same: Beside.process
                self.note_row(frame, sent, cell)
                if self.meaning() not in known:
                    known.add(self.meaning())
                    ahead.append(self.state())
        return len(known)


@pytest.mark.parametrize("role", ROWS)
def test_in_each_state_each_frame_does_what_the_rules_say(role: str) -> None:
    search = Search(role)
    count = search.run()
    assert count > 20
    assert search.rows >= ROWS[role]
    search.pair.check_counters()
