"""`switchsum run --baseline DIR`: the ranks of another system's protocol, its servers and its switch on this machine.

On real links the switch is the embedded one or BMv2, with the protocol's program.  In virtual time the launcher runs
the protocol's hosts itself, and the ranks' processes hand it their calls.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from multiprocessing.connection import Listener
from typing import Any

from switchsum.launch import daemons, local_job, wires
from switchsum.launch.link_options import JUMBO_MTU, MTU, rate_bits
from switchsum.launch.options import RunOptions
from switchsum_controller.switches.client import P4RuntimeClient, Pipeline
from switchsum_controller.switches.schema import Schema, encode_group
from switchsum_controller.tables.entries import Entry, Group
from switchsum_protocol.clients.starting import ANSWER_S
from switchsum_switch.bmv2 import process as bmv2
from switchsum_switch.messages.p4runtime import parse_p4info, v1
from switchsum_switch.process.children import Child, Children
from switchsum_switch.process.ending import ended_by_signals, scratch_folder
from switchsum_switch.process.start_limit import start_limit

from .member import HostAssignment
from .seam import HEADERS_BYTES, Baseline, World, load

_NOBODY = "a-baseline-has-no-controller"
"""Address where nobody listens. A call that needs a controller fails with this name."""
_SLOTS = 128
"""Frames that a worker has in flight on real links without a rate, if nothing else is said."""
_ROUND_TRIP_S = 200e-6
"""Round trip of real links on one machine, where processors take turns: from it a window follows at a rate."""
_LEAST_TIMEOUT_S = 2e-3
_MORE_BYTES = 64 - 14
"""Room for the protocol's own header in a frame whose MTU has to be chosen."""


def run(options: RunOptions) -> int:
    """Run a job of another system's protocol; return the exit code of the first process that failed, or 0."""
    directory = options.baseline
    assert directory is not None  # else another runner is meant
    path = "" if options.is_embedded else bmv2.find(options.switch)
    if not options.virtual_time:
        wires.enter_namespace()
    baseline = load(directory)
    lanes = int(options.lanes) if options.lanes.isdigit() else baseline.lanes
    # Refuses lanes for which there is no switch before anything starts.
    baseline.check_switch(_world(options, baseline, lanes=lanes, slots=1), is_virtual=options.virtual_time)
    if options.virtual_time:
        return _run_virtual(options, baseline, lanes)
    with ended_by_signals(), scratch_folder() as scratch, Children(scratch) as children:
        return _Real(options, baseline, lanes, children, scratch).run(path)


def mtu_of(options: RunOptions, lanes: int) -> int:
    """Return the MTU of the links: as asked for, or that of ordinary networks where the frames fit it."""
    return options.mtu or (MTU if HEADERS_BYTES + _MORE_BYTES + 4 * lanes <= MTU else JUMBO_MTU)


def _world(options: RunOptions, baseline: Baseline, *, lanes: int, slots: int) -> World:
    return baseline.world(
        workers=options.workers, lanes=lanes, slots=slots, seed=options.seed or 0, servers=options.servers
    )


def _place(options: RunOptions, baseline: Baseline, world: World, host: int, meeting: str) -> HostAssignment:
    return HostAssignment(
        directory=str(baseline.folder),
        host=host,
        meeting=meeting,
        workers=world.workers,
        servers=world.servers,
        lanes=world.lanes,
        slots=world.slots,
        seed=world.seed,
        least_timeout_s=world.least_timeout_s,
        timeout_s=options.timeout_s,
    )


def _start_ranks(
    children: Children,
    options: RunOptions,
    places: Sequence[HostAssignment],
    commands: Sequence[Sequence[str]],
    scratch: str,
) -> list[Child]:
    meeting = local_job.LOOPBACK, bmv2.free_port()
    ranks = []
    for place, command in zip(places, commands, strict=True):
        environment = local_job.environment_of(options, place.host, f"unix:{scratch}/{_NOBODY}", "none", meeting)
        prefix = not (options.terminal and place.host == 0)
        name = f"rank {place.host}"
        ranks.append(children.start(name, command, environment=environment | place.write(), prefix=prefix))
    return ranks


