"""What the controller does while members come and go, as controller.pml has it: who is admitted, with which numbers.

The controller's own loop (`controller.upkeep`) runs with a switch that notes what is written to it and asked of it.
Members leave or fall silent in every order, and those of the next incarnation join at once or late.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from switchsum import p4src
from switchsum_controller.jobs.slots import Cell
from switchsum_controller.service import reconciler
from switchsum_controller.service.config import Config
from switchsum_controller.switches.switch_session import Build, Limits
from switchsum_controller.tables.entries import Change, Entry, SwitchState, Write
from switchsum_controller.tables.names import ADMISSION
from switchsum_controller.trees.fabric import ONLY
from switchsum_protocol.slot_rules import SWITCH_ADDRESS
from switchsum_protocol.states import MemberState
from switchsum_switch.wires.headers import Address

from .switches import LANES, NUMBERS, State

NAME: Final = "job"
EPOCH: Final = 7
"""Of the first incarnation."""
HIGH: Final = 0xFFFF_FFE0
"""Numbers of cells are the model's and this, so that those of the next incarnation may wrap."""


class Gate(IntEnum):
    """Whose entries are on the switch, with the model's numbers."""

    OPEN = 0
    CLOSED = 1
    HANDED_OVER = 2


class What(IntEnum):
    """What the controller did, with the model's numbers."""

    CLOSE = 1
    """The last entry of the first incarnation went."""
    STAY = 2
    """Nothing, although a member has gone."""
    QUERY = 3
    """The cells were read."""
    HAND_OVER = 4
    """The first entry of the second incarnation came."""
    OTHER = 5
    """Some members of an incarnation had entries, and others none, or the first incarnation's came back."""


class Move(NamedTuple):
    """One thing that the controller did, and the state in which it did it."""

    workers: int
    left: int
    """Members of the first incarnation that have left, as bits."""
    lost: int
    """One of them was declared lost."""
    gate: Gate
    cells: tuple[State, State]
    what: What
    number: int = 0
    """HAND_OVER: of the second incarnation's first round."""


CELLS: Final = (
    (State(number=30, seen=3), State(number=31, seen=1)),
    (State(number=30, seen=1), State(number=29, seen=3)),
    (State(), State(number=17, seen=3)),
    (State(number=12, seen=2), State()),
)
"""Cells of the slot when the first incarnation ends, as a job leaves them: the numbers differ by one."""


class _Switch:
    """A switch that notes what the controller does."""

    def __init__(self, workers: int, cells: tuple[State, State], note: Callable[[What], None]) -> None:
        self.gate = Gate.OPEN
        self._workers = workers
        self._cells = cells
        self._note = note
        self._epochs: list[int] = []

    def keeps_metadata(self, state: SwitchState) -> bool:
        return True

    def write(self, steps: Sequence[Sequence[Write]], timeout_s: float | None = None) -> None:
        for write in itertools.chain(*steps):
            if isinstance(write.item, Entry) and write.item.table == ADMISSION and write.change is not Change.MODIFY:
                self._change(write.change, int(str(write.item.match["epoch"])))
        if len(self._epochs) not in (0, self._workers) or (EPOCH in self._epochs) != (self.gate is Gate.OPEN):
            self._note(What.OTHER)

    def _change(self, change: Change, epoch: int) -> None:
        if change is Change.INSERT:
            self._epochs.append(epoch)
            if epoch != EPOCH and self.gate is not Gate.HANDED_OVER:
                self._note(What.HAND_OVER)
                self.gate = Gate.HANDED_OVER
        else:
            self._epochs.remove(epoch)
            if EPOCH not in self._epochs and self.gate is Gate.OPEN:
                self._note(What.CLOSE)
                self.gate = Gate.CLOSED

    def read_numbers(self, cells: Sequence[tuple[int, int]]) -> list[Cell]:
        self._note(What.QUERY)
        return [
            Cell(slot=slot, version=version, number=HIGH + state.number, seen=state.seen)
            for slot, version in cells
            for state in [self._cells[version]]
        ]

    def clear(self, cells: Sequence[Cell]) -> None:
        assert not cells  # numbers are near to one another

    def clear_reasons(self, group: int, ranks: int) -> None:
        pass

    def read_state(self) -> SwitchState:
        return SwitchState()

    def find_limits(self) -> Limits:
        return Limits()


