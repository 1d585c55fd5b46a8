"""One job on one machine, from start to end: a switch, a controller and the workers.

The order matters: wires first, since the switch opens its interfaces when it starts; then switch and controller, which
start at once, the job, and last the workers, which join it.  When one process fails, all are ended.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from switchsum.launch import runs, tree, wires
from switchsum.launch.daemons import Daemon, daemon
from switchsum.launch.link_options import Links
from switchsum.launch.options import RunOptions
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.clients.starting import ANSWER_S, LAUNCHER_VARIABLE
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_switch.bmv2 import process as bmv2
from switchsum_switch.kernels.cache import has, open_store
from switchsum_switch.kernels.sources import source_digest
from switchsum_switch.kernels.turns import WORKERS
from switchsum_switch.notices import QUIET_S, say
from switchsum_switch.process.children import OURSELVES, Child, Children
from switchsum_switch.process.ending import ended_by_signals, scratch_folder, shell_code
from switchsum_switch.process.runtime_directory import PROFILE_VARIABLE
from switchsum_switch.process.start_limit import start_limit
from switchsum_switch.process.trace_files import merge
from switchsum_switch.wires.headers import format_ip, format_mac

JOB = "run"
LOOPBACK = 0x7F_00_00_01
INTERRUPTED = shell_code(-signal.SIGINT)
"""Exit code of a shell's command that Ctrl-C has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSwitch:
    """A switch that runs."""

    p4runtime: str
    """Address of its P4Runtime server."""
    link: str | None
    """Link of the workers, in the form of `switchsum.connect`; None: each worker has a wire of its own."""
    limited: bmv2.Running | None = None
    """The limits of a BMv2; None: it is the embedded switch."""
    links: tuple[str, ...] = ()
    """Link of each rank, where there are several switches."""
    has_fleet: bool = False
    """Whether `p4runtime` is the file of several switches."""

    def link_of(self, rank: int, rates: Sequence[float] = ()) -> str:
        """Return a worker's link, or its several ones with their rates."""
        if self.links:  # `rates` are those of the wires, of which a worker may have one to each of several switches
            return self.links[rank]
        if not rates:
            return self.link or f"packet:{wires.WORKER_INTERFACE}"
        names = [
            f"{self.link}%127.0.0.{link + 1}" if self.link else f"packet:{wires.inner_name(link)}"
            for link in range(len(rates))
        ]
        if len(names) == 1:
            return names[0]
        return ",".join(f"{name}@{rate:g}" if rate else name for name, rate in zip(names, rates, strict=True))


def run(options: RunOptions, planned: tree.TreePlan | None = None) -> int:
    """Run a job, over one switch or a tree of them; return the exit code of the first process that failed, or 0."""
    path = "" if options.is_embedded else bmv2.find(options.switch)
    for name in (options.profile, options.pcap):
        if name is not None:
            check_writable(Path(name))
    if options.link_kind is Links.VETH:
        wires.enter_namespace()
    with ended_by_signals(), scratch_folder() as scratch:
        if options.profile is not None:
            os.environ[PROFILE_VARIABLE] = scratch
        code = _run(options, path, scratch, planned)
        if options.profile is not None:
            count = merge(Path(scratch), Path(options.profile))
            sys.stderr.write(f"switchsum: {count:,} trace events are in {options.profile}: see ui.perfetto.dev\n")
        return code


def _lay_wires(children: Children, options: RunOptions, off: Sequence[str]) -> list[wires.Wire]:
    """Make the wires of all workers, the first one of each in front."""
    laid: list[wires.Wire] = []
    for link in range(options.link_count):
        for rank in range(options.workers):
            holder, rate = laid[rank].holder if link else None, options.rate_of(link)
            laid.append(wires.lay(children, rank, mtu=options.link_mtu, rate=rate, off=off, link=link, holder=holder))
    return laid


def check_writable(path: Path) -> None:
    """Check before a job runs that a file can be written at its end; raises UsageError."""
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def _saying_the_end(workers: int) -> Iterator[None]:
    """Say at once that a signal ends the job: to end all of its processes may take seconds."""
    try:
        yield
    except SystemExit as ended:  # `ended_by_signals` raises it, and nothing else here
        why = "interrupted" if ended.code == INTERRUPTED else "told to end"
        say(f"{why}: ends the switch, the controller and {ranks_in_words(workers)}")
        raise


