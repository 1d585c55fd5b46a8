"""The options of `switchsum run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from switchsum.launch.builds import AUTO, LanesOption, SlotsOption, read_lanes, read_slots
from switchsum.launch.networks import (
    MTU,
    RATE_MBIT,
    Links,
    Network,
    OptionError,
    about,
    mtu_for,
    network_of,
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
        """Refuse what is out of range, and what the network does not have (`networks.py`); raises OptionError."""
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
