"""Feeds a recording to the switch again, compares what leaves, and says of each packet what the switch did with it."""

from __future__ import annotations

from collections import deque
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from switchsum_protocol.errors import LocalError
from switchsum_protocol.frame import Kind, Reason
from switchsum_protocol.wire import parse_frame
from switchsum_switch.execution.pipeline import Pipeline
from switchsum_switch.messages.p4runtime import v1
from switchsum_switch.p4runtime.device import Device
from switchsum_switch.p4runtime.refusal import Refused
from switchsum_switch.ports.pcapng import INBOUND, OUTBOUND, PcapngFile
from switchsum_switch.program.v1model import QUEUE_SHIFT
from switchsum_switch.queues.queues import Queues

from .recording import Frame, Settings, read

MOST_DIFFERENCES: Final = 10
"""Number of differences that are described."""
_EVENTS: Final = ".events"
"""Last words of the names of counters that count by reason."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How a replay went."""

    received: int = 0
    sent: int = 0
    """Frames that left, in the recording."""
    changes: int = 0
    """Requests of the controller."""
    different: int = 0
    differences: list[str] = field(default_factory=list)
    """The first of them, in sentences."""

    def differs(self, text: str) -> None:
        """Note a difference."""
        self.different += 1
        if len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """A frame that has left the switch of the replay."""

    data: bytes
    cause: int
    """Number of the packet that it answers."""


def replay(path: Path, explained: Path | None = None, *, cut: bool = False) -> Outcome:
    """Replay a recording; raises LocalError, also where it ends in the midst and `cut` is false.

    With `explained` the interpreter does it, and writes the same frames to that file, each with a comment.  Otherwise
    native code does, which is faster.
    """
    events = read(path, cut=cut)
    with closing(events):
        settings = next(events, None)
        if not isinstance(settings, Settings):
            raise LocalError(f"{path}: it is not a recording of a switch")
        try:
            out = None if explained is None else PcapngFile(explained, settings.cpu_port)
        except OSError as error:
            raise LocalError(f"{explained}: {error.strerror}") from error
        again = _Replay(settings, out)
        try:
            for event in events:
                again.take(event)
        finally:
            if out is not None:
                out.close()
    again.finish()
    return again.outcome


class _Replay:
    """A switch that gets a recording's frames and requests."""

    def __init__(self, settings: Settings, out: PcapngFile | None) -> None:
        self.outcome = Outcome()
        self._out = out
        self._settings = settings
        self._queues = Queues(settings.priority_queues)
        self._device: Device[Pipeline] = Device(self._load)
        self._expected: dict[int, deque[_Expected]] = {}
        self._lookups: list[str] = []

    def take(self, event: Any) -> None:
        """Do what an event says."""
        if isinstance(event, Frame):
            (self._receive if event.is_inbound else self._compare)(event)
            return
        self.outcome.changes += 1
        try:
            if isinstance(event, v1.WriteRequest):
                self._device.current.write(event.updates, event.atomicity)
            else:
                self._device.apply(event.action, event.config, self._device.prepare(event.action, event.config))
        except Refused as error:
            self.outcome.differs(f"change {self.outcome.changes} was taken and is refused: {error.message}")

    def finish(self) -> None:
        """Note what has left in the replay alone."""
        for port, waiting in sorted(self._expected.items()):
            for one in waiting:
                self.outcome.differs(f"packet {one.cause} makes a frame leave port {port}, which the recording lacks")

    def _load(self, program: bytes) -> Pipeline:
        return Pipeline.load(
            program,
            engine="native" if self._out is None else "interpreter",
            drop_port=self._settings.drop_port,
            queues=self._queues,
            passes=self._settings.max_passes,
            on_lookup=None if self._out is None else self._note_lookup,
        )

    def _receive(self, frame: Frame) -> None:
        self.outcome.received += 1
        pipeline, made = self._device.pipeline, []
        self._lookups.clear()
        before = {} if pipeline is None or self._out is None else _counted(pipeline)
        if pipeline is not None:
            made = pipeline.process(frame.port, frame.data, frame.time_ns // 1000)
        for port, data in made:
            place = port & (1 << QUEUE_SHIFT) - 1
            self._expected.setdefault(place, deque()).append(_Expected(data=data, cause=frame.number))
        if self._out is not None:
            counted = [] if pipeline is None else _reasons(before, _counted(pipeline))
            self._write(frame, self._story(frame, counted, made))

    def _compare(self, frame: Frame) -> None:
        self.outcome.sent += 1
        waiting = self._expected.setdefault(frame.port, deque())
        found = next((index for index, one in enumerate(waiting) if one.data == frame.data), None)
        if found is None:
            self.outcome.differs(f"packet {frame.number} left port {frame.port}, and does not in the replay")
            self._write(frame, f"{_says(frame.data)}; the replay does not send it")
            return
        for _ in range(found):
            one = waiting.popleft()
            self.outcome.differs(f"packet {one.cause} makes a frame leave port {frame.port}, which the recording lacks")
        self._write(frame, f"{_says(frame.data)}; made of packet {waiting.popleft().cause}")

    def _note_lookup(self, table: str, hit: bool, action: str) -> None:
        if not table.startswith("tbl_"):  # p4c's name for statements that stand outside of tables
            self._lookups.append(f"{_short(table)} {'hit' if hit else 'miss'} {_short(action)}")

    def _story(self, frame: Frame, reasons: list[str], made: list[tuple[int, bytes]]) -> str:
        parts = [_says(frame.data)]
        if self._device.pipeline is None:
            parts.append("dropped: the switch has no program yet")
        if self._lookups:
            parts.append("tables: " + ", ".join(dict.fromkeys(self._lookups)))
        if reasons:
            parts.append("counted: " + ", ".join(reasons))
        ports = [str(port & (1 << QUEUE_SHIFT) - 1) for port, _ in made]
        parts.append(f"leaves by port {', '.join(ports)}" if ports else "nothing leaves")
        return "; ".join(parts)

    def _write(self, frame: Frame, comment: str) -> None:
        if self._out is None:
            return
        direction = INBOUND if frame.is_inbound else OUTBOUND
        try:
            self._out.frame(frame.port, frame.time_ns, frame.data, direction, comment)
        except OSError as error:
            raise LocalError(f"{self._out.name}: {error.strerror}") from error


def _says(frame: bytes) -> str:
    """Say what a frame is."""
    packet = parse_frame(frame) or parse_frame(frame[2:])  # behind the controller's header
    if packet is None:
        return f"{len(frame)} bytes that are no frame of the service"
    header = packet.header
    try:
        kind = Kind(header.kind).name.lower()
    except ValueError:
        kind = f"kind {header.kind}"
    if header.kind in (Kind.QUERY, Kind.SET, Kind.STATE):  # the controller's, whose other fields are a cell's content
        return f"{kind}, slot {header.slot}"
    return f"{kind}, job {header.job}.{header.epoch}, rank {header.rank}, slot {header.slot}, round {header.number}"


def _counted(pipeline: Pipeline) -> dict[str, Any]:
    """Return how often each reason was counted, by counter."""
    names = [name for name in pipeline.counters if name.endswith(_EVENTS)]
    return {name: pipeline.counters[name].counts[:, 0].copy() for name in names}


def _reasons(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found: dict[str, None] = {}
    for name, counts in after.items():
        for index in np.flatnonzero(counts != before[name]).tolist():
            try:
                found[Reason(index).name.lower()] = None
            except ValueError:
                found[f"{_short(name)} {index}"] = None
    return list(found)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
