"""Packets of a slot as lines, for those who have clicked on it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from switchsum_protocol.reports import printable
from switchsum_switch.messages.samples import SampledFrame

SECONDS: Final = 0.5
"""Most seconds that a switch is asked. Full samples of a busy slot take less."""
REST: Final = 9
"""Times as long it is left alone then, however many ask: frames take longer while it is asked."""
MOST_TEXT: Final = 400


class Samples(Protocol):
    """A controller that can be asked for the frames of a slot."""

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Return frames that pass, each with the name of the switch."""


class SlotPackets:
    """Asks for frames of slots, one slot at a time."""

    def __init__(self, source: Samples, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = asyncio.Lock()
        self._next_s = clock()

    async def look(self, job: str, slot: int) -> bytes:
        """Return what passes in a slot, and when to ask again, as JSON; raises SwitchsumError."""
        rows: list[dict[str, Any]] = []
        async with self._lock:
            if self._clock() >= self._next_s:
                rows = await asyncio.to_thread(self._look, job, slot)
            again_s = round(max(0.1, self._next_s - self._clock()), 3)
        return json.dumps({"again_s": again_s, "packets": rows}, separators=(",", ":")).encode()

    def _look(self, job: str, slot: int) -> list[dict[str, Any]]:
        began = self._clock()
        try:
            found = self._source.sample(job, slot, SECONDS)
        finally:
            self._next_s = self._clock() + REST * (self._clock() - began)
        return [
            {"at": one.at_s, "switch": name, "port": one.port, "sent": one.is_sent, "text": text, "bytes": one.length}
            for name, one in found
            if (text := line(bytes.fromhex(one.head)))
        ]


def line(head: bytes) -> str:
    """Write what the first bytes of a frame say; empty: it is none of ours."""
    from scapy.layers.l2 import Ether  # noqa: PLC0415  (Scapy takes a second to import, which few pages need)

    from switchsum.packets.text import one_line  # noqa: PLC0415
    from switchsum_host.links.scapy_layer import Aggregation  # noqa: PLC0415

    packet = Ether(head)
    return printable(one_line(packet), MOST_TEXT) if Aggregation in packet else ""
