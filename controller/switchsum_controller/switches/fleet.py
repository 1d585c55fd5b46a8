"""The switches of a controller: each is kept alone, and a change comes to all of them or to none.

A switch may come, go, be restarted and be replaced at any time.  `mend` gives those that are there what they lack.
`change` needs all of them but those that stay away and are done without; where one does not take its part, the others
get back what they had.  A fleet has no lock: callers do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from switchsum_protocol.errors import RemoteError, SwitchLost
from switchsum_protocol.frame import Reason

from ..jobs.slots import Cell, SlotRange, plan_numbers
from ..tables.entries import SwitchState
from .connection import Answer, SwitchConnection
from .switch_session import Limits, Session

UNUSED_S: Final = 1.0
"""How long a switch has to answer that nobody needs: one that is well takes milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounts:
    """The counts of the switch for each member."""

    frames: Mapping[tuple[str, int, int], tuple[int, int]]
    """Packets and bytes by table, job number and rank."""
    reasons: Mapping[tuple[int, int], Mapping[Reason, int]]
    """Packets by multicast group and rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Counters of the switches that were there."""

    events: dict[str, dict[int, tuple[int, int]]]
    """Packets and bytes by reason, of each switch."""
    members: MemberCounts
    away: list[str]
    """The other switches."""


