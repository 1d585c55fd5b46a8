"""Several links of a worker by name: `packet:eth0@200,packet:eth1@100`.

Each one's rate in Mbit/s stands behind it, or none has one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from switchsum.protocol.errors import UsageError
from switchsum.protocol.frame import MOST_LINKS

from .names import KINDS, check_link

JOINED: Final = ("udp", "packet")
"""Kinds of which a worker may have several links."""
_BETWEEN: Final = re.compile(rf",(?=\s*(?:{'|'.join(KINDS)}):)")
_EXAMPLE: Final = "packet:eth0@200,packet:eth1@100"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLink:
    """One of a worker's links."""

    name: str
    mbit: float | None = None
    """Its rate in Mbit/s; None: not given."""


def split_links(text: str) -> list[NamedLink]:
    """Return the links that a text names; raises UsageError."""
    parts = [part.strip() for part in _BETWEEN.split(text)]
    if len(parts) == 1:
        raise UsageError(f"each of several links is written with its kind, as in {_EXAMPLE}, unlike {text!r}")
    if len(parts) > MOST_LINKS:
        raise UsageError(f"a worker has 1 to {MOST_LINKS} links, not {len(parts)}")
    links = [_read_part(part) for part in parts]
    for place, link in enumerate(links):
        if link.name.partition(":")[0] not in JOINED:
            raise UsageError(f"{link.name}: several links of a worker are of the kinds {' and '.join(JOINED)}")
        if link.name in {other.name for other in links[:place]}:
            raise UsageError(f"link {link.name} is named twice: several links of a worker are different ones")
    if len({link.mbit is None for link in links}) > 1:
        raise UsageError(f"some links have a rate and some have none: give it to all ({_EXAMPLE}) or to none")
    return links


def _read_part(part: str) -> NamedLink:
    name, at, rate = part.rpartition("@")
    if not at:
        name, rate = part, ""
    check_link(name)
    if not at:
        return NamedLink(name=name)
    try:
        mbit = float(rate)
    except ValueError:
        mbit = 0.0
    if not 0 < mbit < float("inf"):
        raise UsageError(f"a link's rate is a number of Mbit/s above 0, as in {_EXAMPLE}, not {rate!r} in {part!r}")
    return NamedLink(name=name, mbit=mbit)
