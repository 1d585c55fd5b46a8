"""switchsum's switches and topologies for Mininet: ``mn --custom mininet/custom.py --switch switchsum --topo star,4``.

This is the only file that imports Mininet.  `mn` runs under the system's Python, so that everything else that this file
imports needs only the standard library.  Switches and controllers are started as commands, from the folder
SWITCHSUM_BIN or else from ``.venv/bin`` beside this folder.

One controller keeps all switches.  They forward ordinary traffic along one spanning tree and add along it, too: a
switch that has hosts sends one contribution for all of them to the one above it.  The environment of every host names
the controller, the job ``mininet`` and a rank.  So ``h1 switchsum job list`` and, on all hosts, ``python train.py``
work without options.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mininet.cli import CLI as MininetCLI
from mininet.link import TCLink
from mininet.log import error, info
from mininet.node import Host, NullController, Switch
from mininet.node import findController as find_controller
from mininet.topo import Topo

HERE = Path(sys._getframe().f_code.co_filename).resolve().parent  # mn runs this file by exec, without a __file__
if TYPE_CHECKING:
    from mininet import trees
    from mininet.daemons import Daemon, compile_for_hosts, end_all, free_port, run_folder

    from switchsum import topologies
else:
    # A wheel has the topologies beside this file.  In a clone they are a part of the package, whose folder must not
    # come on the path: it has folders with names of others' packages.
    places = (HERE / "topologies", HERE.parent / "src" / "switchsum" / "topologies")
    folder = next(place for place in places if place.is_dir())
    spec = spec_from_file_location("topologies", folder / "__init__.py", submodule_search_locations=[str(folder)])
    topologies = sys.modules["topologies"] = module_from_spec(spec)
    spec.loader.exec_module(topologies)
    sys.path.insert(0, str(HERE))
    import trees
    from daemons import Daemon, compile_for_hosts, end_all, free_port, run_folder

CLONE_BIN = HERE.parent / ".venv" / "bin"
INSTALLED_BIN = HERE.parents[2] / "bin"  # a wheel installs this file as share/switchsum/mininet of its environment
BIN = Path(
    os.environ.get("SWITCHSUM_BIN") or (INSTALLED_BIN if (INSTALLED_BIN / "switchsum").exists() else CLONE_BIN)
).absolute()
JOB = trees.JOB
TRAINING = "python examples/digits.py"
MIN_MTU = 1500
HEADERS_BYTES = 90  # Ethernet, IPv4, UDP, aggregation header (docs/wire.md); an MTU does not count the first of them
READY_S = 60.0  # longest silence of a daemon that starts; what it says while it compiles begins it anew
# Links with a rate: a token bucket, with a queue that holds the windows of all hosts.  Mininet's default, HTB, would
# make tc warn at each link.
BUCKET = {"use_tbf": True, "latency_ms": 1000}
# Offloads leave checksums unfinished, for a network card that does not exist; and they halve BMv2's receive ring.
OFFLOADS = ("tx", "tso", "gso", "gro")


class Survey:
    """The network around a switch, as a `Network` and as Mininet's objects."""

    def __init__(self, start: Switch) -> None:
        nodes, links, waiting = {start.name: start}, {}, [start]
        for one in waiting:
            for link in {interface.link for interface in one.intfList() if interface.link}:
                links[link.intf1.name, link.intf2.name] = link
                for far in (link.intf1.node, link.intf2.node):
                    if far.name not in nodes:
                        nodes[far.name] = far
                        if isinstance(far, Switch):
                            waiting.append(far)
        # The order must not depend on the switch where the survey starts: all switches have to find the same tree.
        self.nodes = {name: nodes[name] for name in sorted(nodes, key=trees.in_order)}
        self.links = [
            links[key] for key in sorted(links, key=lambda key: (trees.in_order(key[0]), trees.in_order(key[1])))
        ]
        switches = [name for name, one in self.nodes.items() if isinstance(one, Switch)]
        self.topology = topologies.Network(
            hosts=tuple(name for name in self.nodes if name not in switches),
            switches=tuple(switches),
            cables=tuple(
                topologies.Cable(
                    ends=(link.intf1.node.name, link.intf2.node.name),
                    mbit=link.intf1.params.get("bw") or topologies.NO_LIMIT,
                )
                for link in self.links
            ),
        )
        chosen = {one.adds for one in self.nodes.values() if isinstance(one, SwitchsumSwitch) and one.adds}
        if not chosen.issubset(switches):
            give_up(self.nodes, f"adds={', '.join(sorted(chosen))} names no switch: there are {', '.join(switches)}")
        self.root = min(chosen, default="") or topologies.center(self.topology)
        self.parents = topologies.spanning_tree(self.topology, self.root)
        self.routes = topologies.routes(self.topology, self.parents)

    def workers(self) -> list[Any]:
        """Return the hosts in the order of ranks; other nodes with one link, such as Mininet's NAT, get no rank."""
        return [one for one in self.nodes.values() if isinstance(one, Host)]

    def interface(self, link: int, name: str) -> Any:
        """Return the interface of a link at a node."""
        ends = self.links[link].intf1, self.links[link].intf2
        return next(end for end in ends if end.node.name == name)

    def mac(self, place: int) -> str:
        """Return the Ethernet address of a host, given by the index of its link."""
        link = self.links[place]
        host = link.intf1 if link.intf1.node.name in self.topology.hosts else link.intf2
        return str(host.MAC())

    def switch_address(self) -> tuple[str, str]:
        """Return the Ethernet and IPv4 address that all switches answer for, the last one of the hosts' network."""
        network = ipaddress.ip_network("10.0.0.0/8")
        for host in self.topology.hosts:
            first = self.nodes[host].defaultIntf()
            if first is not None and first.IP():
                network = ipaddress.ip_network(f"{first.IP()}/{first.prefixLen}", strict=False)
                break
        return "02:00:00:00:fe:01", str(network.broadcast_address - 1)

    def port(self, link: int, name: str) -> int:
        """Return the number of a link's port at a switch."""
        return int(self.nodes[name].ports[self.interface(link, name)])

    def stations(self, name: str) -> dict[str, int]:
        """Return the ports of a switch to all hosts, by Ethernet address."""
        return {
            self.mac(route.to): self.port(route.link, name) for route in self.routes[name] if isinstance(route.to, int)
        }

    def write_fleet(self, path: Path) -> None:
        """Write what the controller must know of the switches."""
        self.nodes[self.root].planned = self.plan(path.parent)
        reached = [self.nodes[name] for name in (self.root, *self.parents)]
        switches = {one.name: {"p4runtime": one.p4runtime, "stations": self.stations(one.name)} for one in reached}
        planned = [(tree.above, tree.share) for tree in self.trees]
        topologies.write_fleet(path, switches, planned, trees.ports_between(self.trees, self.port))

    def plan(self, folder: Path) -> list[Any]:
        """Return the trees of the job of all hosts."""
        single, hosts = trees.Tree(self.root, self.parents), [host.name for host in self.workers()]
        if any(one.adds for one in self.nodes.values() if isinstance(one, SwitchsumSwitch)):
            return [single]
        return trees.plan(BIN / "switchsum", folder, self.topology, hosts, single)

    @property
    def trees(self) -> list[Any]:
        """The trees of the job of all hosts, once they are planned."""
        return list(self.nodes[self.root].planned)

    def leaves(self) -> list[tuple[Any, int, str]]:
        """Return each host that has a rank with its link, and the switch at the other end."""
        found = []
        for host in self.workers():
            for index, cable in enumerate(self.topology.cables):
                if host.name in cable.ends:
                    found.append((host, index, cable.far(host.name)))
                    break
        return found

    def adding(self) -> list[list[str]]:
        """Return the switches that add for the hosts in each tree, the topmost first."""
        leaves = [leaf for _, _, leaf in self.leaves()]
        return [tree.adding(leaves) for tree in self.trees]


