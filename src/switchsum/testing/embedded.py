"""The embedded switch as an engine: frames in memory, no ports, no server."""

from __future__ import annotations

from collections.abc import Sequence

from switchsum import p4src
from switchsum_switch.execution.pipeline import EngineName, Pipeline
from switchsum_switch.messages.matches import Exact
from switchsum_switch.state.tables import Entry


class Embedded:
    """Our own program on the embedded switch."""

    now_us = 0
    """Time that the program sees."""

    def __init__(self, lanes_per_frame: int, engine: EngineName, *, debug: bool = False) -> None:
        device_config = p4src.load(lanes_per_frame).device_config
        self.pipeline = Pipeline.load(device_config, engine=engine, debug=debug)

    def insert(self, table: str, match: Sequence[int], action: str, params: Sequence[int]) -> None:
        """Add an entry of exact matches."""
        entry = Entry(match=tuple(Exact(value) for value in match), action=action, params=tuple(params))
        self.pipeline.tables[table].insert(entry)

    def set_default(self, table: str, action: str, params: Sequence[int]) -> None:
        """Set a table's default action."""
        self.pipeline.tables[table].set_default(action, tuple(params))

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group."""
        self.pipeline.multicast.set(group, replicas)

    def events(self, counter: str, index: int) -> int:
        """Return how many packets a cell of a counter has counted."""
        return self.pipeline.counters[counter].read(index)[0]

    def frames(self, table: str, match: Sequence[int]) -> int:
        """Return how many packets an entry of exact matches has counted."""
        found = self.pipeline.tables[table]
        return found.direct_counter(found.get(tuple(Exact(value) for value in match)))[0]

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run one frame through the switch."""
        return self.pipeline.process(port, frame, self.now_us)
