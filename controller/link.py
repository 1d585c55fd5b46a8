"""The link to the switch over the controller's life: whether it is up, what is on the switch, what errors mean."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from switchsum.controller.plan import ADMISSION
from switchsum.controller.slots import Cell, SlotRange, plan_numbers
from switchsum.controller.state import State, diff
from switchsum.controller.switch import Limits, Switch
from switchsum.protocol.errors import NoCapacity, RemoteError, SwitchLost
from switchsum.protocol.p4runtime import Code, P4RuntimeError

log = logging.getLogger(__name__)

CONNECTION_CODES: Final = frozenset(
    {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.PERMISSION_DENIED, Code.FAILED_PRECONDITION}
)
"""A call that fails with one of these says that the connection is no good, not that what it asked for is wrong."""
OUSTED_CODES: Final = frozenset({Code.ALREADY_EXISTS, Code.PERMISSION_DENIED})
"""Who loses the connection for one of these has lost it to another client."""


class Link:
    """A switch that comes and goes.

    `open` may take long and touches nothing; everything else is for one thread at a time.  Methods that need the switch
    raise SwitchLost when it is away, NoCapacity when it is full and RemoteError when it refuses something.
    """

    def __init__(self, address: str, make_switch: Callable[[], Switch]) -> None:
        self.address = address
        self._make_switch = make_switch
        self._switch: Switch | None = None
        self.current = State()
        """What is on the switch."""
        self.limits = Limits()
        """What the switch cannot do."""
        self.is_settled = False
        """The switch is up and has all that was last put on it."""
        self.is_ousted = False
        """Another client has been primary of the switch since the controller was; for the controller to look after."""
        self._trouble = ""

    @property
    def is_up(self) -> bool:
        """Whether there is a switch."""
        return self._switch is not None

    def open(self) -> tuple[Switch, bool]:
        """Connect to the switch; return whether it had to be given the program.  Raises P4RuntimeError."""
        switch = self._make_switch()
        return switch, switch.connect()

    def attach(self, switch: Switch) -> None:
        """Use a connected switch from now on, and read what is on it."""
        try:
            self.current, self.limits = switch.read_state(), switch.find_limits()
        except P4RuntimeError:
            switch.close()
            raise
        self._switch, self._trouble = switch, ""

    def detach(self, error: RemoteError, switch: Switch | None = None) -> bool:
        """Give the switch up, if it is the one that is used (None: whichever); return whether it was."""
        if self._switch is None or (switch is not None and switch is not self._switch):
            return False
        self.close()
        self.note(error)
        self.is_ousted |= isinstance(error, P4RuntimeError) and error.code in OUSTED_CODES
        return True

    def close(self) -> None:
        """End the connection; what is on the switch stays there."""
        if self._switch is not None:
            self._switch.close()
        self._switch, self.is_settled = None, False

    def note(self, error: RemoteError) -> None:
        """Remember and log what is the matter with the switch, once for each reason."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            if isinstance(error, P4RuntimeError) and error.code is Code.UNAVAILABLE:
                reason = error.message.rpartition(": ")[2]  # gRPC names the address and each of its layers before that
                log.warning("switch %s does not answer (%s): it is tried again until it does", self.address, reason)
            else:
                log.warning("switch %s: %s", self.address, error)

    def need(self) -> Switch:
        """Return the switch; raises SwitchLost."""
        if self._switch is None:
            raise SwitchLost(f"the controller has no switch at {self.address}: {self._trouble or 'not connected yet'}")
        return self._switch

    def put(self, desired: State) -> None:
        """Write what is desired and not there yet."""
        switch = self.need()
        if steps := diff(self.current, desired, ADMISSION):
            self.is_settled = False
            with self._explained():
                try:
                    switch.write(steps)
                except P4RuntimeError as error:
                    if error.code not in CONNECTION_CODES:
                        self.current = switch.read_state()  # some of the writes were made
                    raise
        self.current, self.is_settled = desired, True

    def hand_over(self, slots: SlotRange) -> int:
        """Return the number from which on an incarnation may use slots, whatever they have seen before."""
        first_number, spent = plan_numbers(self.query(slots.indices()))
        with self._explained():
            self.need().clear(spent)
        return first_number

    def query(self, slots: Sequence[int]) -> list[Cell]:
        """Read both versions of slots."""
        with self._explained():
            return self.need().query([(slot, version) for slot in slots for version in (0, 1)])

    def count_events(self) -> dict[int, tuple[int, int]]:
        """Return packets and bytes for each reason."""
        with self._explained():
            return self.need().count_events()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn what P4Runtime says into what callers are told; a connection that is no good is given up."""
        try:
            yield
        except P4RuntimeError as error:
            if error.code in CONNECTION_CODES:
                self.detach(error)
                raise SwitchLost(f"the switch at {self.address} is gone: {error}") from error
            if Code.RESOURCE_EXHAUSTED in {error.code, *(failure.code for failure in error.failures)}:
                raise NoCapacity(f"the switch is full: {error}") from error
            raise RemoteError(str(error)) from error