class SwitchsumSwitch(Switch):  # type: ignore[misc]
    """The embedded switch: ``--switch switchsum[,lanes=2048][,adds=s2]``, of which s2 is the root of the tree."""

    def __init__(self, name: str, lanes: int = 256, adds: str = "", **params: Any) -> None:
        if not (BIN / "switchsum").exists():
            leave(f"there is no {BIN / 'switchsum'}: `make mininet-cli` installs it, or SWITCHSUM_BIN names its folder")
        refuse_leftovers(name)
        super().__init__(name, **params)
        self.lanes = lanes
        self.adds = adds
        self.planned: list[Any] = []  # at the root: the trees of the job
        self.folder = run_folder()
        self.controller_address = f"unix:{self.folder}/controller"  # all switches have one controller
        self.p4runtime = f"unix:{self.folder}/{name}.p4runtime"  # does not change if the switch is started again
        self.running: Daemon | None = None
        self.controller: Daemon | None = None

    def binary(self) -> list[str]:
        """Return the command of the switch, without the options that BMv2 and the embedded switch share."""
        return [str(BIN / "switchsum-bmv2")]

    def start(self, _controllers: object = None) -> None:
        """Start the switch; the controller, if it runs already, gives it its entries again."""
        if self.running is not None and not self.running.has_ended():
            return
        command = [*self.binary(), "--no-p4", "--log-level", "off"]
        for interface, port in self.ports.items():
            if interface.link:
                self.prepare(interface.link)
                command += ["-i", f"{port}@{interface.name}"]
        command += ["--", "--grpc-server-addr", self.p4runtime, "--cpu-port", "255"]
        self.running = Daemon(self.name, command, self.folder / f"{self.name}.log")

    def prepare(self, link: Any) -> None:
        """Turn off the offloads at both ends of a link, and set an MTU that fits our frames."""
        mtu = max(MIN_MTU, HEADERS_BYTES + 4 * self.lanes)
        for end in (link.intf1, link.intf2):
            end.node.cmd(f"ethtool -K {end.name} {' '.join(f'{name} off' for name in OFFLOADS)} 2>/dev/null")
            end.node.cmd(f"ip link set {end.name} mtu {mtu}")

    @classmethod
    def batchStartup(cls, switches: tuple[SwitchsumSwitch, ...]) -> tuple[SwitchsumSwitch, ...]:
        """Wait until all of Mininet's switches of this class are ready; they were started one after the other."""
        survey = Survey(switches[0])
        ours = [one for one in survey.nodes.values() if isinstance(one, SwitchsumSwitch)]
        if switches[0].controller is None and all(one.running is not None for one in ours):
            await_controller(ours, begin_controller(survey, ours))
            prepare_hosts(survey, ours[0])
        return switches

    @classmethod
    def batchShutdown(cls, switches: tuple[SwitchsumSwitch, ...]) -> tuple[SwitchsumSwitch, ...]:
        """Stop all of Mininet's switches of this class, all at the same time."""
        for switch in switches:
            for daemon in (switch.running, switch.controller):
                if daemon is not None:
                    daemon.process.terminate()
        for switch in switches:
            switch.stop()
        return switches

    def stop(self, deleteIntfs: bool = True) -> None:
        """Stop the switch; also the controller, unless the interfaces stay: then the switch may be started again."""
        if self.running is not None:
            self.running.stop()
            self.running = None
        if deleteIntfs and self.controller is not None:
            self.controller.stop()
            self.controller = None
        super().stop(deleteIntfs)


