"""Carries out a move: the writes that bring a running job from its trees to others, one switch after the other.

During a move the old and the new root both have entries, and some leaves send to the old root while others send to the
new one.  checks/verify/tree.pml searches these states.  Four rules keep the sums right:

1. Frames of the old trees match nothing in the new trees: each switch gets another cookie for the switch above.
2. A switch whose members change begins with empty cells, as if it were restarted, and takes no member's frames while
   its cells are cleared.  A leaf that has only workers as members keeps its cells.  Each rail begins anew, because it
   gets slots of another rail, and it takes no frames of a rail that was left.
3. A switch gets its entries before the switches below it.  Otherwise it would refuse their frames, and a refusal ends
   the job.  For the same reason the entries of the old trees are deleted last.  A switch that must take no frames for
   a moment has another cookie in its entries meanwhile: frames with a wrong cookie get no answer.
4. When all is written, workers are told, as after a restart, and repeat their rounds.

The job's records are written first, to all switches that are there.  They say that the job moves, and where to.  So if
the controller is killed during the move, the next one finds what is not yet written, and writes it.  The move is over
when the records say so.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..switches.connection import SwitchConnection
from ..switches.fleet import Fleet
from ..tables.entries import Entry, SwitchState
from ..tables.names import ADMISSION, FROM_ABOVE, IDENTITY, RECORD_RANK, RESULT_ADDRESS, UPLINK
from ..trees.branch import Branch

Route = tuple[Sequence[Sequence[str]], Mapping[str, Sequence[Branch]]]
"""The switches of each tree of a job, one behind the one above it, and each switch's part in them."""


def carry_out(fleet: Fleet, desired: Mapping[str, SwitchState], routes: Sequence[Route]) -> None:
    """Bring the switches of jobs to their new trees; what they have on others stays.

    `desired` is what each switch should have in the end.  Raises RemoteError, and can then be called again.
    """
    fresh = {name: one for name, one in fleet.connections.items() if one.is_up and not _knows_itself(one.current)}
    for name, connection in fleet.connections.items():
        if connection.is_up and name not in fresh:
            connection.write_difference(_with_records(connection.current, desired[name]))
    for trees, branches in routes:
        for number, names in enumerate(trees):
            for name in names:
                if name not in fresh:
                    _bring(fleet.connections[name], [one for one in branches[name] if one.tree == number])
    # A switch that has been restarted has empty cells, and refuses nobody before it knows its address.
    for name, connection in fresh.items():
        connection.write_difference(desired[name])


def _bring(connection: SwitchConnection, branches: Sequence[Branch]) -> None:
    """Give one switch its part in one tree, and empty cells if its members are other ones."""
    connection.need()
    wanted = SwitchState.of(item for branch in branches for item in branch.items())
    before = connection.current
    # Also those of rails of which it is not known any more where their links come in: they have the same cells.
    admitted = [entry for entry in before.table(ADMISSION) if entry.params["first_slot"] == branches[0].slots.first]
    if any(before.entries.get(entry.key) != entry for entry in wanted.table(ADMISSION)):
        if admitted:
            connection.write_difference(_with(before, [_silenced(entry) for entry in admitted]))
        slots = branches[0].slots.indices()
        connection.clear([cell for cell in connection.read_numbers(slots) if cell.seen])
    state = _with(connection.current, [*wanted.entries.values(), *wanted.groups.values()])
    for table in (UPLINK, FROM_ABOVE):
        for entry in state.table(table):
            if _is_of(entry, branches) and not wanted.has(entry):
                state.drop(entry)  # it is a root now
    connection.write_difference(state)


def _knows_itself(state: SwitchState) -> bool:
    """Return whether a switch has its address, and so answers: the entry is the last one that it gets."""
    return any(entry.metadata for entry in state.table(IDENTITY))


def _with(state: SwitchState, items: Sequence[object]) -> SwitchState:
    return SwitchState.of([*state.entries.values(), *state.groups.values(), *items])  # type: ignore[list-item]


def _with_records(state: SwitchState, desired: SwitchState) -> SwitchState:
    records = [entry for entry in desired.table(RESULT_ADDRESS) if entry.match["rank"] == RECORD_RANK]
    return _with(state, [*records, *desired.table(IDENTITY)])


def _is_of(entry: Entry, branches: Sequence[Branch]) -> bool:
    """Return whether an entry belongs to the job and the tree of these branches, of which each is another link's."""
    of = {(branch.job, branch.tree, branch.epoch) for branch in branches}
    return (entry.match["job"], entry.match["tree"], entry.match["epoch"]) in of


def _silenced(entry: Entry) -> Entry:
    """Return a member's admission with a cookie that it does not know: what it sends is dropped without an answer."""
    return replace(entry, params={**entry.params, "cookie": secrets.randbits(64)})
