"""The controller's connection to its switch, which may end and be opened again: state of the switch, meaning of errors.

A `Session` is one P4Runtime connection; this module outlives it.  It remembers what is on the switch (`current`), so
that only differences are written, and turns P4Runtime's errors into the errors that callers get.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from switchsum_protocol.errors import NoCapacity, RemoteError, SwitchLost
from switchsum_switch.connections import tls
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from ..jobs.slots import Cell
from ..tables.entries import Change, Entry, SwitchState, Write, diff
from ..tables.names import ADMISSION, IDENTITY
from .switch_session import Limits, Session

log = logging.getLogger("switchsum.controller.switches.connection")

Answer = TypeVar("Answer")


CONNECTION_CODES: Final = frozenset(
    {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION}
)
"""Codes that mean that the connection cannot be used any more, and not that the request was wrong."""
REFUSED_CODES: Final = frozenset({Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS})
"""Codes of a switch that is there and not this controller's: it keeps another program, or does not take this one."""
OUSTED_CODES: Final = frozenset({Code.ALREADY_EXISTS, Code.PERMISSION_DENIED})
"""Codes that mean that another client has become primary."""


class SwitchConnection:
    """The connection to a switch that may be away.

    `open` may take long and changes nothing here, so that it needs no lock; all other methods need one.  `ask` lets
    others have it meanwhile.  Methods that need the switch raise SwitchLost if it is away, NoCapacity if it is full and
    RemoteError if it refuses something.
    """

    def __init__(self, address: str, open_session: Callable[[], Session]) -> None:
        self.address = address
        self._open_session = open_session
        self._session: Session | None = None
        self.current = SwitchState()
        """The entries and groups that are on the switch."""
        self.limits = Limits()
        """The limits of the switch."""
        self.is_settled = False
        """The switch is connected and has all that was last put on it."""
        self.is_ousted = False
        """Another client has been primary since the controller was; the controller resets it."""
        self._keeps_metadata = False
        self._touched: _Touched | None = None
        """What frames may have changed since this controller loaded the program.  None: the program was there before,
        so anything may have been changed.
        """
        self._trouble = ""
        self.refusal = ""
        """Why a switch that answers cannot be used. Empty: it is used, or does not answer."""

    @property
    def is_up(self) -> bool:
        """Whether the switch is connected."""
        return self._session is not None

    @property
    def trouble(self) -> str:
        """What went wrong last; nothing while the switch has all that it should have."""
        return "" if self.is_settled else self._trouble

    def open(self) -> tuple[Session, bool]:
        """Open a session; return it, and whether the program had to be loaded.  Raises P4RuntimeError."""
        session = self._open_session()
        return session, session.connect()

    def attach(self, session: Session, *, was_loaded: bool = False) -> None:
        """Use a session from now on, and read its entries and groups; `was_loaded` is what `open` returned with it."""
        try:
            self.current, self.limits = session.read_state(), session.find_limits()
        except P4RuntimeError:
            session.close()
            raise
        self._session, self._trouble, self.refusal = session, "", ""
        self._keeps_metadata = False
        self._touched = _Touched() if was_loaded else None

    def detach(self, error: RemoteError, session: Session | None = None) -> bool:
        """Close the session if it is the given one (None: any); return whether it was."""
        if self._session is None or (session is not None and session is not self._session):
            return False
        self.close()
        self.note(error)
        self.is_ousted |= isinstance(error, P4RuntimeError) and error.code in OUSTED_CODES
        return True

    def close(self) -> None:
        """Close the connection; the entries stay on the switch."""
        if self._session is not None:
            self._session.close()
        self._session, self.is_settled = None, False

    def note(self, error: RemoteError) -> None:
        """Remember and log an error of the switch, once for each text."""
        self.refusal = ""
        if isinstance(error, P4RuntimeError) and error.code in REFUSED_CODES and not self.is_up:
            self.refusal = error.message
        if str(error) != self._trouble:
            self._trouble = str(error)
            if isinstance(error, P4RuntimeError) and error.code is Code.UNAVAILABLE:
                reason = tls.in_words(error.message)
                log.warning(
                    "switch %s does not answer (%s): the controller tries again until it does", self.address, reason
                )
            else:
                log.warning("switch %s: %s", self.address, error)

    def need(self) -> Session:
        """Return the session; raises SwitchLost."""
        if self._session is None:
            raise SwitchLost(
                f"the controller has no connection to the switch at {self.address}: "
                f"{self._trouble or 'not connected yet'}"
            )
        return self._session

    def write_difference(self, desired: SwitchState, timeout_s: float | None = None) -> None:
        """Write the difference between the desired state and the switch's.

        `timeout_s` is how long the switch has for each answer; None: as long as for any other.
        """
        self.need()
        if steps := diff(self.current, desired, ADMISSION):
            self.is_settled = False
            if self._touched is not None:
                self._touched.note(write for step in steps for write in step)
            with self._explained() as session:
                try:
                    session.write(steps, timeout_s)
                    self._probe(session, desired)
                except P4RuntimeError as error:
                    # Writes before the one that failed were carried out: only the switch knows how far it came.
                    if error.code not in CONNECTION_CODES:
                        self.current = session.read_state()  # some of the writes were carried out
                    raise
        self.current, self.is_settled = desired, True

    def _probe(self, session: Session, state: SwitchState) -> None:
        """Look, once a session, whether the switch keeps entries' metadata: a controller that starts has nothing else.

        A switch that drops it would work until the controller starts anew, finds no job, and so ends all of them.
        """
        if not self._keeps_metadata and any(entry.metadata for entry in state.table(IDENTITY)):
            if not session.keeps_metadata(state):
                raise P4RuntimeError(
                    "Read",
                    Code.FAILED_PRECONDITION,
                    "it does not keep the metadata of table entries, in which the controller keeps its jobs "
                    "(P4Runtime's TableEntry.metadata)",
                )
            self._keeps_metadata = True

    def clear(self, cells: Sequence[Cell]) -> None:
        """Set cells to the state of cells that were never used."""
        with self._explained() as session:
            session.clear(cells)

    def read_numbers(self, slots: Sequence[int]) -> list[Cell]:
        """Return number and contributors alone of both versions of slots that no frame changes meanwhile.

        The switch is asked only about cells that frames may have changed: a job's start waits for its answer.
        """
        cells, touched = both_versions(slots), self._touched
        asked = [cell for cell in cells if touched is None or cell[0] in touched.slots]
        with self._explained() as session:
            found = {(cell.slot, cell.version): cell for cell in (session.read_numbers(asked) if asked else ())}
        return [found.get(one) or Cell(slot=one[0], version=one[1], number=0, seen=0) for one in cells]

    def clear_counts(self, group: int, ranks: int) -> None:
        """Begin to count a group's frames from 0, where frames of the group may have been counted."""
        with self._explained() as session:
            if self._touched is None or group in self._touched.groups:
                session.clear_reasons(group, ranks)

    def ask(self, question: Callable[[Session], Answer], lock: threading.Condition) -> Answer:
        """Return the answer of the switch to a question that changes nothing on it.

        The caller holds `lock`, which is free while the switch is asked: all cells of a job take a while.
        """
        with self._explained() as session, _released(lock):
            return question(session)

    @contextmanager
    def _explained(self) -> Iterator[Session]:
        """Hand out the session, and turn P4Runtime's errors into those that callers get.

        A connection that cannot be used any more is closed.
        """
        session = self.need()
        try:
            yield session
        except SwitchLost as error:
            # The end of the connection is noticed here before it is handled as an event.
            if not session.is_connected:
                self.detach(error, session)
            raise
        except P4RuntimeError as error:
            if error.code in CONNECTION_CODES:
                self.detach(error, session)
                raise SwitchLost(f"the switch at {self.address} no longer answers: {error}") from error
            if Code.RESOURCE_EXHAUSTED in {error.code, *(failure.code for failure in error.failures)}:
                raise NoCapacity(f"the switch at {self.address} has no room for more entries: {error}") from error
            raise RemoteError(str(error)) from error


class _Touched:
    """Slots and groups that entries have let frames come to, whether frames have come or not."""

    def __init__(self) -> None:
        self.slots: set[int] = set()
        self.groups: set[int] = set()

    def note(self, writes: Iterable[Write]) -> None:
        """Take entries into account that are about to be written: frames may find them before the switch answers."""
        for write in writes:
            if write.change is Change.DELETE or not isinstance(write.item, Entry):
                continue
            params = write.item.params
            if "first_slot" in params:
                self.slots.update(range(params["first_slot"], params["first_slot"] + params["slot_count"]))
            if "group" in params:
                self.groups.add(params["group"])


def both_versions(slots: Iterable[int]) -> list[tuple[int, int]]:
    """Return the cells of slots, as (slot, version)."""
    return [(slot, version) for slot in slots for version in (0, 1)]


@contextmanager
def _released(lock: threading.Condition) -> Iterator[None]:
    """Let others have a lock that the caller holds."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()
