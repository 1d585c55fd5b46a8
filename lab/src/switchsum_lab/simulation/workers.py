"""The real worker engine as a host of the simulation: addresses of its kernels, its queue of frames, its arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum_host.engine import by_hand
from switchsum_host.engine.engine import Engine, EngineConfig, Failed, Finished
from switchsum_host.engine.fetching import fetch
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import CORE, Count
from switchsum_protocol.frame import AT, FRAME_BYTES, Flag, payload_bytes
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.wires.rows import LEAD_BYTES, row_stride

from .arena import Arena

REPEATS: Final = (Count.OVERTAKEN, Count.PROBES, Count.RECALLED)
"""Counters of frames that were sent again."""


class Worker:
    """One member of a job: an engine, and the rows that it sends.

    The lanes of a contribution stay in their row as long as the frame is on its link.  The engine writes the row again
    two rounds later, when the frame has long arrived: the switch has answered.  That does not hold for a repeat, which
    is copied whole.
    """

    def __init__(self, config: EngineConfig, arena: Arena) -> None:
        self.most_frames = 2 * config.window_slots
        stride = row_stride(FRAME_BYTES + payload_bytes(config.lanes_per_frame))
        self.rows = arena.zeros((self.most_frames, stride), np.uint8)
        """Rows of the frames that this worker sends."""
        self.engine = Engine(config, self.rows, LEAD_BYTES, zeros=arena.zeros)

    def facts(self) -> Mapping[str, int]:
        """Return the fields of this worker's `NodeRecord`."""
        state = self.engine.state
        return {
            "own": self.engine.address,
            "fetch": fetch.address,
            "receive": by_hand.receive_by_hand.address,
            "poll": by_hand.poll_by_hand.address,
            "sent": by_hand.sent_by_hand.address,
            "wake": by_hand.tell_wake_at_by_hand.address,
            "consumed": self.word("sending", "consumed"),
            "queue_count": self.word("sending", "queued"),
            "queue_rows": address_of(state.queue),
            "queue_lengths": address_of(state.queue[1]),
            "store": address_of(self.rows),
            "stride": self.rows.shape[1],
            "lead": LEAD_BYTES,
            "head": FRAME_BYTES,
            "flags_at": AT.flags,
            "repeated": int(Flag.REPEAT | Flag.RECALL),
            "blocked": self.word("progress", "blocked"),
            "finished": self.word("progress", "finished_count"),
            "failure": self.word("progress", "failure"),
        }

    def word(self, part: str, name: str) -> int:
        """Return the address of a field of the engine's record."""
        outer: Any = CORE.fields
        inner: Any = CORE[part].fields
        return address_of(self.engine.state.core) + int(outer[part][1]) + int(inner[name][1])

    def begin(self, operation: Operation, values: npt.NDArray[Any] | None, now_s: float) -> int:
        """Begin an operation on an array, or on none; return its serial number."""
        engine = self.engine
        operation.make_record(engine.lanes_per_frame, engine.world_size)
        serial = engine.adopt(operation, values, now_s)
        by_hand.submit_by_hand(engine.address, operation.address, now_s)
        return serial

    def finished(self, now_s: float) -> list[Finished]:
        """Return the operations that have ended since this was asked last; raises the engine's error if it gave up."""
        self.engine.note(now_s)
        found: list[Finished] = []
        events = self.engine.events()
        while events:
            event = events.popleft()
            if isinstance(event, Failed):
                raise event.error
            found.append(event)
        return found

    @property
    def repeats(self) -> int:
        """Frames that this worker has sent again."""
        return int(sum(self.engine.counts[one] for one in REPEATS))