def _end(children: Children, ranks: Sequence[Child]) -> int:
    failed, code = children.wait(ranks)
    if failed is not None:
        sys.stderr.write(f"switchsum: {failed.ending(code)}; the job is over\n")
        return code or 1
    return 0


class _Real:
    """A job on real links."""

    def __init__(self, options: RunOptions, baseline: Baseline, lanes: int, children: Children, scratch: str) -> None:
        self._options, self._baseline, self._lanes = options, baseline, lanes
        self._children, self._scratch = children, scratch

    def run(self, path: str) -> int:
        """Run it on the BMv2 at `path`, or on the embedded switch."""
        options, baseline = self._options, self._baseline
        world = _world(options, baseline, lanes=self._lanes, slots=options.slot_count or self._slots())
        laid = self._lay(world)
        p4runtime, most = self._start_switch(path, laid)
        world = replace(world, slots=min(world.slots, most), least_timeout_s=_LEAST_TIMEOUT_S)
        with closing(P4RuntimeClient(p4runtime, timeout_s=start_limit(ANSWER_S))) as client:
            client.connect()
            self._load(client, world)
            with Listener(f"{self._scratch}/meeting", "AF_UNIX") as listener:
                threading.Thread(target=_meet, args=(listener, world), daemon=True).start()
                ranks = self._start(world, laid)
                return _end(self._children, ranks)

    def _slots(self) -> int:
        """Return how many frames a worker has in flight if nobody says: a round trip's, or the protocol's own."""
        rate = self._options.rate_of(0)
        if not rate:
            return _SLOTS
        frame_bits = 8 * (HEADERS_BYTES + 4 * self._lanes)
        servers = _world(self._options, self._baseline, lanes=self._lanes, slots=1).servers
        return self._baseline.window(self._lanes, math.ceil(_ROUND_TRIP_S * rate_bits(rate) / frame_bits), servers)

    def _lay(self, world: World) -> list[wires.Wire]:
        laid = []
        for host in range(world.hosts):
            # Without offloads no super-frames, which a host would have to divide.
            rate, mtu = self._options.rate_of(0), mtu_of(self._options, self._lanes)
            wire = wires.lay(self._children, host, mtu=mtu, rate=rate, off=wires.OFFLOADS)
            assert (wire.address, wire.port) == (world.address(host), world.port(host))
            # The kernels at both ends would take part: with neighbour discovery, and with ICMP for unknown ports.
            wires.run(["sysctl", "-qw", f"net.ipv6.conf.{wire.interface}.disable_ipv6=1"])
            inner = wires.WORKER_INTERFACE
            wires.run(wire.inside(["sysctl", "-qw", f"net.ipv6.conf.{inner}.disable_ipv6=1"]))
            wires.run(wire.inside(["ip", "address", "flush", "dev", inner]))
            laid.append(wire)
        return laid

    def _start_switch(self, path: str, laid: Sequence[wires.Wire]) -> tuple[str, int]:
        """Start the switch; return the address of its P4Runtime server, and how many frames a port holds."""
        ends = [wire.end for wire in laid]
        if path:
            running = bmv2.start(self._children, path, ends, f"{self._scratch}/p4runtime")
            return running.p4runtime, running.port_frames
        command = ["switch", "--listen", f"unix:{self._scratch}/p4runtime"]
        for end in ends:
            command += ["--interface", str(end)]
        _, facts = daemons.daemon(self._children, "switch", command)
        return str(facts["p4runtime"]), 1 << 15

    def _load(self, client: P4RuntimeClient, world: World) -> None:
        """Give the switch the protocol's program and entries."""
        program, text = self._baseline.program(self._lanes)
        p4info = parse_p4info(text)
        schema = Schema(p4info)
        client.set_pipeline(Pipeline(p4info=p4info, device_config=program.encode(), cookie=1))
        with self._baseline.taking(world):
            updates = [_update(schema, item) for item in self._baseline.entries(world)]
        client.write(updates)

    def _start(self, world: World, laid: Sequence[wires.Wire]) -> list[Child]:
        """Start the servers and the ranks."""
        options, meeting = self._options, f"{self._scratch}/meeting"
        places = [
            replace(
                _place(options, self._baseline, world, host, meeting),
                interface=wires.WORKER_INTERFACE,
                loss=options.loss,
            )
            for host in range(world.hosts)
        ]
        serve = [sys.executable, "-P", "-m", "switchsum_lab.protocols.serve"]
        for place in places[world.workers :]:
            environment = local_job.environment_of(options, place.host, "", "", (local_job.LOOPBACK, 0)) | place.write()
            inside = laid[place.host].inside(serve)
            self._children.start(f"server {place.host - world.workers}", inside, environment=environment, prefix=True)
        commands = [laid[rank].inside(options.command) for rank in range(world.workers)]
        return _start_ranks(self._children, options, places[: world.workers], commands, self._scratch)


