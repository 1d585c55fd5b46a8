"""A rank's membership in the job of its group: it joins once, maybe in the background, and leaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from switchsum.torch.completer import Completer, keep_order
from switchsum.torch.work import SwitchWork
from switchsum_host.api.communicator import Communicator, is_failing
from switchsum_host.api.operation_queue import Handle
from switchsum_protocol.errors import SwitchsumError, UsageError


class GroupMembership:
    """The communicator of one rank of a group, and what completes the works of its collectives."""

    def __init__(self, rank: int, join: Callable[[], Communicator], closing: threading.Event) -> None:
        """Use `join` when the communicator is first needed; `closing` is set when it is not any more."""
        self._rank = rank
        self._join = join
        self._closing = closing
        self._connecting = threading.Lock()
        self._refusal: Exception | None = None
        """Error with which joining the job failed. Ranks would get out of step if some of them tried again."""
        self._completer: Completer | None = None
        self.communicator: Communicator | None = None
        """The communicator. None: the job is not joined yet, or was left."""
        self.joining: threading.Thread | None = None
        """Joins the job in the background."""

    def connect(self) -> Communicator:
        """Return the communicator; the first call makes it, which every rank of the group must do.

        Raises what joining the job failed with, every time.
        """
        keep_order()
        with self._connecting:
            if self._closing.is_set() and self._refusal is None:  # else it would make its job anew, and wait there
                self._refusal = UsageError("the process group is closed")
            if self._refusal is not None:
                raise self._refusal.with_traceback(None)
            if self.communicator is None:
                self.communicator = self._joined()
                self._completer = Completer(f"switchsum torch rank {self._rank}")
            return self.communicator

    def connect_in_background(self) -> None:
        """Begin to join the job; the first collective waits for it."""
        name = f"switchsum torch join {self._rank}"
        self.joining = threading.Thread(target=self._connect_or_note, name=name, daemon=True)
        self.joining.start()

    def _connect_or_note(self) -> None:
        try:
            self.connect()
        except Exception:
            pass  # the first collective raises it

    def _joined(self) -> Communicator:
        try:
            communicator = self._join()
        except Exception as error:
            self._refusal = error
            raise
        if self._closing.is_set():  # while the others were waited for
            communicator.close()
            self._refusal = UsageError("the process group is closed")
            raise self._refusal
        return communicator

    def watch(self, work: SwitchWork, handles: list[Handle]) -> None:
        """Have work completed when its last collective has ended.

        In virtual time that is waited for here: time moves when the process waits, and not a thread of it.
        """
        if self.communicator is not None and self.communicator.queue.driver.moves_alone:
            for handle in handles:
                with suppress(SwitchsumError):  # the work raises it
                    handle.wait()
        if handles and self._completer is not None:
            self._completer.watch(work, handles[-1])
        else:  # or a signal handler has closed the group meanwhile
            work.complete()

    def leave(self) -> None:
        """Leave the job; collectives that are under way fail.

        While an exception is handled, or when one has ended the program, the others hear that this rank is lost.
        """
        self._closing.set()
        communicator, self.communicator = self.communicator, None
        if communicator is not None:
            communicator.close(failed=is_failing())
        completer, self._completer = self._completer, None
        if completer is not None:
            completer.stop()
