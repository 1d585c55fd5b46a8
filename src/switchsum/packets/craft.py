"""Packets made field by field, whether they make sense or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from switchsum_host.links.scapy_layer import LANES, Aggregation
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FIELDS, Flag, LaneFormat, payload_bytes
from switchsum_switch.wires.headers import Address, format_ip, format_mac


def read_fields(texts: Sequence[str]) -> dict[str, int | str]:
    """Read `FIELD=VALUE` texts, values being numbers or names (`kind=hello`, `flags=payload+repeat`)."""
    fields: dict[str, int | str] = {}
    for text in texts:
        name, _, value = text.partition("=")
        name = name.replace("-", "_")
        if name not in FIELDS or not value:
            raise UsageError(f"a field is NAME=VALUE, not {text!r}; the names are {', '.join(FIELDS)}")
        try:
            fields[name] = int(value, 0)
        except ValueError:
            fields[name] = value
    return fields


def read_values(text: str) -> list[int]:
    """Read `1,-2,3`; raises UsageError."""
    try:
        return [int(part, 0) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"values must be numbers separated by commas, not {text!r}") from None


def craft(
    source: Address,
    destination: Address,
    fields: dict[str, int | str],
    values: Sequence[int] | None,
    *,
    lanes_per_frame: int,
) -> Packet:
    """Build a frame; `values` are repeated over the payload of `lanes_per_frame` 32-bit words, None: no payload.

    Fields may have values that no program would send.  Raises UsageError for one that cannot be written.
    """
    flags = fields.get("flags", Flag.PAYLOAD.value if values is not None else 0)
    lower = (
        Ether(src=format_mac(source.mac), dst=format_mac(destination.mac))
        / IP(src=format_ip(source.ip), dst=format_ip(destination.ip), flags="DF")
        / UDP(sport=source.port, dport=destination.port, chksum=0)
    )
    wanted: dict[str, Any] = fields | {"flags": flags}
    try:
        header = Aggregation(**wanted)
        packet = lower / header if values is None else lower / header / _payload(header, values, lanes_per_frame)
        return Ether(bytes(packet))
    except KeyError as error:
        names = {field.name: list(field.s2i) for field in Aggregation.fields_desc if hasattr(field, "s2i")}
        unknown = next(name for name in names if isinstance(wanted.get(name), str) and wanted[name] not in names[name])
        said = f"{unknown} {wanted[unknown]!r}; there are {', '.join(names[unknown])}"
        raise UsageError(f"that packet cannot be written: there is no {said}") from error
    except Exception as error:  # whatever Scapy and struct make of it; the first line names the field
        raise UsageError(f"that packet cannot be written: {str(error).splitlines()[0]}") from error


def _payload(header: Packet, values: Sequence[int], lanes_per_frame: int) -> Packet:
    lane_format = LaneFormat(header.format) if header.format in list(LaneFormat) else LaneFormat.INT32
    count = payload_bytes(lanes_per_frame) * 8 // lane_format.bits
    return LANES[lane_format](lanes=[values[i % len(values)] for i in range(count)])
