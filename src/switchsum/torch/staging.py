"""Copies between a GPU and pinned memory, beside the caller's thread and its stream.

1. A call records an event on the caller's stream, and gives the copies to the host to a stream of their own, behind
   that event.  So the backward pass goes on.
2. A thread waits for the copies, piece by piece, and begins a collective for each piece.
3. Results are copied back on a third stream.  On the second one they would wait for kernels of later calls.
4. The host waits for these copies before anybody hears that a result is there.  So no later stream has to wait for
   them, and no memory is reused too early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch

from switchsum_host.api.communicator import Communicator
from switchsum_host.api.operation_queue import Handle
from switchsum_host.api.steps import LastStep


class Mark(Protocol):
    """A point in what a stream is given to do."""

    def synchronize(self) -> None:
        """Have the host wait until the stream has come to it."""


class Device(Protocol):
    """The methods of a device that staging calls."""

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return ordinary memory that the device copies from and to by itself."""

    def now(self) -> Mark:
        """Mark what the caller's stream was given so far."""

    def down(self, copies: Callable[[], object], after: Mark) -> Mark:
        """Have a stream of its own do copies to the host after a mark; return the mark behind them."""

    def up(self, copies: Callable[[], object], after: Mark) -> Mark:
        """Have another stream do copies to the device after a mark; return the mark behind them."""

    def give(self, tensor: torch.Tensor, marked: Mark) -> None:
        """Keep memory that copies up have taken from being theirs again before the marked stream has done with it."""


@dataclass(frozen=True, slots=True)
class CudaMark:
    """A point in a stream of a GPU."""

    event: Any
    stream: Any

    def synchronize(self) -> None:
        """See `Mark`."""
        self.event.synchronize()


class Cuda:
    """A GPU, by torch.cuda."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._down, self._up = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def pinned(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """See `Device`."""
        return torch.empty(shape, dtype=dtype, device="cpu", pin_memory=True)

    def now(self) -> Mark:
        """See `Device`."""
        return self._behind(torch.cuda.current_stream(self._device))

    def down(self, copies: Callable[[], object], after: Mark) -> Mark:
        """See `Device`."""
        return self._on(self._down, copies, after)

    def up(self, copies: Callable[[], object], after: Mark) -> Mark:
        """See `Device`."""
        return self._on(self._up, copies, after)

    def give(self, tensor: torch.Tensor, marked: Mark) -> None:
        """See `Device`."""
        assert isinstance(marked, CudaMark)
        tensor.record_stream(marked.stream)

    def _on(self, stream: torch.cuda.Stream, copies: Callable[[], object], after: Mark) -> Mark:
        assert isinstance(after, CudaMark)
        with torch.cuda.stream(stream):  # also what torch needs besides, to convert values say, is on this stream
            stream.wait_event(after.event)
            copies()
            return self._behind(stream)

    @staticmethod
    def _behind(stream: torch.cuda.Stream) -> Mark:
        return CudaMark(stream.record_event(torch.cuda.Event(blocking=True)), stream)


@cache
def _cuda(device: torch.device) -> Device:
    return Cuda(device)


def device_of(tensor: torch.Tensor) -> Device | None:
    """Return what stages a tensor; None where it is in ordinary memory, or on a device that is waited for."""
    return _cuda(tensor.device) if tensor.device.type == "cuda" else None


def begin_later(communicator: Communicator, start: Callable[[], list[Handle]]) -> Handle:
    """Begin collectives on the communicator's thread of steps, for there is something to wait for; return one handle.

    Collectives that are begun after this one wait for it, so that they come in the same order on all ranks.
    """

    def steps() -> LastStep:
        handles = start()
        return LastStep(handle=handles[-1], finish=lambda: [handle.wait() for handle in handles])

    return communicator.begin_steps(steps)