def ranks_in_words(workers: int) -> str:
    """Write a number of ranks."""
    return f"{workers} rank{'s' * (workers > 1)}"


@contextmanager
def _saying_the_start(controller: str, workers: int) -> Iterator[None]:
    """Say once, after two seconds, how many ranks have joined, if not all have: Python and numpy take a while."""

    def look() -> None:
        with suppress(SwitchsumError), ControllerClient(controller, timeout_s=QUIET_S) as client:
            job = client.show_job(rpc.JobRequest(job=JOB))
            joined = sum(member.state != "expected" for member in job.members)
            if job.state == "waiting" and not job.has_ended and joined < workers:
                say(f"after {QUIET_S:g} s {joined} of {ranks_in_words(workers)} have joined: the others are starting")

    timer = threading.Timer(QUIET_S, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _run(options: RunOptions, path: str, scratch: str, planned: tree.TreePlan | None) -> int:
    """Run a job with files in the folder `scratch`; `path` is that of a BMv2, empty for the embedded switch."""
    with Children(scratch) as children, _saying_the_end(options.workers):
        off = wires.OFFLOADS if path else wires.TCP_OFFLOADS
        laid: Sequence[wires.Wire]
        starting: list[Daemon] = []
        if planned is not None:
            layout = tree.lay_out(children, options, planned, Path(scratch), off)
            switch, laid = _start_tree(children, options, layout, path, Path(scratch)), layout.laid
        else:
            laid = _lay_wires(children, options, off) if options.link_kind is Links.VETH else []
            switch = _start_switch(children, options, laid, path, Path(scratch), starting)
        controller = _start_controller(children, options, switch, laid, Path(scratch), starting)
        with ControllerClient(controller, timeout_s=start_limit(ANSWER_S)) as client:
            client.create_job(
                rpc.CreateJobRequest(
                    job=JOB, workers=options.workers, slots=options.slot_count, timeout_s=options.timeout_s
                )
            )
            if options.loss:
                client.set_loss(rpc.LossRequest(ingress=options.loss, egress=options.loss))
        # Address at which PyTorch's rank 0, if the command uses PyTorch, waits for the other ranks.
        meeting = (laid[0].address.ip if laid else LOOPBACK, bmv2.free_port())
        if options.elastic:
            where = f"SWITCHSUM_CONTROLLER={controller} SWITCHSUM_JOB={JOB} SWITCHSUM_LINK={switch.link_of(0, ())}"
            sys.stderr.write(f"switchsum: a new rank joins with {where}\n")
        with runs.findable(controller):
            workers = [
                _start_worker(children, options, rank, controller, switch, laid[rank] if laid else None, meeting)
                for rank in range(options.workers)
            ]
            with _saying_the_start(controller, options.workers):
                failed, code = children.wait(workers)
        if failed is not None:
            sys.stderr.write(f"switchsum: {failed.ending(code)}; the job is over\n")
            return code or 1
        return 0


def compile_for_workers(children: Children, links: Links) -> None:
    """Compile the kernels of the workers while the switch compiles its own, if the cache does not have them."""
    if lacks_workers_code():
        command = [*OURSELVES, "warm", "--workers", "--links", links]
        children.start("workers' code", command, prefix=True, may_end=True)


def lacks_workers_code() -> bool:
    """Return whether the cache has no kernel of the workers."""
    store = open_store("kernels", source_digest())
    return store is not None and not has(store, WORKERS)


def _start_switch(
    children: Children,
    options: RunOptions,
    laid: Sequence[wires.Wire],
    path: str,
    scratch: Path,
    starting: list[Daemon],
) -> RunningSwitch:
    """Start the embedded switch, or the BMv2 at `path`, with its sockets in the folder `scratch`.

    What is not ready yet is put into `starting`: the controller starts meanwhile.
    """
    if path:
        compile_for_workers(children, options.link_kind)
        running = bmv2.start(children, path, [wire.end for wire in laid], f"{scratch}/p4runtime")
        return RunningSwitch(p4runtime=running.p4runtime, link=None, limited=running)
    # Paths, and not names with this process's number: a process of another container may have the same number.
    places = {Links.SHM: f"{scratch}/links", Links.UDP: f"127.0.0.1:{bmv2.free_port()}", Links.VETH: None}
    place = places[options.link_kind]
    p4runtime = f"unix:{scratch}/p4runtime"
    command = ["switch", "--listen", p4runtime, "--prepare", str(options.effective_lanes_per_frame)]
    if place is not None:
        command += [f"--{options.link_kind}", place]
    for wire in laid:
        command += ["--interface", str(wire.end)]
    if options.pcap is not None:
        command += ["--pcap", options.pcap]
    if options.verbose:
        command.append("--verbose")
    starting.append(Daemon(children, "switch", command))
    compile_for_workers(children, options.link_kind)
    return RunningSwitch(p4runtime=p4runtime, link=place and f"{options.link_kind}:{place}")


def _start_tree(
    children: Children, options: RunOptions, layout: tree.Layout, path: str, scratch: Path
) -> RunningSwitch:
    """Start the switches of trees, the first one alone: what it compiles the others find in the cache."""
    fleet = scratch / "fleet.json"
    layout.write_fleet(fleet)
    compile_for_workers(children, options.link_kind)
    limited: list[bmv2.Running] = []
    for name, endpoints in layout.endpoints.items():
        if path:
            limited.append(bmv2.start(children, path, endpoints.ends, endpoints.p4runtime, f"switch {name}"))
        else:
            daemon(children, f"switch {name}", endpoints.command(options))
    return RunningSwitch(
        p4runtime=str(fleet),
        link=None,
        limited=min(limited, key=lambda one: one.port_frames, default=None),
        links=tuple(layout.link_of(rank) for rank in range(options.workers)),
        has_fleet=True,
    )


def _start_controller(
    children: Children,
    options: RunOptions,
    switch: RunningSwitch,
    laid: Sequence[wires.Wire],
    scratch: Path,
    starting: list[Daemon],
) -> str:
    """Start the controller, and wait for it and for what is `starting`; return its address."""
    command = ["controller", "--listen", f"unix:{scratch}/controller"]
    command += ["--fleet" if switch.has_fleet else "--switch", switch.p4runtime]
    command += ["--lanes", str(options.effective_lanes_per_frame)]
    if switch.limited is not None:
        command += ["--growth-bytes", str(bmv2.GROWTH_BYTES), "--port-frames", str(switch.limited.port_frames)]
    # Workers exchange frames before they join, for example in PyTorch's rendezvous; a fleet's file has their addresses.
    for wire in () if switch.has_fleet else laid:
        command += ["--station", f"{format_mac(wire.address.mac)}@{wire.port}", "--flood-port", str(wire.port)]
    if options.web is not None:
        command += ["--web", options.web]
    if options.verbose:
        command.append("--verbose")
    starting.append(Daemon(children, "controller", command))
    try:
        facts = [one.ready() for one in starting][-1]
    finally:
        for one in starting:
            one.let_go()
    if options.web is not None:
        sys.stderr.write(f"switchsum: page at {facts['web']}, metrics at {facts['web']}metrics\n")
    return str(facts["controller"])


def _start_worker(
    children: Children,
    options: RunOptions,
    rank: int,
    controller: str,
    switch: RunningSwitch,
    wire: wires.Wire | None,
    meeting: tuple[int, int],
) -> Child:
    environment = environment_of(options, rank, controller, switch.link_of(rank, options.link_rates), meeting)
    if wire is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", wires.WORKER_INTERFACE)
    command = wire.inside(options.command) if wire is not None else list(options.command)
    prefix = not (options.terminal and rank == 0)
    return children.start(
        f"rank {rank}" if prefix else "rank 0",
        command,
        environment=environment,
        prefix=prefix,
        may_end=options.elastic,
    )


def environment_of(
    options: RunOptions, rank: int, controller: str, link: str, meeting: tuple[int, int]
) -> dict[str, str]:
    """Return the environment of a rank; at `meeting` PyTorch's rank 0 waits for the others."""
    environment = {
        **os.environ,
        "SWITCHSUM_CONTROLLER": controller,
        "SWITCHSUM_JOB": JOB,
        LAUNCHER_VARIABLE: "`switchsum run`",
        "SWITCHSUM_LINK": link,
        "RANK": str(rank),
        "WORLD_SIZE": str(options.workers),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(options.workers),
        "MASTER_ADDR": format_ip(meeting[0]),
        "MASTER_PORT": str(meeting[1]),
    }
    if options.seed is not None:
        environment["SWITCHSUM_SEED"] = str(options.seed)
    # Several workers share the cores: as with torchrun, each gets one OpenMP thread unless the user says otherwise.
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment.setdefault("PYTHONUNBUFFERED", "1")
    return environment