class Bmv2Switch(SwitchsumSwitch):
    """BMv2's simple_switch_grpc, found on PATH, in the place of the embedded switch: ``--switch bmv2``."""

    def __init__(self, name: str, **params: Any) -> None:
        if shutil.which("simple_switch_grpc") is None:
            leave("simple_switch_grpc is not on PATH: `switchsum doctor` says how to install it")
        super().__init__(name, **params)

    def binary(self) -> list[str]:
        """Return the command of BMv2, with a free port for its Thrift server, which cannot be turned off."""
        # BMv2's threads wake each other for every packet; those of a batch process do not interrupt the running one.
        return ["chrt", "--batch", "0", "simple_switch_grpc", "--thrift-port", str(free_port())]


def begin_controller(survey: Survey, ours: list[SwitchsumSwitch]) -> Daemon:
    """Start the controller of all switches, which must be ours and have the same lanes."""
    first = ours[0]
    others = [name for name in survey.topology.switches if not isinstance(survey.nodes[name], SwitchsumSwitch)]
    apart = [name for name in survey.topology.switches if name not in {survey.root, *survey.parents}]
    lanes = {one.lanes for one in ours}
    if others or apart or len(lanes) > 1:
        reason = (
            f"{others[0]} is none of ours" if others else f"no link leads to {apart[0]}" if apart else "lanes differ"
        )
        give_up(survey.nodes, f"the switches make no tree: {reason}")
    fleet = first.folder / "fleet.json"
    survey.write_fleet(fleet)
    mac, ip = survey.switch_address()
    command = [str(BIN / "switchsum"), "controller", "--listen", first.controller_address, "--fleet", str(fleet)]
    command += ["--lanes", str(first.lanes), "--mac", mac, "--ip", ip]
    command += trees.limits(survey.topology, first, Bmv2Switch)
    controller = Daemon("the controller", command, first.folder / "controller.log")
    for one in ours:
        one.controller = controller
        one.cmd(f"export PATH={BIN}:$PATH SWITCHSUM_CONTROLLER={one.controller_address}")
    return controller


