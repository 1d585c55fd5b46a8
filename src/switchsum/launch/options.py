"""The options of `switchsum run`."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from typer import Argument, Option

from switchsum.launch.builds import AUTO, LanesOption, SlotsOption, read_lanes, read_slots
from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import LANE_BUILDS, MAX_WORKERS, MOST_LINKS, MOST_WORKERS
from switchsum_protocol.member_rpc import DEFAULT_TIMEOUT_S
from switchsum_protocol.rpc import check_timeout

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
def _about(option: str) -> Iterator[None]:
    """Let a UsageError name the option whose value was read."""
    try:
        yield
    except UsageError as error:
        raise OptionError(option, str(error)) from error


def _field_of(option: str) -> str:
    """Return the field of `RunOptions` that an option such as `--clock-factor` sets."""
    return option.removeprefix("--").replace("-", "_")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """One job on one machine, as the command `switchsum run` takes it."""

    command: Annotated[list[str], Argument(help="The command that every worker runs, after --.")]
    workers: Annotated[int, Option("-n", "--workers", help="World size.")] = 4
    switch: Annotated[str, Option(help="embedded, bmv2 (simple_switch_grpc on PATH), or the path of a BMv2.")] = (
        "embedded"
    )
    topology: Annotated[
        str | None,
        Option(
            help="Network of several switches: a shape such as leaf-spine,4,2,4, or a YAML file. Default: one switch."
        ),
    ] = None
    links: Annotated[
        str,
        Option(
            help="shm: shared memory; udp: loopback; veth: network namespaces; veth@200,veth@100: two "
            "links, with their Mbit/s."
        ),
    ] = "shm"
    lanes: LanesOption = AUTO
    slots: SlotsOption = AUTO
    loss: Annotated[float, Option(help="Probability that the switch loses a frame, in each direction.")] = 0.0
    rate: Annotated[str | None, Option(help="Rate of every veth link, as tc writes it: 200mbit.")] = None
    mtu: Annotated[int | None, Option(help="MTU of veth links. Default: 1500, or more if --lanes needs it.")] = None
    pcap: Annotated[str | None, Option(help="Write every frame of the switch to this pcapng file.")] = None
    profile: Annotated[
        str | None, Option(help="Write a timeline of switch and workers to this file, for ui.perfetto.dev.")
    ] = None
    terminal: Annotated[
        bool, Option("--terminal", help="Rank 0 keeps the terminal; lines of other ranks get a prefix.")
    ] = False
    elastic: Annotated[bool, Option("--elastic", help="The other ranks go on when a rank dies, for ElasticGroup.")] = (
        False
    )
    timeout_s: Annotated[float, Option("--timeout", help="Seconds that ranks wait for one another.")] = (
        DEFAULT_TIMEOUT_S
    )
    seed: Annotated[int | None, Option(help="Seed of the random rounding of int16 and int8 lanes.")] = None
    web: Annotated[str | None, Option(help="HOST:PORT of a live page and of metrics for Prometheus.")] = None
    verbose: Annotated[bool, Option("--verbose", "-v", help="Show the log of switch and controller.")] = False
    virtual_time: Annotated[
        bool, Option("--virtual-time", help="Simulate the network in virtual time, so that links can have any --rate.")
    ] = False
    baseline: Annotated[
        str | None,
        Option(
            help="Another system's protocol in place of ours: its folder, or switchml, atp, omnireduce, "
            "parameter_server, ring."
        ),
    ] = None
    servers: Annotated[
        int | None, Option(help="With --baseline: hosts that serve the workers. Default: as the protocol says.")
    ] = None
    delay: Annotated[str, Option(help="With --virtual-time: the delay of each cable.")] = "1us"
    queue: Annotated[
        str | None,
        Option(help="With --virtual-time: the length of each port's queue, in bytes (64KiB) or frames (64f)."),
    ] = None
    fail: Annotated[
        str | None, Option(help="With --virtual-time: switches and links that fail, and when: s1@3.2ms,s2->s3@1ms.")
    ] = None
    clock_factor: Annotated[
        float,
        Option(
            help="With --virtual-time: count the measured computing time this many times; 0: count comm.compute() only."
        ),
    ] = 0.0

    def __post_init__(self) -> None:
        """Refuse options that exclude each other or are out of range; raises UsageError."""
        read_links(self.links)
        if self.baseline is None:
            with _about("lanes"):
                read_lanes(self.lanes)
        with _about("slots"):
            read_slots(self.slots)
        most = MAX_WORKERS if self.topology is None else MOST_WORKERS
        if not 1 <= self.workers <= most:
            hint = "" if self.topology or self.workers < 1 else ": --topology for a tree of switches with more"
            raise OptionError("workers", f"a job has 1 to {most} workers, not {self.workers}{hint}")
        with _about("timeout_s"):
            check_timeout(self.timeout_s)
        self._check_baseline()
        self._check_virtual()
        if not self.command:
            raise OptionError("command", "no command: switchsum run -n 4 -- python train.py")
        if not 0 <= self.loss < 1:
            raise OptionError("loss", f"a loss probability is at least 0 and less than 1, not {self.loss}")
        self._check_wires()
        is_name = self.switch not in ("embedded", "bmv2") and "/" not in self.switch
        if is_name and shutil.which(self.switch) is None:
            raise OptionError(
                "switch", f"--switch must be embedded, bmv2 (found on PATH) or a path, not {self.switch!r}"
            )
        self._check_topology()
        if not self.is_embedded and self.link_kind is not Links.VETH:
            raise OptionError("switch", "BMv2 takes frames from interfaces only: add --links veth")
        if not self.is_embedded and self.pcap is not None:
            raise OptionError("pcap", "--pcap records the embedded switch only: for BMv2, capture on its interfaces")

    def _check_baseline(self) -> None:
        """Refuse what another system's protocol does not have; raises UsageError."""
        if self.servers is not None and (self.baseline is None or self.servers < 1):
            raise OptionError("servers", "--servers is a whole number from 1 on, and needs --baseline")
        if self.baseline is None:
            return
        given: dict[str, object] = {
            "--pcap": self.pcap,
            "--profile": self.profile,
            "--web": self.web,
            "--elastic": self.elastic,
        }
        given |= {"--topology": self.topology, "--fail": self.fail, "--clock-factor": self.clock_factor}
        for name, is_given in given.items():
            if is_given:
                raise OptionError(_field_of(name), f"{name} cannot be used with --baseline")
        if not self.virtual_time and self.link_kind is not Links.VETH:
            raise OptionError(
                "links",
                f"--links {self.links} carries only frames of our own protocol: --baseline needs --links veth or "
                "--virtual-time",
            )
        if self.link_count > 1:
            raise OptionError("links", f"--baseline takes one link for each worker, not --links {self.links}")
        if self.lanes != AUTO and not (self.lanes.isascii() and self.lanes.isdigit() and int(self.lanes)):
            raise OptionError("lanes", f"--lanes of another protocol must be a number or {AUTO}, not {self.lanes}")

    def _check_virtual(self) -> None:
        """Refuse what is of real time in virtual time, and the other way round; raises UsageError."""
        simulated = {
            **{"--delay": self.delay != "1us", "--queue": self.queue, "--fail": self.fail},
            "--clock-factor": self.clock_factor,
        }
        real = {
            **{"--switch": not self.is_embedded, "--links": self.links != "shm"},
            "--slots": self.slots != AUTO and self.baseline is None,
            **{"--pcap": self.pcap, "--profile": self.profile, "--web": self.web, "--elastic": self.elastic},
        }
        for name, is_given in (real if self.virtual_time else simulated).items():
            if is_given:
                can = "cannot be used" if self.virtual_time else "can only be used"
                raise OptionError(_field_of(name), f"{name} {can} with --virtual-time")
        if not 0 <= self.clock_factor < 1e9:
            raise OptionError("clock_factor", f"a clock's factor must be 0 or more, not {self.clock_factor:g}")
        if self.virtual_time and self.workers < 2:
            raise OptionError("workers", "a job in virtual time needs at least 2 ranks")

    def _check_wires(self) -> None:
        """Refuse a rate or an MTU that links do not have; raises UsageError."""
        if self.rate is not None:
            rate_bits(self.rate)
            if not self._has_wires:
                raise OptionError("rate", "--rate needs --links veth or --virtual-time")
        if self.mtu is not None:
            if not self._has_wires:
                raise OptionError("mtu", "--mtu needs --links veth or --virtual-time")
            if self.mtu > MOST_MTU:
                raise OptionError("mtu", f"an MTU is at most {MOST_MTU}, not {self.mtu}")
            if self.baseline is None and self.effective_lanes_per_frame > largest_build(self.mtu):
                raise OptionError(
                    "mtu",
                    f"frames of {self.lanes_per_frame} lanes do not fit --mtu {self.mtu}: leave --lanes or --mtu out",
                )

    def _check_topology(self) -> None:
        """Refuse what a tree of switches does not have; raises UsageError."""
        if self.rate is not None and any(self.link_rates):
            raise OptionError("rate", "links have their rates in --links or in --rate, not in both")
        if self.topology is None:
            return
        if self.link_count > 1 or (self.link_rates and self.link_kind is not Links.VETH):
            raise OptionError(
                "links", "with --topology a worker has one link, and only veth takes a rate, as in --links veth@200"
            )
        if self.link_kind is Links.VETH and self.workers > MOST_WIRES:
            raise OptionError(
                "workers", f"--links veth has addresses for {MOST_WIRES} workers, not {self.workers}: use --links shm"
            )
        if self.pcap is not None:
            raise OptionError("pcap", "--pcap records a single switch: leave out either --pcap or --topology")

    @property
    def _has_wires(self) -> bool:
        """Whether links have a rate and an MTU."""
        return self.virtual_time or self.link_kind is Links.VETH

    @property
    def link_kind(self) -> Links:
        """Of all links of all workers."""
        return read_links(self.links)[0]

    @property
    def link_rates(self) -> tuple[float, ...]:
        """One for each of several links of each worker, in Mbit/s, 0: not given; empty: one link without a rate."""
        return read_links(self.links)[1]

    @property
    def lanes_per_frame(self) -> int | None:
        """Lanes in one packet as asked for; None: as many as the links carry (`effective_lanes_per_frame`)."""
        return read_lanes(self.lanes)

    @property
    def slot_count(self) -> int | None:
        """Slots of the job; None: as many as its members keep in flight."""
        return read_slots(self.slots)

    @property
    def link_count(self) -> int:
        """Links of each worker."""
        return max(1, len(self.link_rates))

    def rate_of(self, link: int) -> str | None:
        """Return the rate of a link of our own making, as tc writes it."""
        return f"{self.link_rates[link]:g}mbit" if any(self.link_rates) else self.rate

    @property
    def link_mbit(self) -> float:
        """Rate in Mbit/s of the links of a topology that say none."""
        if any(self.link_rates):
            return self.link_rates[0]
        return RATE_MBIT if self.rate is None else rate_bits(self.rate) / 1e6

    @property
    def effective_lanes_per_frame(self) -> int:
        """Lanes in one packet: of the largest build that the links carry, unless another one was asked for.

        Memory and the loopback carry any; links of our own making what their MTU allows.
        """
        if self.lanes_per_frame is not None:
            return self.lanes_per_frame
        return largest_build(self.mtu or MTU) if self._has_wires else max(LANE_BUILDS)

    @property
    def link_mtu(self) -> int:
        """MTU of links of our own making: as asked for, else 1,500 where the frames fit it."""
        return self.mtu or mtu_for(self.effective_lanes_per_frame)

    @property
    def is_embedded(self) -> bool:
        """Whether the switch is the embedded one."""
        return self.switch == "embedded"


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
