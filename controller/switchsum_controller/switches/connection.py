"""The controller's connection to its switch, which may end and be opened again: state of the switch, meaning of errors.

A `Session` is one P4Runtime connection; this module outlives it.  It remembers what is on the switch (`current`), so
that only differences are written, and turns P4Runtime's errors into the errors that callers get.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from switchsum_protocol.errors import NoCapacity, RemoteError, SwitchLost
from switchsum_protocol.frame import Reason
from switchsum_switch.connections import tls
from switchsum_switch.messages.p4runtime import Code, P4RuntimeError

from ..jobs.slots import Cell
from ..tables.entries import SwitchState, diff
from ..tables.names import ADMISSION, IDENTITY
from .session import Limits, Session

log = logging.getLogger("switchsum.controller.switches.connection")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounts:
    """The counts of the switch for each member."""

    frames: Mapping[tuple[str, int, int], tuple[int, int]]
    """Packets and bytes by table, job number and rank."""
    reasons: Mapping[tuple[int, int], Mapping[Reason, int]]
    """Packets by multicast group and rank."""


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

    `open` may take long and changes nothing here, so that it needs no lock; all other methods need one.  Methods that
    need the switch raise SwitchLost if it is away, NoCapacity if it is full and RemoteError if it refuses something.
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

    def attach(self, session: Session) -> None:
        """Use a session from now on, and read its entries and groups."""
        try:
            self.current, self.limits = session.read_state(), session.find_limits()
        except P4RuntimeError:
            session.close()
            raise
        self._session, self._trouble, self.refusal = session, "", ""
        self._keeps_metadata = False

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
        session = self.need()
        if steps := diff(self.current, desired, ADMISSION):
            self.is_settled = False
            with self._explained():
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
        with self._explained():
            self.need().clear(cells)

    def query(self, slots: Sequence[int]) -> list[Cell]:
        """Read both versions of slots."""
        with self._explained():
            return self.need().query([(slot, version) for slot in slots for version in (0, 1)])

    def read_numbers(self, slots: Sequence[int]) -> list[Cell]:
        """Read number and contributors alone of both versions of slots that no frame changes meanwhile."""
        with self._explained():
            return self.need().read_numbers([(slot, version) for slot in slots for version in (0, 1)])

    def count_events(self) -> dict[int, tuple[int, int]]:
        """Return packets and bytes by reason."""
        with self._explained():
            return self.need().count_events()

    def count_members(self, groups: Mapping[int, int]) -> MemberCounts:
        """Return what each member has sent and was sent, given the ranks of each multicast group."""
        with self._explained():
            session = self.need()
            return MemberCounts(frames=session.count_frames(), reasons=session.count_reasons(groups))

    def clear_counts(self, group: int, ranks: int) -> None:
        """Begin to count a group's frames from 0."""
        with self._explained():
            self.need().clear_reasons(group, ranks)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn P4Runtime's errors into those that callers get; close a connection that cannot be used any more."""
        try:
            yield
        except SwitchLost as error:
            # The end of the connection is noticed here before it is handled as an event.
            if self._session is not None and not self._session.is_connected:
                self.detach(error)
            raise
        except P4RuntimeError as error:
            if error.code in CONNECTION_CODES:
                self.detach(error)
                raise SwitchLost(f"the switch at {self.address} no longer answers: {error}") from error
            if Code.RESOURCE_EXHAUSTED in {error.code, *(failure.code for failure in error.failures)}:
                raise NoCapacity(f"the switch at {self.address} has no room for more entries: {error}") from error
            raise RemoteError(str(error)) from error
