"""What a run leaves for other tools: captures of links, traces for Perfetto, a plot of a queue as text."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.frame import Kind
from switchsum_protocol.wire import parse_frame

from .network import LinkView, Sent

_MAGIC_NS: Final = 0xA1B23C4D
"""Magic number of a pcap file with nanoseconds."""
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


def window(links: Iterable[LinkView], host: str) -> list[tuple[float, int]]:
    """Return how many rounds a host has begun and has no result of, as (seconds, rounds) at each change.

    Its links are watched with their bytes.
    """
    changes: list[tuple[float, bool, tuple[int, int]]] = []
    for link in links:
        is_up = link.name.startswith(f"{host}->")
        for one in link.sent:
            packet = parse_frame(one.frame)
            if packet is None or packet.header.kind not in (Kind.CONTRIBUTION, Kind.RESULT) or one.dropped or one.lost:
                continue
            at_s = one.at_s if is_up else one.departs_s + link.conditions.delay_s
            changes.append((at_s, is_up, (packet.header.slot, packet.header.number)))
    found: list[tuple[float, int]] = []
    under_way: set[tuple[int, int]] = set()
    for at_s, is_up, which in sorted(changes):
        (under_way.add if is_up else under_way.discard)(which)
        found.append((at_s, len(under_way)))
    return found


def drawn(what: str, depth: Sequence[tuple[float, int]]) -> str:
    """Draw a number over time: the most that it is in each column."""
    if not depth:
        return f"{what}: no frame"
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
    lines = [f"{what} (simulated), {top:,} at most, over {end * 1e3:.4g} ms"]
    lines += [
        "|" + "".join("#" if size * _ROWS >= top * row and size else " " for size in most)
        for row in range(_ROWS, 0, -1)
    ]
    return "\n".join([*lines, "+" + "-" * _COLUMNS])
