"""The switches of `switchsum run --topology`: a process for each that adds, and what connects them.

Only the switches of the job's trees are started; `planning.py` says which ones these are, and where the workers stand.
They reach one another by UDP on the loopback, or over veth pairs with the topology's rates, whose ends all lie in the
launcher's namespace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from switchsum.launch import wires
from switchsum.launch.link_options import Links
from switchsum.launch.options import RunOptions
from switchsum.topologies import write_fleet
from switchsum_switch.bmv2.process import End, free_port
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import format_mac

LOOPBACK = "127.0.0.1"
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """One link of each worker."""

    leaves: tuple[str, ...]
    """The switch to which that of each rank leads."""
    rates_mbit: tuple[float, ...]
    """Rate of each rank's link, in Mbit/s."""
    share_mbit: float = 0.0
    """Rate of a job's values on this rail, in Mbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePlan:
    """The trees of a job, and where each worker stands."""

    switches: tuple[str, ...]
    """The names of all switches, the root of the first tree first."""
    trees: tuple[tuple[Mapping[str, str], float], ...]
    """The switch above each one but the root, and the tree's share of the job's slots."""
    rails: tuple[Rail, ...]
    """The links of each worker: one, or several to as many switches."""
    trunks_mbit: Mapping[Pair, float]
    """Rates of the links between switches, in Mbit/s."""
    link_bytes: int
    """Bytes that may wait at a switch for all that come from other switches by UDP, as the kernel counts."""
    notes: tuple[str, ...] = ()
    """Notes, in words, on what the network could carry and this job does not use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchEndpoints:
    """The addresses at which one switch listens, and its interfaces."""

    p4runtime: str
    """Path of its P4Runtime server's socket."""
    udp: str | None = None
    shm: str | None = None
    ends: list[End] = field(default_factory=list)

    def command(self, options: RunOptions) -> list[str]:
        """Return the `switchsum` command that starts an embedded one."""
        command = ["switch", "--listen", f"unix:{self.p4runtime}"]
        for name in ("udp", "shm"):
            command += [f"--{name}", place] if (place := getattr(self, name)) is not None else []
        command += [word for end in self.ends for word in ("--interface", str(end))]
        return command + ["--verbose"] * options.verbose

    def link(self, number: int = 0) -> str:
        """Return the link of its workers that has this number among theirs, in the form of `switchsum.connect`."""
        if self.ends:
            return f"packet:{wires.inner_name(number)}"
        return f"udp:{self.udp}" if self.shm is None else f"shm:{self.shm}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The switches of a plan with their addresses, and what connects them."""

    planned: TreePlan
    endpoints: Mapping[str, SwitchEndpoints]
    ports: Mapping[Pair, int] = field(default_factory=dict)
    """The port of a switch towards another one, by both names; nothing where they use UDP."""
    laid: Sequence[wires.Wire] = ()
    """The wires of the workers, by rank, those of the first rail in front; nothing on shared memory or UDP."""

    def link_of(self, rank: int) -> str:
        """Return the link of a worker, or its several ones with their shares."""
        rails = self.planned.rails
        names = [self.endpoints[rail.leaves[rank]].link(number) for number, rail in enumerate(rails)]
        if len(names) == 1:
            return names[0]
        return ",".join(f"{name}@{rail.share_mbit:g}" for name, rail in zip(names, rails, strict=True))

    def write_fleet(self, path: Path) -> None:
        """Write the file of `switchsum controller --fleet`."""
        stations = self._stations()
        switches = {
            name: {"p4runtime": f"unix:{ends.p4runtime}"}
            | ({"udp": ends.udp} if ends.udp else {"stations": stations[name]})
            | ({"above": None} if len(self.planned.rails) > 1 and name not in self.planned.trees[0][0] else {})
            for name, ends in self.endpoints.items()
        }
        link_bytes = 0 if self.ports else self.planned.link_bytes
        write_fleet(path, switches, self.planned.trees, self.ports, link_bytes)

    def _stations(self) -> dict[str, dict[str, int]]:
        """Return the ports of each switch to all workers, along the first tree and rail: ordinary frames go there."""
        above = self.planned.trees[0][0]
        found: dict[str, dict[str, int]] = {name: {} for name in self.endpoints}
        for wire, leaf in zip(self.laid, self.planned.rails[0].leaves, strict=False):
            mac, at = format_mac(wire.address.mac), leaf
            for name, far in above.items():
                found[name][mac] = self.ports[name, far]
            found[leaf][mac] = wire.end.port
            while at in above:
                found[above[at]][mac] = self.ports[above[at], at]
                at = above[at]
        return found


def lay_out(children: Children, options: RunOptions, planned: TreePlan, scratch: Path, off: Sequence[str]) -> Layout:
    """Choose addresses for all switches, with sockets in the folder `scratch`, and lay wires; raises LocalError."""
    endpoints = {}
    for number, name in enumerate(planned.switches):
        udp = None if options.link_kind is Links.VETH else f"{LOOPBACK}:{free_port()}"
        shm = f"{scratch}/links{number}" if options.link_kind is Links.SHM else None
        endpoints[name] = SwitchEndpoints(p4runtime=f"{scratch}/p4runtime{number}", udp=udp, shm=shm)
    if options.link_kind is not Links.VETH:
        return Layout(planned=planned, endpoints=endpoints)

    def new_end(switch: str) -> End:
        ends = endpoints[switch].ends
        ends.append(End(len(ends) + 1, f"sw{planned.switches.index(switch) + 1}-{len(ends) + 1}"))
        return ends[-1]

    mtu = options.link_mtu
    laid: list[wires.Wire] = []
    for link, rail in enumerate(planned.rails):
        for rank, (leaf, rate_mbit) in enumerate(zip(rail.leaves, rail.rates_mbit, strict=True)):
            holder, rate = laid[rank].holder if link else None, f"{rate_mbit:g}mbit"
            end = new_end(leaf)
            laid.append(wires.lay(children, rank, mtu=mtu, rate=rate, off=off, link=link, holder=holder, end=end))
    ports = {}
    for (one, far), rate_mbit in planned.trunks_mbit.items():
        ends = new_end(one), new_end(far)
        wires.lay_trunk(ends, mtu=mtu, rate=f"{rate_mbit:g}mbit", off=off)
        ports[one, far], ports[far, one] = ends[0].port, ends[1].port
    return Layout(planned=planned, endpoints=endpoints, ports=ports, laid=laid)