def await_controller(ours: list[SwitchsumSwitch], controller: Daemon) -> None:
    """Wait until the controller has all switches; they were started one after the other."""
    began_s = time.monotonic()
    while not controller.is_ready(wait_s=0.1):
        daemons = [one.running for one in ours if one.running is not None]
        for one, running in zip(ours, daemons, strict=True):
            before = running.progress
            running.is_ready(wait_s=0.0)  # reads what the switch says while it compiles, which sets `heard_s`
            if running.progress != before:
                info(f"\n{one.name} is {running.progress}")
                compile_for_hosts(BIN / "switchsum", one.folder)
        broken = [daemon for daemon in (*daemons, controller) if daemon.has_ended()]
        heard_s = max(began_s, controller.heard_s, *(daemon.heard_s for daemon in daemons))
        if broken or time.monotonic() > heard_s + READY_S:
            give_up({one.name: one for one in ours}, [*broken, controller][0].explain())


def prepare_hosts(survey: Survey, first: SwitchsumSwitch) -> None:
    """Create the job of all hosts, and set the hosts' environments for `switchsum.connect`."""
    hosts = survey.workers()
    who, can_all = trees.who_adds(survey.adding(), len(hosts))
    for rank, host in enumerate(hosts):
        words = (
            f"{name}={value}"
            for name, value in trees.environment(host, rank, len(hosts), BIN, first.controller_address).items()
        )
        host.cmd(f"export {' '.join(words)}")
    if can_all:
        command = [str(BIN / "switchsum"), "job", "create", JOB, "--workers", str(len(hosts))]
        command += ["--controller", first.controller_address]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            give_up(survey.nodes, done.stderr.strip())
    info(f"\n*** {who}; logs are in {first.folder}\n")


def run_on_hosts(net: Any, command: list[str]) -> int:
    """Run a command on every host as one job; rank 0 has the terminal.  Returns the first exit code that is not 0.

    At its end it says how many contributions each switch took, and how many bytes the links carried up.
    """
    survey = Survey(net.switches[0])
    first = survey.nodes[survey.root]
    hosts, processes = survey.workers(), []
    account = trees.Account(survey, BIN / "switchsum", first.controller_address, JOB)
    try:
        for rank, host in enumerate(hosts):
            variables = {**os.environ, **trees.environment(host, rank, len(hosts), BIN, first.controller_address)}
            output = None if rank == 0 else subprocess.DEVNULL
            guarded = ["setpriv", "--pdeathsig", "KILL", "--", *command]
            processes.append(host.popen(guarded, env=variables, cwd=HERE.parent, stdout=output, stderr=None))
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(0.05)
        if not any(codes):
            info(account.text())
        return next((code if code > 0 else 128 - code for code in codes if code), 0)
    finally:
        end_all(processes)