class Fleet:
    """Connections to switches, by name."""

    def __init__(self, connections: Mapping[str, SwitchConnection]) -> None:
        self.connections = dict(connections)
        self.without: set[str] = set()
        """Switches that stay away and are done without; one that is connected is none of them."""

    @property
    def needed(self) -> dict[str, SwitchConnection]:
        """All switches but those that are done without."""
        return {name: connection for name, connection in self.connections.items() if name not in self.without}

    @property
    def is_up(self) -> bool:
        """Whether all switches are connected that are needed."""
        return all(connection.is_up for connection in self.needed.values())

    @property
    def is_settled(self) -> bool:
        """Whether all switches that are needed are connected and have what was last put on them."""
        return all(connection.is_settled for connection in self.needed.values())

    @property
    def limits(self) -> Limits:
        """The tightest limits of all switches."""
        all_limits = [connection.limits for connection in self.connections.values()]
        return Limits(
            growth_bytes=min(limits.growth_bytes for limits in all_limits),
            port_frames=min((one.port_frames for one in all_limits if one.port_frames is not None), default=None),
        )

    def away(self) -> list[str]:
        """Return the names of the switches that are not connected."""
        return [name for name, connection in self.connections.items() if not connection.is_up]

    def need(self) -> None:
        """Raise SwitchLost, which names it, if a switch is away that is needed."""
        for connection in self.needed.values():
            connection.need()

    def states(self) -> dict[str, SwitchState]:
        """Return what is on each switch that is connected."""
        return {name: connection.current for name, connection in self.connections.items() if connection.is_up}

    def take_ousted(self) -> list[str]:
        """Return addresses of switches of which another client has been primary, and forget that it was."""
        ousted = [connection for connection in self.connections.values() if connection.is_ousted]
        for connection in ousted:
            connection.is_ousted = False
        return [connection.address for connection in ousted]

    def mend(self, desired: Mapping[str, SwitchState]) -> None:
        """Write to each switch that is connected what it lacks; what goes wrong is logged.

        A switch that comes back gets its entries although another one is still away.
        """
        for name, connection in self.connections.items():
            try:
                if connection.is_up:
                    connection.write_difference(desired[name])
            except RemoteError as error:
                connection.note(error)

    def change(self, desired: Mapping[str, SwitchState], unused: Collection[str] = ()) -> None:
        """Bring switches to new states, one after the other in this order, but for those that are done without.

        `unused` are switches that nobody needs for this change.  They come last and have little time to answer, as a
        switch has that hangs; one that does not is done without from then on.

        Raises SwitchLost before anything is written if one is away, and the error of one that does not take its state.
        The switches that were written to before that one get back what they had.  That one is left as it is, not
        settled: what it should have is the caller's to say, to `mend` or in the next change.
        """
        self.need()
        before: dict[str, SwitchState] = {}
        try:
            for name, state in sorted(desired.items(), key=lambda item: item[0] in unused):
                if name in self.without:
                    continue
                connection = self.connections[name]
                had = connection.current
                try:
                    connection.write_difference(state, UNUSED_S if name in unused else None)
                except SwitchLost:
                    if name not in unused:
                        raise
                    self.without.add(name)
                else:
                    before[name] = had
        except RemoteError:
            for name, state in reversed(before.items()):
                self._take_back(self.connections[name], state)
            raise

    def _take_back(self, connection: SwitchConnection, state: SwitchState) -> None:
        """Bring a switch to the state that it had."""
        try:
            if connection.is_up:
                connection.write_difference(state)
        except RemoteError as error:
            connection.note(error)
        connection.is_settled = False

    def note(self, error: RemoteError) -> None:
        """Remember and log an error of a switch that has not all that it should have."""
        unsettled = (connection for connection in self.needed.values() if not connection.is_settled)
        next(unsettled, self.connections[next(iter(self.connections))]).note(error)

    def detach(self, error: RemoteError) -> None:
        """Close all connections: what comes next begins anew."""
        for connection in self.connections.values():
            connection.detach(error)

    def hand_over(self, slots: SlotRange | None, shared_slots: SlotRange | None = None, at: str = "") -> int:
        """Prepare slots of all switches for a new incarnation; return the first number with which it may use them.

        `shared_slots` are those of a job that shares slots, at the fallback, which is called `at`.
        """
        cells = {} if slots is None else self.read_numbers(slots.indices(), but=at)
        if shared_slots is not None:
            cells[at] = self.connections[at].read_numbers(shared_slots.indices())
        first_number, in_the_way = plan_numbers(cell for of_switch in cells.values() for cell in of_switch)
        cells_to_clear = set(in_the_way)
        for name, of_switch in cells.items():
            self.connections[name].clear([cell for cell in of_switch if cell in cells_to_clear])
        return first_number

    def read_numbers(self, slots: Sequence[int], but: str = "") -> dict[str, list[Cell]]:
        """Read number and contributors of both versions of slots of each switch but one."""
        return {name: one.read_numbers(slots) for name, one in self.needed.items() if not but or name != but}

    def ask(self, question: Callable[[str, Session], Answer], lock: threading.Condition) -> dict[str, Answer]:
        """Return the answers of the switches that are there, each asked with its name; raises SwitchLost if none is.

        A question changes nothing.  The caller holds `lock`, which is free while a switch is asked.
        """
        answers: dict[str, Answer] = {}
        lost: SwitchLost | None = None
        for name, connection in self.connections.items():
            try:
                answers[name] = connection.ask(partial(question, name), lock)
            except SwitchLost as error:
                lost = error
        if lost is not None and not answers:
            raise lost
        return answers

    def count(
        self, groups: Mapping[int, int], homes: Mapping[tuple[int, int], str], lock: threading.Condition
    ) -> Counted:
        """Read the counters of the switches that are there, given the ranks of each multicast group.

        `homes` names the switch of each group's ranks: on another switch their numbers may stand for switches.  `lock`
        is free meanwhile, as in `ask`.  Raises SwitchLost if no switch is there.
        """

        def counts(_: str, one: Session) -> tuple[MemberCounts, dict[int, tuple[int, int]]]:
            return MemberCounts(frames=one.count_frames(), reasons=one.count_reasons(groups)), one.count_events()

        found = self.ask(counts, lock)
        members = {name: counts for name, (counts, _) in found.items()}
        return Counted(
            events={name: events for name, (_, events) in found.items()},
            members=MemberCounts(
                frames={key: count for one in reversed(members.values()) for key, count in one.frames.items()},
                reasons={
                    key: members[name].reasons[key]
                    for key, name in homes.items()
                    if name in members and key in members[name].reasons
                },
            ),
            away=[name for name in self.connections if name not in found],
        )

    def clear_counts(self, group: int, ranks: int) -> None:
        """Begin to count a group's frames from 0."""
        for connection in self.needed.values():
            connection.clear_counts(group, ranks)

    def close(self) -> None:
        """Close all connections; the entries stay on the switches."""
        for connection in self.connections.values():
            connection.close()
