"""Jobs whose ranks wait for orders at a socket: one that is not its turn takes no processor time.

A rank sleeps in a read of its socket between two runs.  So switch, controller and ranks stay warm, and the jobs of a
comparison can run in turn.
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

PATIENCE_S: Final = 600.0
"""How long a job may take to start, and each run of it."""
_POLL_S: Final = 0.5
_ENDS_S: Final = 10.0
"""How long it may take to end by itself when one of its ranks has ended."""


class Session:
    """A job that answers orders, and ends with the block."""

    def __init__(
        self,
        command: Callable[[Path], Sequence[str]],
        ranks: int,
        *,
        patience_s: float = PATIENCE_S,
        output: IO[Any] | None = None,
    ) -> None:
        """Start a job whose ranks connect to the path that its command is given; does not wait for them."""
        self._scratch = tempfile.TemporaryDirectory(prefix="switchsum-bench-")
        path = Path(self._scratch.name, "turns")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(ranks)
        self._listening.settimeout(_POLL_S)
        self._command, self._count, self._patience_s = command(path), ranks, patience_s
        self._ranks: list[socket.socket] = []
        self.process = subprocess.Popen(self._command, start_new_session=True, stdout=output, stderr=output)

    def __enter__(self) -> Session:
        return self

    def ask(self, order: str) -> list[dict[str, Any]]:
        """Send a line to all ranks and return their answers; raises CalledProcessError if the job ends instead."""
        self._await_ranks()
        try:
            for rank in self._ranks:
                rank.sendall(f"{order}\n".encode())
        except OSError:  # a rank has ended
            self._fail()
        return [self._answer(rank) for rank in self._ranks]

    def _await_ranks(self) -> None:
        deadline = time.monotonic() + self._patience_s
        while len(self._ranks) < self._count:
            try:
                rank, _ = self._listening.accept()
            except TimeoutError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self._fail()
                continue
            rank.settimeout(self._patience_s)
            self._ranks.append(rank)

    def _answer(self, rank: socket.socket) -> dict[str, Any]:
        text = b""
        while not text.endswith(b"\n"):
            try:
                piece = rank.recv(65536)
            except OSError:  # it was reset, or has taken too long
                piece = b""
            if not piece:
                self._fail()
            text += piece
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _fail(self) -> None:
        """Raise CalledProcessError; a job whose rank has ended ends by itself, and says first what happened."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDS_S)
        self.process.terminate()
        raise subprocess.CalledProcessError(self.process.wait() or 1, list(self._command))

    def close(self, *, failed: bool = False) -> int:
        """End the job, at once if it has failed; return its exit code."""
        for rank in self._ranks:
            rank.close()
        self._listening.close()
        if failed:
            self.process.terminate()
        code = self.process.wait(self._patience_s)
        self._scratch.cleanup()
        return code

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        code = self.close(failed=kind is not None)
        if kind is None and code:
            raise subprocess.CalledProcessError(code, list(self._command))