class _Run:
    """A job of some workers from its start until the next incarnation runs."""

    def __init__(self, workers: int, cells: tuple[State, State]) -> None:
        compiled = p4src.load(LANES)
        build = Build(lanes_per_frame=LANES, device_config=compiled.device_config, p4info=compiled.p4info)
        self.moves: list[Move] = []
        self._now = 100.0
        self._workers = workers
        self._cells = cells
        self._first: list[int] = []
        self._members: dict[int, list[int]] = {rank: [] for rank in range(workers)}
        self._reconciler = reconciler.Reconciler(
            Config(program=build, switch_address="", address=SWITCH_ADDRESS), time.monotonic
        )
        self._jobs = self._reconciler.jobs
        self._jobs._draw_epoch = lambda: EPOCH
        self._switch = _Switch(workers, cells, self._note)
        self._reconciler.fleet.connections[ONLY].attach(self._switch)  # type: ignore[arg-type]
        self._job = self._jobs.create(NAME, workers=workers, slots=1, timeout_s=1.0)
        for rank in range(workers):
            self.join(rank)
        live = self._job.live
        assert live is not None
        assert live.epoch == EPOCH
        self._incarnation = live

    def join(self, rank: int) -> None:
        """Let a member join, be seen and, where all are, be admitted."""
        _, member = self._jobs.join(NAME, rank=rank, world_size=self._workers, now=self._now)
        address = Address(mac=0x02_00_00_00_01_00 + rank, ip=0x0A_00_00_64 + rank, port=40_000 + rank)
        self._jobs.hello(member.nonce, rank, address, rank + 1, self._now)
        self._members[rank].append(member.nonce)
        with self._reconciler.changed:
            self._reconciler.bring_up_to_date()

    def leave(self, rank: int) -> None:
        """Let a member of the first incarnation leave."""
        self._jobs.leave(self._members[rank][0])
        self._update()

    def lose(self, rank: int) -> None:
        """Let a member of the first incarnation fall silent."""
        self._jobs.tick(self._now)
        self._now += 1.0
        for nonces in self._members.values():
            for nonce in nonces:
                if nonce != self._members[rank][0] and nonce in self._jobs._members:
                    self._jobs.heartbeat(nonce, self._now)
        self._jobs.tick(self._now)
        self._update()

    def _update(self) -> None:
        count = len(self.moves)
        with self._reconciler.changed:
            self._reconciler.bring_up_to_date()
        if len(self.moves) == count and self._switch.gate is Gate.OPEN:
            self._note(What.STAY)

    def _note(self, what: What) -> None:
        if not hasattr(self, "_incarnation"):
            return  # the first one begins
        number = self._job.live.first_number if what is What.HAND_OVER and self._job.live else 0
        left = sum(1 << rank for rank in self._incarnation.ranks(MemberState.LEFT))
        lost = int(bool(self._incarnation.ranks(MemberState.LOST)))
        gate = self._switch.gate
        self.moves.append(Move(self._workers, left, lost, gate, self._cells, what, number % NUMBERS))


def moves() -> list[Move]:
    """Return all that the controller does, each thing in each state once."""
    return list(dict.fromkeys(move for workers in (2, 3) for move in _moves_of(workers)))


def _moves_of(workers: int) -> Iterator[Move]:
    orders = itertools.permutations(range(workers))
    ways = list(itertools.product((_Run.leave, _Run.lose), repeat=workers))
    for order, how, is_early in itertools.product(orders, ways, (True, False)):
        for cells in CELLS if workers == 2 else CELLS[:1]:
            run = _Run(workers, cells)
            for rank, end in zip(order, how, strict=True):
                end(run, rank)
                if is_early:
                    run.join(rank)
            if not is_early:
                for rank in order:
                    run.join(rank)
            yield from run.moves