def _update(schema: Schema, item: Entry | Group) -> Any:
    if isinstance(item, Group):
        return v1.Update(type="INSERT", entity=encode_group(item))
    kind = "MODIFY" if item.is_default else "INSERT"
    return v1.Update(type=kind, entity=v1.Entity(table_entry=schema.encode_entry(item)))


def _meet(listener: Listener, world: World) -> None:
    """Have all hosts begin together, and all workers end together: until then each answers the others' repeats."""
    try:
        met: dict[int, Any] = {}
        while len(met) < world.hosts:
            end = listener.accept()
            met[end.recv()] = end
        for end in met.values():
            end.send(None)
        workers = [end for host, end in met.items() if host < world.workers]
        for end in workers:
            end.recv()
        for end in workers:
            end.send(None)
    except (EOFError, OSError):  # a host has ended: the launcher sees that, too
        return


def _run_virtual(options: RunOptions, baseline: Baseline, lanes: int) -> int:
    """Run a job in virtual time."""
    from switchsum_lab.simulation.conditions import CableConditions, parse_queue, parse_time  # noqa: PLC0415 - takes long

    from .virtual import VirtualRun, fitting_slots  # noqa: PLC0415
    from .virtual_ranks import VirtualRanks  # noqa: PLC0415

    queue_bytes, queue_frames = parse_queue(options.queue)
    rate = rate_bits(options.rate) if options.rate else options.link_mbit * 1e6
    conditions = CableConditions(
        rate_bps=rate,
        delay_s=parse_time(options.delay),
        queue_bytes=queue_bytes,
        queue_frames=queue_frames,
        loss=options.loss,
    )
    world = _world(options, baseline, lanes=lanes, slots=options.slot_count or 1)
    if options.slot_count is None:
        world = replace(world, slots=fitting_slots(baseline, conditions, rate, lanes, servers=world.servers))
    simulated = VirtualRun(baseline, world, conditions, mtu=mtu_of(options, lanes))
    with ended_by_signals(), scratch_folder() as scratch, Children(scratch) as children:
        meeting = f"{scratch}/meeting"
        with VirtualRanks(simulated, meeting, timeout_s=options.timeout_s) as served:
            places = [_place(options, baseline, world, rank, meeting) for rank in range(options.workers)]
            ranks = _start_ranks(children, options, places, [options.command] * options.workers, scratch)
            served.serve(lambda: children.failed(ranks) is not None)
            code = _end(children, ranks)
    network = simulated.network
    sys.stderr.write(
        f"switchsum: simulated, not measured: {network.now * 1e3:.9g} ms of virtual time, "
        f"{network.world.frames_moved:,} frames, {simulated.statistics().get('repeats', 0):,} repeats by "
        f"{baseline.name}; digest {network.digest}\n"
    )
    return code
