"""The embedded switch as an engine: frames in memory, no ports, no server."""

from __future__ import annotations

from collections.abc import Sequence

from switchsum import p4src
from switchsum.protocol.frame import Reason
from switchsum.switch.passes.provenance import Sharding
from switchsum.switch.pipeline import EngineName, Pipeline
from switchsum.switch.tables import Entry, Exact


class Embedded:
    """Our own program on the embedded switch."""

    def __init__(
        self, lanes: int, engine: EngineName, *, debug: bool = False, sharding: Sharding | None = None
    ) -> None:
        device_config = p4src.load(lanes).device_config
        self.pipeline = Pipeline.load(device_config, engine=engine, debug=debug, sharding=sharding)

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

    def events(self, counter: str, reason: Reason) -> int:
        """Return how many packets a counter has for a reason."""
        return self.pipeline.counters[counter].read(reason)[0]

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Run one frame through the switch."""
        return self.pipeline.process(port, frame)
