"""An engine that no loop drives: its caller brings the frames that came, and sends those that go."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_host.engine import by_hand
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.operation import Operation
from switchsum_switch.kernels.loading import address_of

BY_HAND: Final = (
    by_hand.submit_by_hand,
    by_hand.receive_by_hand,
    by_hand.poll_by_hand,
    by_hand.wake_at_by_hand,
    by_hand.tell_wake_at_by_hand,
    by_hand.sent_by_hand,
)
_SUBMIT, _RECEIVE, _POLL, _WAKE_AT, _TELL_WAKE_AT, _SENT = BY_HAND


class EngineByHand(Engine):
    """An `Engine` with what the loop does for others, a call for each of its steps."""

    def submit(self, operation: Operation, values: npt.NDArray[Any] | None, now: float) -> int:
        """Begin an operation on an array, or on None; return the serial number of its event (see `adopt`)."""
        operation.make_record(self.lanes_per_frame, self.world_size)
        serial = self.adopt(operation, values, now)
        _SUBMIT(self.address, operation.address, now)
        return serial

    def receive(
        self, frames: npt.NDArray[np.uint8], rows: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32], now: float
    ) -> None:
        """Take frames that came, in order: their rows in `frames`, where they start at column `lead`."""
        if len(rows):
            found = address_of(frames), frames.shape[1], address_of(rows), address_of(lengths)
            _RECEIVE(self.address, *found, 0, len(rows), now)

    def poll(self, now: float) -> None:
        """Repeat what seems lost, and give up when nothing moves; call it after `receive` and at `wake_at`."""
        _POLL(self.address, now)
        self.note(now)

    @property
    def wake_at(self) -> float:
        """When `poll` has something to do if no frame comes; infinity: never."""
        return _WAKE_AT(self.address)

    def outgoing(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the rows to send, in order, and their frames' lengths; valid until the next call of anything."""
        queued = self.state.core[0]["sending"]["queued"]
        return self.state.queue[0, :queued], self.state.queue[1, :queued]

    def sent(self, count: int) -> None:
        """Note that the transport took the first `count` frames of `outgoing`."""
        if count:
            _SENT(self.address, count)

    def consumed(self, count: int) -> None:
        """Note that the transport has let go of the first `count` frames that it was ever handed."""
        self.state.core[0]["sending"]["consumed"] = count - self.pushed_before