def train(net: Any, *words: object, **options: object) -> None:
    """Run a job on all hosts, and end Mininet with its exit code if it fails: ``mn --test "train,python train.py"``."""
    code: int | str
    try:
        if options:  # mn has split the command at the =
            code = "switchsum: a command with = in it cannot be given to --test train: put it into a script"
        else:
            code = run_on_hosts(net, shlex.split(" ".join(map(str, words)) or TRAINING))
    except KeyboardInterrupt:  # after it, mn would clean up and kill processes of other Mininets
        code = 130
    if code:
        net.stop()
        raise SystemExit(code)


class CLI(MininetCLI):  # type: ignore[misc]
    """Mininet's CLI with one more command."""

    prompt = "mininet> "

    def do_train(self, line: str) -> None:
        """Run a command on every host as one job: train [COMMAND ...]; without one, train on digits."""
        code = run_on_hosts(self.mn, shlex.split(line or TRAINING))
        if code:
            error(f"*** The job ended with exit code {code}\n")


class DataTopo(Topo):  # type: ignore[misc]
    """One of `switchsum.topologies`, built in Mininet."""

    def build(self, topology: topologies.Network) -> None:
        """Add its nodes and links; links with a rate are limited to it."""
        for name in topology.hosts:
            self.addHost(name)
        for name in topology.switches:
            self.addSwitch(name)
        for cable in topology.cables:
            is_limited = cable.mbit != topologies.NO_LIMIT
            self.addLink(*cable.ends, **({"cls": TCLink, "bw": cable.mbit, **BUCKET} if is_limited else {}))


def make_topo(name: str) -> Any:
    """Return a function that makes a topology from the arguments of ``mn --topo``."""

    def topo(*arguments: Any, **options: Any) -> Topo:
        try:
            return DataTopo(topologies.SHAPES[name](*arguments, **options))
        except (ValueError, TypeError) as problem:
            leave(f"--topo {name}: {problem}")

    topo.__name__ = name
    return topo


def findController(*arguments: Any) -> Any:
    """Return the OpenFlow controller that is installed, or one that does nothing: our switches have their own.

    mn calls a function of this name if no --controller is given, and without a controller it would not start.
    """
    return find_controller(*arguments) or NullController


def refuse_leftovers(name: str) -> None:
    """End mn if interfaces with the names that a switch will use exist already."""
    there = [other for other in os.listdir("/sys/class/net") if re.fullmatch(rf"{re.escape(name)}-eth\d+", other)]
    if there:
        left = topologies.find_leftovers(besides=os.getpid())
        if left:
            leave(f"a Mininet that crashed has left {left}; remove this with: {left.remedy}")
        leave(f"{there[0]} belongs to another Mininet that runs: end that one first")


def give_up(nodes: dict[str, Any], problem: str) -> None:
    """Stop the switches of a network and end mn."""
    for other in nodes.values():
        if isinstance(other, SwitchsumSwitch):
            other.stop()
    leave(problem)


def leave(problem: str) -> Any:
    """End mn with one line; after any exception but SystemExit mn would kill processes of other Mininets."""
    info("\n")
    raise SystemExit(f"switchsum: {problem}")


def refuse_unknown(option: str, ours: dict[str, Any], mininets: str) -> None:
    """End mn if its command line asks for a topology or a switch that does not exist.

    mn itself finds out later, and then ends all processes on the machine that it takes for remains of other Mininets.
    """
    words = [part for word in sys.argv[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if option not in words[:-1] or "," in words[words.index("--custom") + 1]:  # a second --custom file may define it
        return
    name = words[words.index(option) + 1].partition(",")[0]
    known = {*ours, *getattr(sys.modules["__main__"], mininets, ours)}
    if name not in known:
        leave(f"{option} {name}: there is none of that name, but {', '.join(sorted(known))}")


switches = {"switchsum": SwitchsumSwitch, "bmv2": Bmv2Switch}
topos = {name: make_topo(name) for name in topologies.SHAPES}
tests = {"train": train}
if "--custom" in sys.argv[:-1]:  # mn runs this file; it may also be imported by a script
    refuse_unknown("--topo", topos, "TOPOS")
    refuse_unknown("--switch", switches, "SWITCHES")
