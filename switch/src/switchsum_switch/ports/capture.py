"""Writes every frame that a switch receives or sends to a pcapng file, with its port and direction.

Between the frames stand the changes that the controller makes, so that the file says all that the switch has worked
from and `switchsum replay` can do it again.
"""

from __future__ import annotations

import ctypes
import json
import logging
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from .base import Addresses, Batch, Words, rows
from .pcapng import INBOUND, OUTBOUND, PcapngFile

SETTINGS: Final = b"s"
"""Kind of a record: what the switch was started with, as JSON."""
END: Final = b"e"
"""Kind of the last record of a file that was closed in order: a full disk, or SIGKILL, leaves a file without it."""
CHANGES: Final = {"SetForwardingPipelineConfigRequest": b"p", "WriteRequest": b"w"}
"""Kinds of records that are requests of P4Runtime, compressed by zlib."""

_log = logging.getLogger("switchsum.switch.ports.capture")


class Capture:
    """A pcapng file that is written."""

    def __init__(
        self,
        path: Path,
        cpu_port: int | None = None,
        settings: Mapping[str, Any] | None = None,
        epoch_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Create or overwrite `path`; raises OSError.  `cpu_port`: the CPU port, None: there is none."""
        self._epoch_ns = epoch_ns
        self._file = PcapngFile(path, cpu_port)
        self._is_full = False
        self._lock = threading.Lock()
        if settings is not None:
            self._record(lambda: self._file.record(SETTINGS, json.dumps(dict(settings)).encode()))

    def received(self, batch: Batch) -> None:
        """Record a batch that has arrived."""
        if batch.count:
            self._frames(*batch.frames(), INBOUND)

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Record frames that are about to leave, also those that a full port drops."""
        self._frames(ports, addresses, lengths, OUTBOUND)

    def changed(self, request: Any) -> None:
        """Record a request of P4Runtime that was carried out; any thread may call it."""
        data = zlib.compress(request.SerializeToString(), 1)
        self._record(lambda: self._file.record(CHANGES[request.DESCRIPTOR.name], data))

    def close(self) -> None:
        """Write the last record, unless nothing more can be written, and close the file."""
        self._record(lambda: self._file.record(END, b""))
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._is_full = True
        try:
            self._file.close()
        except OSError as error:
            _log.error("the end of %s is missing: %s", self._file.name, error.strerror)

    def _frames(self, ports: Words, addresses: Addresses, lengths: Words, direction: int) -> None:
        def write() -> None:
            now_ns = self._epoch_ns()
            for port, address, length in rows(ports, addresses, lengths):
                self._file.frame(port, now_ns, ctypes.string_at(address, length), direction)

        self._record(write)

    def _record(self, write: Callable[[], None]) -> None:
        """Write something; after an error of the file the switch goes on without it."""
        with self._lock:
            if self._is_full:
                return
            try:
                write()
                self._file.flush()
            except OSError as error:
                _log.error("%s: %s; nothing more is recorded", self._file.name, error.strerror)
                self._close()
