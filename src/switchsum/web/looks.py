"""Looks at a controller for all pages and scrapers together: one thread, one look at a time, one a second at most."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from switchsum.protocol.errors import LocalError, SwitchsumError
from switchsum.view.facts import Overview, Source, look_at
from switchsum.web.picture import Painter

Result = TypeVar("Result")

EVERY_S: Final = 1.0
"""Workers report once a second."""


class Looks:
    """Asks a source on a thread of its own, so that a switch that does not answer keeps no page waiting."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web")
        self._lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._scraped: tuple[float, Overview] | None = None
        self._painter = Painter()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.watching = 0
        """Pages that are open now."""
        self.painted = 0
        """Pictures that were made so far."""
        self.picture = b""
        """The latest one, as JSON."""

    @property
    def is_resting(self) -> bool:
        """Whether no page is open, and no look under way for one."""
        return self._task is None or self._task.done()

    async def scrape(self) -> Overview:
        """Return an overview without slots that is a second old at most; raises SwitchsumError."""
        async with self._lock:
            if self._scraped is None or self._clock() - self._scraped[0] >= EVERY_S:
                seen = await self._on_thread(lambda: look_at(self._source, switch=True, slots=False))
                self._scraped = self._clock(), seen
            return self._scraped[1]

    async def next_picture(self, after: int) -> tuple[int, bytes]:
        """Wait until there is a picture beyond number `after`; return its number and itself."""
        if self.is_resting:
            self._task = asyncio.create_task(self._look())
        async with self._changed:
            await self._changed.wait_for(lambda: self.painted > after)
            return self.painted, self.picture

    async def _look(self) -> None:
        """Make pictures while pages are open."""
        while self.watching:
            began = self._clock()
            try:
                data = await self._on_thread(self._paint)
            except LocalError:  # the server ends, and the streams with it
                return
            async with self._changed:
                self.picture, self.painted = json.dumps(data, separators=(",", ":")).encode(), self.painted + 1
                self._changed.notify_all()
            await asyncio.sleep(max(0.05, EVERY_S - (self._clock() - began)))

    async def _on_thread(self, look: Callable[[], Result]) -> Result:
        """Return what `look` returns; raises LocalError once the server ends."""
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, look)
        except RuntimeError as error:
            if not self._is_closed:
                raise
            raise LocalError("the controller is being stopped") from error
        return await future

    def _paint(self) -> dict[str, Any]:
        try:
            return self._painter.paint(look_at(self._source, switch=True, slots=True), self._clock())
        except SwitchsumError as error:
            return self._painter.trouble(str(error))

    def close(self) -> None:
        """Begin no further look."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
