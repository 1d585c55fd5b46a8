"""The options of `switchsum run`, and which of them each kind of network has.

`NETWORKS` has a row for each kind.  An option that only some kinds have is named in the rows of those that have it; so
an option is added to `RunOptions` and to these rows, and read where the kind is started.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Final

from typer import Argument, Option

from switchsum.launch.builds import AUTO, LanesOption, SlotsOption, read_lanes, read_slots
from switchsum.launch.link_options import (
    MOST_MTU,
    MOST_WIRES,
    MTU,
    RATE_MBIT,
    Links,
    OptionError,
    about,
    mtu_for,
    rate_bits,
    read_links,
)
from switchsum_protocol.builds import largest_build
from switchsum_protocol.frame import LANE_BUILDS, MAX_WORKERS, MOST_WORKERS
from switchsum_protocol.member_rpc import DEFAULT_TIMEOUT_S
from switchsum_protocol.rpc import check_timeout


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
            "parameter_server, ring, ring_reno, ring_cubic."
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
        """Refuse what is out of range, and what the network does not have (`NETWORKS`); raises OptionError."""
        read_links(self.links)
        with about("slots"):
            read_slots(self.slots)
        most = MAX_WORKERS if self.topology is None else MOST_WORKERS
        if not 1 <= self.workers <= most:
            hint = "" if self.topology or self.workers < 1 else ": --topology for a tree of switches with more"
            raise OptionError("workers", f"a job has 1 to {most} workers, not {self.workers}{hint}")
        with about("timeout_s"):
            check_timeout(self.timeout_s)
        if not self.command:
            raise OptionError("command", "no command: switchsum run -n 4 -- python train.py")
        if not 0 <= self.loss < 1:
            raise OptionError("loss", f"a loss probability is at least 0 and less than 1, not {self.loss}")
        switch = self.switch
        if switch not in ("embedded", "bmv2") and "/" not in switch and shutil.which(switch) is None:
            raise OptionError("switch", f"--switch must be embedded, bmv2 (found on PATH) or a path, not {switch!r}")
        self.network.refuse(self)

    @property
    def network(self) -> Network:
        """The kind of network that the job has, which says what options may be; raises OptionError."""
        return network_of(self)

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
        """Lanes in one packet: of the largest build that the links carry, unless another one was asked for."""
        if self.lanes_per_frame is not None:
            return self.lanes_per_frame
        return largest_build(self.mtu or MTU) if self.network.has_cables else max(LANE_BUILDS)

    @property
    def link_mtu(self) -> int:
        """MTU of links of our own making: as asked for, else 1,500 where the frames fit it."""
        return self.mtu or mtu_for(self.effective_lanes_per_frame)

    @property
    def is_embedded(self) -> bool:
        """Whether the switch is the embedded one."""
        return self.switch == "embedded"


Check = Callable[[RunOptions], None]
"""Raises OptionError for a value, or for values that do not go together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A kind of network: which options it has, and what their values may be."""

    option: str
    """The option that asks for it."""
    is_of_others: bool = False
    """True: another system's protocol runs on it (`--baseline`)."""
    runner: str | None = None
    """The entry point of `switchsum.runners` that runs the job. None: `launch.local_job` does."""
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


def _check_recording(options: RunOptions) -> None:
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
        checks=(*_OURS, _check_cables, _check_our_frames, _check_recording),
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
        checks=_THEIRS,
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
