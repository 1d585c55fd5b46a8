"""How links of `switchsum run` are written: `--links`, `--rate`, `--mtu`; and the error that names an option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_LINKS

_RATE = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit)")
_RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_LEAST_MBIT, _MOST_MBIT = 1e-3, 1e9
"""Rates of links of our own making, in Mbit/s: tc takes those below for none, and no network is faster."""

MTU = 1500
"""MTU of links of our own making: that of ordinary networks, so that what is measured over them holds there."""
JUMBO_MTU = 9000
"""MTU of links whose frames do not fit into 1,500 bytes."""
RATE_MBIT = 1000.0
"""Rate of a topology's links, in Mbit/s, if nothing gives them one. Only that they are equal matters."""
MOST_MTU = 65535
"""Largest MTU of a veth pair."""
MOST_WIRES = 253
"""Most workers with wires of our own making below several switches: the next address is the switches'."""


class OptionError(UsageError):
    """An option of `switchsum run` is wrong, or does not go with the others; `option` is its field in `RunOptions`."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@contextmanager
def about(option: str) -> Iterator[None]:
    """Let a UsageError name the option whose value was read."""
    try:
        yield
    except UsageError as error:
        raise OptionError(option, str(error)) from error


class Links(StrEnum):
    """The links between workers and the switch."""

    SHM = "shm"
    """Shared memory: one machine, without root and without sockets."""
    UDP = "udp"
    """UDP sockets on the loopback, as between machines without root."""
    VETH = "veth"
    """A network namespace and a veth pair for each worker."""


def read_links(text: str) -> tuple[Links, tuple[float, ...]]:
    """Read `--links`: a kind, or that of each of several links with its rate in Mbit/s; raises UsageError.

    Returns the kind, and a rate for each of several links, 0 where none is given; no rate for a single link without.
    """
    parts = [part.strip().partition("@") for part in text.split(",")]
    kinds = {kind for kind, _, _ in parts}
    if len(kinds) > 1 or not kinds <= set(Links):
        raise OptionError(
            "links", f"--links takes shm, udp or veth, or several of one kind such as veth@200,veth@100, not {text!r}"
        )
    kind = Links(parts[0][0])
    if kind is Links.SHM and (len(parts) > 1 or parts[0][1]):
        raise OptionError("links", "shm is a single link without a rate: use --links udp,udp or veth@200,veth@100")
    if len(parts) > MOST_LINKS:
        raise OptionError("links", f"a worker has 1 to {MOST_LINKS} links, not {len(parts)}")
    rates = [_link_rate(rate, text) if at else 0.0 for _, at, rate in parts]
    if len({rate > 0 for rate in rates}) > 1:
        raise OptionError(
            "links", f"some links of {text!r} have a rate and some have none: give a rate to all or to none"
        )
    return kind, tuple(rates) if len(parts) > 1 or rates[0] else ()


def _link_rate(rate: str, text: str) -> float:
    try:
        mbit = float(rate)
    except ValueError:
        mbit = 0.0
    if not _LEAST_MBIT <= mbit <= _MOST_MBIT:
        raise OptionError(
            "links",
            f"a link's rate is a number of Mbit/s, {_LEAST_MBIT:g} to {_MOST_MBIT:,.0f}, not {rate!r} in {text!r}",
        )
    return mbit


def mtu_for(lanes_per_frame: int) -> int:
    """Return the MTU of links of our own making for frames with so many lanes."""
    return MTU if lanes_per_frame <= largest_build(MTU) else JUMBO_MTU


def rate_bits(rate: str) -> float:
    """Read a rate such as `200mbit` or `1gbit`; return bits a second.  Raises UsageError."""
    match = _RATE.fullmatch(rate)
    bits = float(match[1]) * _RATE_UNITS[match[2]] if match else 0.0
    if not _LEAST_MBIT * 1e6 <= bits <= _MOST_MBIT * 1e6:
        raise OptionError("rate", f"a rate is 1kbit to 1000000gbit, as in 200mbit or 1gbit, not {rate!r}")
    return bits
