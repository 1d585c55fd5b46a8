"""Looks at a controller for all pages and scrapers together: one thread, one look at a time, one a second at most.

While no page is open it reads what workers report, for the history, and nothing from the switch.  While one is open
and no rank waits, slots are read less often than the rest (`view.pace`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from switchsum.view.facts import Overview, Source, look_at
from switchsum.view.pace import Pace
from switchsum.web.picture import Painter
from switchsum_protocol.errors import LocalError, SwitchsumError

Result = TypeVar("Result")

EVERY_S: Final = 1.0
"""Workers report once a second."""
_log = logging.getLogger(__name__)


class Looks:
    """Asks a source on a thread of its own, so that a switch that does not answer keeps no page waiting."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="web")
        self._lock = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._seen: tuple[float, Overview] | None = None
        self._painter = Painter()
        self._pace = Pace()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        """Set when a page has been opened, which is not to wait for the next second."""
        self._is_painting = False
        self._is_closed = False
        self._failure = ""
        self.watching = 0
        """Pages that are open now."""
        self.painted = 0
        """Pictures that were made so far."""
        self.picture = b""
        """The latest one, as JSON."""

    @property
    def is_resting(self) -> bool:
        """Whether no page is open, and no look under way for one."""
        return not self.watching and not self._is_painting

    async def scrape(self) -> Overview:
        """Return an overview that is a second old at most, maybe without slots; raises SwitchsumError."""
        async with self._lock:
            if self._seen is None or self._clock() - self._seen[0] >= EVERY_S:
                seen = await self._on_thread(lambda: look_at(self._source, switch=True, slots=False))
                self._seen = self._clock(), seen
            return self._seen[1]

    async def next_picture(self, after: int) -> tuple[int, bytes]:
        """Wait until there is a picture beyond number `after`; return its number and itself.

        Raises LocalError once the server ends.
        """
        self.begin()
        self._opened.set()
        async with self._changed:
            await self._changed.wait_for(lambda: self.painted > after or self._is_closed)
            if self._is_closed:
                raise LocalError("the controller is being stopped")
            return self.painted, self.picture

    async def history(self) -> bytes:
        """Return the last minutes of each job, as JSON; raises LocalError once the server ends."""
        return _json(await self._on_thread(lambda: self._painter.history(self._clock())))

    def begin(self) -> None:
        """Look from now on; the running loop is the one that serves."""
        if self._task is None or self._task.done():
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._look())

    async def _look(self) -> None:
        """Make pictures while pages are open, and keep the history."""
        while True:
            began, self._is_painting = self._clock(), bool(self.watching)
            try:
                data = await self._on_thread(self._paint if self._is_painting else self._note)
            except LocalError:  # the server ends, and the streams with it
                return
            finally:
                self._is_painting = False
            if data is not None:
                async with self._changed:
                    self.picture, self.painted = _json(data), self.painted + 1
                    self._changed.notify_all()
            rest_s = max(0.05, EVERY_S - (self._clock() - began))
            if data is not None:
                await asyncio.sleep(rest_s)
                continue
            self._opened.clear()
            if not self.watching:  # else a page has been opened meanwhile
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._opened.wait(), rest_s)

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
            seen = look_at(self._source, switch=True, slots=self._pace)
            self._seen = self._clock(), seen
            return self._painter.paint(seen, self._clock())
        except SwitchsumError as error:
            return self._painter.trouble(str(error))
        except Exception as error:  # a mistake of ours: pages say so, and go on when it is over
            self._tell(error)
            return self._painter.trouble(f"the controller cannot say how things are: {error!r}; its log has more")

    def _note(self) -> None:
        try:
            self._painter.note(look_at(self._source, switch=False, slots=False), self._clock())
        except SwitchsumError:
            pass
        except Exception as error:
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        """Log a mistake, once for each text."""
        if repr(error) != self._failure:
            self._failure = repr(error)
            _log.error("reading the controller's state for the web page has failed", exc_info=error)

    def close(self) -> None:
        """Begin no further look, and end waiting for one; any thread may call it."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._loop is not None and self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)

    async def _end(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()
