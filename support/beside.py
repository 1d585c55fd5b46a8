"""A program and its definition side by side: every frame goes to both, and both must do the same."""

from __future__ import annotations

from collections.abc import Set

from switchsum.testing.rig import Engine
from switchsum_protocol.frame import Reason
from switchsum_protocol.slot_rules import ReferenceSwitch, Replies
from switchsum_protocol.wire import parse_frame


class Beside:
    """One switch, twice."""

    def __init__(self, program: Engine, definition: ReferenceSwitch) -> None:
        self.program, self.definition = program, definition
        self.counted: list[Reason] = []
        """Reasons that the latest frame was counted under."""

    def process(self, port: int, frame: bytes) -> Replies:
        """Return what both send."""
        before = self.definition.events.copy()
        expected = sorted(self.definition.process(port, frame))
        assert sorted(self.program.process(port, frame)) == expected, parse_frame(frame)
        counted = self.definition.events - before
        self.counted = [reason for reason in Reason for _ in range(counted[reason])]
        return expected

    def check_counters(self, but: Set[Reason] = frozenset()) -> None:
        """See that both have counted the same."""
        reasons = set(Reason) - but
        counted = {reason: self.program.events("SwitchIngress.reply.events", reason) for reason in reasons}
        assert counted == {reason: self.definition.events[reason] for reason in reasons}
