"""Packets as text."""

from __future__ import annotations

from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.packet import Packet

from switchsum_host.links.scapy_layer import LANES, Aggregation
from switchsum_protocol.frame import ALL_BUT, FIELDS, NO_BLOCK, Flag, Kind

FEW_LANES = 6
LANES_PER_LINE = 8


def one_line(packet: Packet) -> str:
    """Write where a packet goes and what it says; it must have an `Aggregation` layer."""
    layer = packet[Aggregation]
    source, destination = (f"{packet[IP].src}:{packet[UDP].sport}", f"{packet[IP].dst}:{packet[UDP].dport}")
    words = [f"{source} > {destination}", name_of(layer, "kind")]
    if layer.kind == Kind.REJECT:
        words.append(f"({name_of(layer, 'reason')})")
    words.append(f"job {layer.job}.{layer.epoch} rank {layer.rank}")
    if layer.kind != Kind.HELLO:
        block, following = ("none" if one == NO_BLOCK else one for one in (layer.block, layer.next_block))
        words.append(f"slot {layer.slot} number {layer.number} block {block} next {following}")
    if layer.kind == Kind.HELD:
        words.append(f"from {layer.bitmap:b}")
    if int(layer.flags) & Flag.SELECT and layer.kind in (Kind.CONTRIBUTION, Kind.RESULT):
        words.append(f"lanes for {'all but ' if layer.bitmap & ALL_BUT else ''}rank {layer.bitmap & 0xFFFF}")
    if int(layer.flags):
        words.append(f"[{layer.flags}]".replace("+", " "))
    if lanes := lanes_of(layer):
        shown = ", ".join(map(str, lanes[:FEW_LANES]))
        words.append(f"{name_of(layer, 'format')} {shown}{', ...' if len(lanes) > FEW_LANES else ''}")
    return " ".join(words)


def all_fields(packet: Packet) -> str:
    """Write every field of the aggregation header on a line of its own, then the lanes."""
    layer = packet[Aggregation]
    lines = [f"    {name.replace('_', ' '):<14} {_value(layer, name)}" for name in FIELDS]
    lanes = lanes_of(layer)
    for first in range(0, len(lanes), LANES_PER_LINE):
        row = " ".join(f"{lane:>11}" for lane in lanes[first : first + LANES_PER_LINE])
        lines.append(f"    lane {first:<9} {row}")
    if not lanes and len(layer.payload):
        lines.append(f"    padding        {len(layer.payload)} bytes")
    return "\n".join(lines)


def lanes_of(layer: Packet) -> list[int]:
    """Return the lanes behind an aggregation header, perhaps none."""
    return list(layer.payload.lanes) if isinstance(layer.payload, tuple(LANES.values())) else []


def name_of(layer: Packet, field: str) -> str:
    """Return a field's name for its value, or the number."""
    value = getattr(layer, field)
    described: Any = layer.get_field(field)
    return str(described.i2s.get(value, value))


def _value(layer: Packet, name: str) -> str:
    """Write a field's value; names and digits as the table of the frame has them."""
    value, field = getattr(layer, name), FIELDS[name]
    if field.values is Flag:
        return f"{int(value)} ({value})" if int(value) else "0"
    if field.values is not None:
        return f"{value} ({name_of(layer, name)})" if value in list(field.values) else str(value)
    if value == field.wire.none:
        return "none"
    return f"0x{value:0{2 * field.size}x}" if field.wire.is_hexadecimal else str(value)
