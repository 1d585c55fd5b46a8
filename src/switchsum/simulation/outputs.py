"""What a run leaves for other tools: captures of links, traces for Perfetto, a plot of a queue as text."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .network import LinkView, Sent

_MAGIC_NS: Final = 0xA1B23C4D
"""Of a pcap file with nanoseconds."""
_ETHERNET: Final = 1
_COLUMNS: Final = 72
_ROWS: Final = 12


def write_pcap(path: Path, frames: Sequence[Sent]) -> None:
    """Write the frames that a link has sent; each has the virtual time at which its last bit left."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", _MAGIC_NS, 2, 4, 0, 0, 1 << 16, _ETHERNET))
        for one in frames:
            if not one.dropped:
                seconds, rest = divmod(round(one.departs_s * 1e9), 1_000_000_000)
                file.write(struct.pack("<IIII", seconds, rest, len(one.frame), one.length) + one.frame)


def write_trace(path: Path, links: Mapping[str, LinkView]) -> None:
    """Write a trace for https://ui.perfetto.dev: the queue of each link, and the time that each frame was in it."""
    events: list[dict[str, Any]] = []
    for number, (name, link) in enumerate(links.items(), 1):
        events.append({"ph": "M", "pid": number, "name": "process_name", "args": {"name": f"{name} (simulated)"}})
        events += [
            {"ph": "C", "pid": number, "name": "queue", "ts": at_s * 1e6, "args": {"bytes": depth}}
            for at_s, depth in link.depth()
        ]
        for one in link.sent:
            what = "dropped" if one.dropped else "lost" if one.lost else "sent"
            lasts = (one.departs_s - one.at_s) * 1e6
            sizes = {"bytes": one.length}
            events.append(
                {"ph": "X", "pid": number, "tid": 1, "name": what, "ts": one.at_s * 1e6, "dur": lasts, "args": sizes}
            )
    path.write_text(json.dumps({"displayTimeUnit": "ns", "traceEvents": events}), encoding="utf-8")


def queue_text(name: str, depth: Sequence[tuple[float, int]]) -> str:
    """Draw a queue over time: the most bytes in it in each column."""
    if not depth:
        return f"{name}: no frame"
    end = depth[-1][0] or 1.0
    most = [0] * _COLUMNS
    here = 0
    column = 0
    for at_s, size in depth:
        then = min(_COLUMNS - 1, int(at_s / end * _COLUMNS))
        for between in range(column, then + 1):
            most[between] = max(most[between], here)
        column, here = then, size
        most[then] = max(most[then], size)
    top = max(most)
    lines = [f"Queue of {name} in bytes (simulated), {top:,} at most, over {end * 1e3:.4g} ms"]
    lines += [
        "|" + "".join("#" if size * _ROWS >= top * row and size else " " for size in most)
        for row in range(_ROWS, 0, -1)
    ]
    return "\n".join([*lines, "+" + "-" * _COLUMNS])
