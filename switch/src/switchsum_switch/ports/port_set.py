"""All ports of a switch as one object, which the data plane polls, sends to and sleeps on."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..program.v1model import DROP_PORT, QUEUE_SHIFT
from .base import Addresses, Batch, PortCounter, PortGroup, PortInfo, PortTable, Words
from .taps import Tap

BATCH_FRAMES: Final = 256
"""Most frames that one poll returns."""
POLLS_PER_SERVICE: Final = 64
"""Polls after which a switch that never sleeps looks for workers that connect or disconnect."""

_PORT_MASK: Final = np.uint32((1 << QUEUE_SHIFT) - 1)


class PortSet:
    """The ports of a switch."""

    def __init__(
        self,
        table: PortTable,
        groups: Sequence[PortGroup],
        *,
        batch_frames: int = BATCH_FRAMES,
        taps: Sequence[Tap] = (),
    ) -> None:
        """Join `groups`, which share `table`; `taps` see every frame that arrives or leaves."""
        self.table = table
        self.groups = list(groups)
        self._batch = Batch(batch_frames)
        self._taps = tuple(taps)
        self._polls = 0
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        for descriptor in self.descriptors():
            self._poll.register(descriptor, select.POLLIN)

    @property
    def is_tapped(self) -> bool:
        """Whether taps see frames, which they do in Python alone."""
        return bool(self._taps)

    def add_tap(self, tap: Tap) -> None:
        """Let a tap see what comes from now on; any thread may call it."""
        self._taps = (*self._taps, tap)
        self.wake()

    def remove_tap(self, tap: Tap) -> None:
        """Let a tap see nothing more; any thread may call it, one at a time."""
        self._taps = tuple(other for other in self._taps if other is not tap)

    def poll(self) -> Batch:
        """Return the frames that have arrived, if any; they are valid until `done`."""
        self._polls += 1
        if self._polls % POLLS_PER_SERVICE == 0:
            self.service()
        self._batch.count = 0
        for group in self.groups:
            group.collect(self._batch)
        for tap in self._taps:
            tap.received(self._batch)
        return self._batch

    def done(self) -> None:
        """Give the memory of the last batch back."""
        for group in self.groups:
            group.done()

    def transmit(self, ports: Words, addresses: Addresses, lengths: Words) -> None:
        """Send frames in order; drop and count those for which there is no room or no port (the latter at `DROP_PORT`).

        From bit QUEUE_SHIFT on, `ports` say which of the port's queues each frame belongs to.
        """
        queues: Words = ports >> np.uint32(QUEUE_SHIFT)
        ports = ports & _PORT_MASK
        for tap in self._taps:
            tap.sent(ports, addresses, lengths)
        # A program may choose any number.  511 is owned by no group, so that larger ones are dropped like it.
        ports = np.minimum(ports, DROP_PORT)
        for group in self.groups:
            mine = group.owned[ports]
            if mine.all():  # the usual case: no need to pick
                group.enqueue(ports, queues, addresses, lengths)
                return
            if mine.any():
                group.enqueue(ports[mine], queues[mine], addresses[mine], lengths[mine])
                ports, queues = ports[~mine], queues[~mine]
                addresses, lengths = addresses[~mine], lengths[~mine]
        self.table.counters[DROP_PORT, PortCounter.TX_DROPS] += len(ports)

    def wait(self, timeout_s: float) -> None:
        """Sleep until a frame arrives, a worker comes or goes, or `wake` is called, at most `timeout_s`."""
        asleep = []
        for group in self.groups:
            if not group.prepare_sleep():
                break
            asleep.append(group)
        else:
            self._poll.poll(max(timeout_s, 0.0) * 1e3)
            self.service()
        for group in asleep:
            group.awake()

    def descriptors(self) -> list[int]:
        """Return the descriptors that become readable when there is something to do."""
        return [self._wake, *(descriptor for group in self.groups for descriptor in group.descriptors())]

    def wake(self) -> None:
        """End `wait`; if none runs, the next one ends at once.  Any thread may call it."""
        os.eventfd_write(self._wake, 1)

    def ports(self) -> list[PortInfo]:
        """Return the ports that are up, by number."""
        return self.table.ports()

    def statistics(self) -> dict[int, dict[str, int]]:
        """Return the counters, by name, of every port that is up or has counted something."""
        used = {port.number for port in self.ports()} | set(np.flatnonzero(self.table.counters.any(axis=1)).tolist())
        return {
            number: {counter.name.lower(): int(self.table.counters[number, counter]) for counter in PortCounter}
            for number in sorted(used)
        }

    def close(self) -> None:
        """Close every port."""
        for group in self.groups:
            group.close()
        os.close(self._wake)
        for tap in self._taps:
            tap.close()

    def service(self) -> None:
        """Open and close the ports of workers that came or went."""
        for group in self.groups:
            group.service()
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            pass
