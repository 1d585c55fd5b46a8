"""Frames that pass while somebody asks for them, for a controller's page: a tap for a moment, and a method to ask.

While a sample is taken frames go through Python, as with `--pcap`, so that it is short and one is taken at a time.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.messages import codec
from switchsum_switch.messages.samples import (
    HEAD_BYTES,
    LONGEST_S,
    METHOD,
    MOST_FRAMES,
    SERVICE,
    SampledFrame,
    SampleReply,
    SampleRequest,
)
from switchsum_switch.ports.base import Addresses, Batch, Words, rows
from switchsum_switch.ports.port_set import PortSet
from switchsum_switch.state.clock import Clock

_OFFSETS: Final = 256


class Sample:
    """A tap that keeps the first frames which have certain bytes at a place."""

    def __init__(self, offset: int, pattern: bytes, most: int, clock: Clock) -> None:
        self._place = slice(offset, offset + len(pattern))
        self._pattern = pattern
        self._most = most
        self._clock = clock
        self.frames: list[SampledFrame] = []
        self.is_full = threading.Event()

    def received(self, batch: Batch) -> None:
        """See a batch that has arrived."""
        self._see(*batch.frames(), is_sent=False)

    def sent(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """See frames that are about to leave."""
        self._see(ports, addresses, lengths, is_sent=True)

    def close(self) -> None:
        """End; no frames follow."""
        self.is_full.set()

    def _see(self, ports: Words, addresses: Addresses, lengths: Words, *, is_sent: bool) -> None:
        for port, address, length in rows(ports, addresses, lengths):
            if len(self.frames) >= self._most:
                self.is_full.set()
                return
            head = ctypes.string_at(address, min(length, HEAD_BYTES))
            if head[self._place] == self._pattern:
                frame = SampledFrame(
                    at_s=self._clock.epoch_ns() / 1e9, port=port, is_sent=is_sent, length=length, head=head.hex()
                )
                self.frames.append(frame)


class Sampler:
    """Takes samples of the frames of a set of ports; gRPC's threads call it."""

    def __init__(self, ports: PortSet) -> None:
        self._ports = ports
        self._lock = threading.Lock()

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """Return the method as gRPC wants it."""
        method = grpc.unary_unary_rpc_method_handler(self._answer)
        return grpc.method_handlers_generic_handler(SERVICE, {METHOD: method})

    def take(self, request: SampleRequest) -> SampleReply:
        """Wait for frames; raises ValueError for what cannot be asked."""
        pattern = bytes.fromhex(request.pattern)
        if not (0 <= request.offset < _OFFSETS and 0 < len(pattern) <= HEAD_BYTES):
            raise ValueError(f"a pattern has 1 to {HEAD_BYTES} bytes, behind 0 to {_OFFSETS - 1} others")
        if not (0 < request.frames <= MOST_FRAMES and 0 <= request.seconds <= LONGEST_S):
            raise ValueError(f"a sample has 1 to {MOST_FRAMES} frames and takes 0 to {LONGEST_S} s")
        with self._lock:
            sample = Sample(request.offset, pattern, request.frames, self._ports.table.clock)
            self._ports.add_tap(sample)
            try:
                sample.is_full.wait(request.seconds)
            finally:
                self._ports.remove_tap(sample)
        return SampleReply(frames=list(sample.frames))

    def _answer(self, data: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            return codec.encode(self.take(codec.decode(SampleRequest, data)))
        except ValueError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise AssertionError("abort raises") from error


def serve_samples(ports: PortSet) -> grpc.GenericRpcHandler[Any, Any]:
    """Return the method that samples the frames of `ports`, for a switch to serve beside P4Runtime."""
    return Sampler(ports).handler()
