"""The kinds of network of `switchsum run`: which options each has, and why others are refused.

`NETWORKS` has a row for each kind.  An option that only some kinds have is named in the rows of those that have it; so
an option is added to a kind here, and read where the kind is started.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from switchsum.launch.builds import AUTO, read_lanes
from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_LINKS

if TYPE_CHECKING:
    from switchsum.launch.options import RunOptions

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


Check = Callable[["RunOptions"], None]
"""Raises OptionError for a value, or for values that do not go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A kind of network: which options it has, and what their values may be."""

    option: str
    """The option that asks for it."""
    is_of_others: bool = False
    """True: another system's protocol runs on it (`--baseline`)."""
    runner: str | None = None
    """The entry point of `switchsum.runners` that runs the job. None: `launch.session` does."""
    has: frozenset[str]
    """The options of `RunOptions` that it has, of those that some kind does not have."""
    checks: tuple[Check, ...]

    @property
    def has_cables(self) -> bool:
        """Whether links have a rate and an MTU; memory and the loopback carry frames of any size."""
        return self.has >= _CABLES

    def refuse(self, options: RunOptions) -> None:
        """Refuse the options that it does not have, and values that they cannot have; raises OptionError."""
        for one in fields(options):
            is_lacking = one.name in SOME_HAVE and one.name not in self.has
            if is_lacking and getattr(options, one.name) != one.default:
                raise OptionError(one.name, self._refusal(one.name))
        for check in self.checks:
            check(options)

    def _refusal(self, option: str) -> str:
        """Say which kinds have an option that this one does not have, where there is another one to choose."""
        name = "--" + option.replace("_", "-")
        having = [kind for kind in NETWORKS if option in kind.has]
        alike = [kind for kind in having if kind.is_of_others == self.is_of_others]
        if not alike:
            return f"{name} cannot be used with --baseline" if self.is_of_others else f"{name} needs --baseline"
        if self.option == VIRTUAL:
            return f"{name} cannot be used with {VIRTUAL}"
        if option == "switch":
            return "BMv2 takes frames from interfaces only: add --links veth"
        return f"{name} needs {' or '.join(kind.option for kind in alike)}"


def network_of(options: RunOptions) -> Network:
    """Return the kind of network that the options ask for; raises OptionError."""
    asked = VIRTUAL if options.virtual_time else f"--links {options.link_kind}"
    is_of_others = options.baseline is not None
    found = [kind for kind in NETWORKS if kind.option == asked and kind.is_of_others == is_of_others]
    if not found:
        raise OptionError(
            "links",
            f"--links {options.links} carries only frames of our own protocol: --baseline needs "
            f"{' or '.join(kind.option for kind in NETWORKS if kind.is_of_others)}",
        )
    return found[0]


def _check_our_lanes(options: RunOptions) -> None:
    with about("lanes"):
        read_lanes(options.lanes)


def _check_their_lanes(options: RunOptions) -> None:
    lanes = options.lanes
    if lanes != AUTO and not (lanes.isascii() and lanes.isdigit() and int(lanes)):
        raise OptionError("lanes", f"--lanes of another protocol must be a number or {AUTO}, not {lanes}")


def _check_cables(options: RunOptions) -> None:
    if options.rate is not None:
        rate_bits(options.rate)
        if any(options.link_rates):
            raise OptionError("rate", "links have their rates in --links or in --rate, not in both")
    if options.mtu is not None and options.mtu > MOST_MTU:
        raise OptionError("mtu", f"an MTU is at most {MOST_MTU}, not {options.mtu}")


def _check_our_frames(options: RunOptions) -> None:
    if options.mtu is not None and options.effective_lanes_per_frame > largest_build(options.mtu):
        raise OptionError(
            "mtu",
            f"frames of {options.lanes_per_frame} lanes do not fit --mtu {options.mtu}: leave --lanes or --mtu out",
        )


def _check_switch(options: RunOptions) -> None:
    switch = options.switch
    if switch not in ("embedded", "bmv2") and "/" not in switch and shutil.which(switch) is None:
        raise OptionError("switch", f"--switch must be embedded, bmv2 (found on PATH) or a path, not {switch!r}")
    if not options.is_embedded and options.pcap is not None:
        raise OptionError("pcap", "--pcap records the embedded switch only: for BMv2, capture on its interfaces")


def _check_tree(options: RunOptions) -> None:
    if options.topology is None:
        return
    is_veth = options.link_kind is Links.VETH
    if options.link_count > 1 or (options.link_rates and not is_veth):
        raise OptionError(
            "links", "with --topology a worker has one link, and only veth takes a rate, as in --links veth@200"
        )
    if is_veth and options.workers > MOST_WIRES:
        raise OptionError(
            "workers", f"--links veth has addresses for {MOST_WIRES} workers, not {options.workers}: use --links shm"
        )
    if options.pcap is not None:
        raise OptionError("pcap", "--pcap records a single switch: leave out either --pcap or --topology")


def _check_one_link(options: RunOptions) -> None:
    if options.link_count > 1:
        raise OptionError("links", f"--baseline takes one link for each worker, not --links {options.links}")


def _check_simulated(options: RunOptions) -> None:
    if options.links != Links.SHM:
        raise OptionError("links", f"--links cannot be used with {VIRTUAL}")
    if options.workers < 2:
        raise OptionError("workers", "a job in virtual time needs at least 2 ranks")


def _check_clock(options: RunOptions) -> None:
    if not 0 <= options.clock_factor < 1e9:
        raise OptionError("clock_factor", f"a clock's factor must be 0 or more, not {options.clock_factor:g}")


def _check_servers(options: RunOptions) -> None:
    if options.servers is not None and options.servers < 1:
        raise OptionError("servers", f"--servers is a whole number from 1 on, not {options.servers}")


VIRTUAL: Final = "--virtual-time"
_CABLES: Final = frozenset({"rate", "mtu"})
_JOB: Final = frozenset({"topology", "slots", "pcap", "profile", "web", "elastic"})
_SIMULATED: Final = frozenset({"delay", "queue"})
_OURS: Final = (_check_our_lanes, _check_tree)
_THEIRS: Final = (_check_servers, _check_one_link, _check_their_lanes, _check_cables)

NETWORKS: Final = (
    Network(option="--links shm", has=_JOB, checks=_OURS),
    Network(option="--links udp", has=_JOB, checks=_OURS),
    Network(
        option="--links veth",
        has=_JOB | _CABLES | {"switch"},
        checks=(*_OURS, _check_cables, _check_our_frames, _check_switch),
    ),
    Network(
        option=VIRTUAL,
        runner="virtual-time",
        has=_CABLES | _SIMULATED | {"topology", "fail", "clock_factor"},
        checks=(_check_simulated, *_OURS, _check_cables, _check_our_frames, _check_clock),
    ),
    Network(
        option="--links veth",
        is_of_others=True,
        runner="baseline",
        has=_CABLES | {"switch", "slots", "servers"},
        checks=(*_THEIRS, _check_switch),
    ),
    Network(
        option=VIRTUAL,
        is_of_others=True,
        runner="baseline",
        has=_CABLES | _SIMULATED | {"slots", "servers"},
        checks=(_check_simulated, *_THEIRS),
    ),
)
"""All kinds; the same `option` stands for two kinds, with our protocol and with others."""
SOME_HAVE: Final = frozenset().union(*(kind.has for kind in NETWORKS))
"""The options that a kind has to name; every kind has all others."""


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
