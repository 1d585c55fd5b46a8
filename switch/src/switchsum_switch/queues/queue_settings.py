"""Rates and lengths of queues as a command line gives them: `3=1000pps`, `3.7=10mbit`, `64`, `3=100000bytes`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from switchsum_switch.errors import UsageError

from .queue_views import QueueView
from .queues import PORTS
from .traffic_manager import TrafficManager

_PLACE: Final = r"(?:(?P<port>\d+)(?:\.(?P<priority>\d+))?=)?"
_RATE: Final = re.compile(_PLACE + r"(?P<number>\d+(?:\.\d+)?)(?P<unit>pps|bit|kbit|mbit|gbit)")
_DEPTH: Final = re.compile(_PLACE + r"(?P<number>\d+)(?P<unit>|bytes)")
_BITS: Final = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSetting:
    """A rate or a length of queues; a field that is None says nothing."""

    port: int | None = None
    """None: every port."""
    priority: int | None = None
    """One queue of the port; None: a length of each, or the rate that they share."""
    rate_pps: float | None = None
    rate_bps: float | None = None
    depth_frames: int | None = None
    depth_bytes: int | None = None

    def apply(self, manager: TrafficManager, except_for: Iterable[int] = ()) -> None:
        """Set the queues, unless the setting is for every port and the port is among `except_for`.

        Raises UsageError if there is no such port or queue.
        """
        for port in set(range(PORTS)) - set(except_for) if self.port is None else (self.port,):
            try:
                view = QueueView(manager, port, self.priority)
            except ValueError as error:
                raise UsageError(str(error)) from None
            for name in ("rate_pps", "rate_bps", "depth_frames", "depth_bytes"):
                if (value := getattr(self, name)) is not None:
                    setattr(view, name, value)


def read_settings(rates: Sequence[str], depths: Sequence[str]) -> tuple[QueueSetting, ...]:
    """Read the texts of rates and lengths; raises UsageError."""
    return (*map(read_rate, rates), *map(read_depth, depths))


def read_rate(text: str) -> QueueSetting:
    """Read a rate; raises UsageError."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise UsageError(f"a rate is written [PORT[.PRIORITY]=]NUMBER with pps, bit, kbit, mbit or gbit, not {text!r}")
    port, priority, number = _integer(found["port"]), _integer(found["priority"]), float(found["number"])
    if found["unit"] == "pps":
        return QueueSetting(port=port, priority=priority, rate_pps=number)
    return QueueSetting(port=port, priority=priority, rate_bps=number * _BITS[found["unit"]])


def read_depth(text: str) -> QueueSetting:
    """Read a length; raises UsageError."""
    found = _DEPTH.fullmatch(text)
    if found is None:
        raise UsageError(f"a length is written [PORT[.PRIORITY]=]FRAMES, or in bytes as in 100000bytes, not {text!r}")
    port, priority, number = _integer(found["port"]), _integer(found["priority"]), int(found["number"])
    if found["unit"]:
        return QueueSetting(port=port, priority=priority, depth_bytes=number)
    return QueueSetting(port=port, priority=priority, depth_frames=number)


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)
