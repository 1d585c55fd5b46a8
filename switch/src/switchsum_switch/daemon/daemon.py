"""The embedded switch as a process: ports, the data plane's loop, and the P4Runtime server.

The main thread is the data plane: it moves frames from ports through the program to ports (`SwitchProcess.run`).
gRPC's threads are the control plane.  They meet in three places: the pipeline's lock, the queue of packet-outs
(`cpu.py`), and the streams to which packet-ins go (`p4runtime/stream.py`).

While all ports are of kinds that `loop.Loop` knows, the data plane spends its time in that kernel and not in Python.
"""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from switchsum_switch.connections import serving
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.errors import UsageError
from switchsum_switch.messages.p4runtime import Code, parse_p4info, v1
from switchsum_switch.process.runtime_directory import p4runtime_address
from switchsum_switch.process.trace import NO_SPANS, Span, Trace, note
from switchsum_switch.wires.encapsulation import Address

from ..execution.pipeline import EngineName, Pipeline
from ..p4runtime.device import Device
from ..p4runtime.notices import Notices
from ..p4runtime.refusal import Refused
from ..p4runtime.server import Server
from ..p4runtime.service import Service
from ..ports.base import CPU_PORT, Batch, PortGroup, PortTable
from ..ports.capture import Capture
from ..ports.packet import PacketPorts
from ..ports.peers import SCHEME, PeerPorts
from ..ports.port_set import BATCH_FRAMES, PortSet
from ..ports.shm import ShmPorts
from ..ports.taps import FrameLog, InterfaceFiles, Tap
from ..ports.udp import UdpPort
from ..program.v1model import DROP_PORT, PASSES
from ..queues.batch import Output
from ..queues.queue_settings import QueueSetting
from ..queues.queues import PORTS, Queues
from ..queues.traffic_manager import TrafficManager
from ..state.clock import Clock
from ..state.liveness import Liveness
from .cpu import CpuPort
from .departures import Departures
from .loop import HELD, UNSENT, Loop
from .pace import NAP_NS, is_fast, new_pace, note_frames

if TYPE_CHECKING:
    from ..api.switch import Switch

FINEST_POLL_S: Final = 0.001
"""Shortest sleep that a frame may end."""
SLEEP_S: Final = 1.0
"""Longest sleep of a switch without traffic; a frame, a worker that comes or goes, or a control-plane call ends it."""
_GARBAGE: Final = 10_000
"""New objects after which garbage is looked for; Python's own 700 cost a sixth of the time of 50,000 entries."""

Services = Sequence[Callable[[PortSet], "grpc.GenericRpcHandler[Any, Any]"]]
"""Services beside P4Runtime: functions that take the switch's ports and return a gRPC handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpConfig:
    """The configuration of the port that is a UDP socket."""

    host: str
    """Address to bind to."""
    port: int
    """UDP port to bind to; 0: any."""
    switch: Address
    """The address that the program knows as the switch's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramConfig:
    """A program that runs from the start, before a controller connects, as on simple_switch_grpc's command line."""

    device_config: bytes
    """BMv2 JSON."""
    p4info: str = ""
    """P4Info in text format; without it P4Runtime clients can write nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration of a switch."""

    listen: str = field(default_factory=p4runtime_address)
    """Address of the P4Runtime server, `unix:path` or `host:port` (port 0: any).  Without TLS every client that can
    reach it may control the switch."""
    device_id: int = 0
    """P4Runtime's device id; simple_switch_grpc's is 0 too."""
    engine: EngineName = "native"
    program: ProgramConfig | None = None
    expected: bytes | None = None
    """BMv2 JSON that a client will probably set: it is compiled before the switch listens, and not while that waits."""
    switch: Switch | None = None
    """A switch with its program, in place of `program`: it can be written and read by names while it runs.  Its clock,
    queues and ports are those of the process."""
    shm: str | None = None
    """Name or path by which workers of this machine find the switch; None: no shared-memory links."""
    interfaces: Mapping[int, str] = field(default_factory=dict)
    """Network interfaces by port number, or UDP peers, `udp:HOST:PORT/HOST:PORT` (ports/peers.py)."""
    udp: UdpConfig | None = None
    cpu_port: int | None = CPU_PORT
    """Number of the port whose frames are packet-ins and packet-outs; None: there is no such port."""
    drop_port: int = DROP_PORT
    """Egress port of packets that are dropped, 0 to 511."""
    priority_queues: int = 1
    """Queues of each interface.  `standard_metadata.priority` chooses one; frames of the last queue leave first."""
    queues: Sequence[QueueSetting] = ()
    """Rates and lengths of queues, in the order in which they are set."""
    max_passes: int = PASSES
    """How often ingress may run for one frame that is resubmitted or recirculated, 1 to 65,536."""
    deep_buffers: bool = True
    """The kernel may keep many frames that wait to leave.  If not, they wait in the switch's queues, and programs see
    these grow on slow links."""
    pcap: Path | None = None
    """pcapng file to which every frame is written."""
    interface_pcaps: Path | None = None
    """Directory in which two pcap files are written for each interface, as BMv2 does it."""
    logged_bytes: int | None = None
    """How many bytes of every frame are logged; 0: its length and port only; None: nothing."""
    services: Services = ()
    """Make what is served beside P4Runtime, given the switch's ports."""
    clock: Clock | None = None
    """The switch's time; None: it runs from 0 at the start."""


class SwitchProcess:
    """A switch; it is open from construction to `close`, and `run` moves its frames."""

    def __init__(self, config: Config) -> None:
        """Open the ports and the P4Runtime server; raises SwitchsumError, and then nothing is left open."""
        given = config.switch
        self._queues = queues = Queues(config.priority_queues) if given is None else given.pipeline.state.queues
        self.clock = config.clock or (Clock() if given is None else given.clock)
        manager = TrafficManager(queues) if given is None else given.traffic_manager
        status = Liveness(range(PORTS)) if given is None else given.pipeline.state.ports
        self._departures = Departures(manager, self.clock, self._send)

        def load(data: bytes) -> Pipeline:
            return Pipeline.load(
                data,
                engine=config.engine,
                drop_port=config.drop_port,
                queues=queues,
                ports=status,
                passes=config.max_passes,
            )

        self.device: Device[Pipeline] = Device(_first_expected(config.expected, load), self.clock)
        self.service = Service(config.device_id, self.device, self._packet_out, self.fail)
        self._output = Output()
        self._batch = Batch(BATCH_FRAMES)
        self._pace = new_pace()
        self._stopping = False
        self._failure: Exception | None = None
        self._trace = Trace.wanted("switch")
        if given is not None:
            self._start(given.program, given.p4info, given.pipeline)
        elif config.program is not None:
            self._start(config.program.device_config, config.program.p4info)
        reserved = {config.drop_port} if config.cpu_port is None else {config.drop_port, config.cpu_port}
        for setting in config.queues:
            setting.apply(manager, except_for=reserved)
        table = PortTable(reserved, queues, self.clock, status)
        # Whatever has been opened is closed again if a later step raises; at the end it belongs to `self`.
        with ExitStack() as opened:
            groups = []
            for group in self.open_groups(config, table):
                opened.callback(group.close)
                groups.append(group)
            self._cpu = None if config.cpu_port is None else CpuPort(table, self.service.packet_in, config.cpu_port)
            if self._cpu is not None:
                groups.append(self._cpu)
            taps = []
            for tap in _open_taps(config, self.clock):
                opened.callback(tap.close)
                taps.append(tap)
                if isinstance(tap, Capture):
                    self.service.on_change = tap.changed
            self.ports = PortSet(table, groups, taps=taps)
            self._loop = self._loop_over(self.ports) if Loop.covers(self.ports) and not taps else None
            others = [serve(self.ports) for serve in config.services]
            opened.pop_all()  # the set closes its groups and taps
            opened.callback(self.ports.close)
            server = opened.enter_context(Server(self.service, config.listen, *others))
            self.address = server.address
            """Address at which the P4Runtime server listens, with the actual port."""
            opened.callback(Notices(self.service, self.fail).close)
            self._resources = opened.pop_all()

    def open_groups(self, config: Config, table: PortTable) -> Iterator[PortGroup]:
        """Yield the port groups that `config` asks for, in the order of polling; raises TransportError."""
        peers = {port: name for port, name in config.interfaces.items() if name.startswith(SCHEME)}
        if interfaces := {port: name for port, name in config.interfaces.items() if port not in peers}:
            yield PacketPorts(table, interfaces, deep=config.deep_buffers)
        if peers:
            yield PeerPorts(table, peers)
        if config.udp is not None:
            yield UdpPort(table, config.udp.host, config.udp.port, switch=config.udp.switch)
        if config.shm is not None:
            yield ShmPorts(config.shm, table)

    def run(self) -> None:
        """Move frames until `stop` is called; raises what `fail` was called with."""
        pace, spans = self._pace, NO_SPANS if self._trace is None else self._trace.spans
        while not self._stopping:
            # First the kernel, until it returns; then one poll in Python of all ports, for frames that it cannot move.
            looped = self._run_loop()
            with self._unchanged():
                batch = self.ports.poll()
                began = time.monotonic()
                if batch.count:
                    went = self._forward(batch)
                    if len(spans) > 1:
                        note(spans, Span.PROGRAM, began, time.monotonic(), batch.count, went)
                if self._queues.holds:
                    self._departures.depart(self.device.pipeline)
            self.ports.done()
            if looped:
                self.ports.service()
            elif not batch.count:
                self._sleep()
                if is_fast(pace):
                    time.sleep(NAP_NS / 1e9)
                if len(spans) > 1:
                    note(spans, Span.WAIT, began, time.monotonic(), 0, 0)
            note_frames(pace, batch.count, time.monotonic())
        if self._failure is not None:
            raise self._failure

    def _sleep(self) -> None:
        """Sleep until there is something to do."""
        wait_s = min(SLEEP_S, self._departures.wait_s()) if self._queues.holds else SLEEP_S
        if wait_s >= FINEST_POLL_S:
            self.ports.wait(wait_s)
        elif wait_s > 0:  # poll(2) would round it up, and the queue of a fast port fill meanwhile
            time.sleep(wait_s)

    def fail(self, error: Exception) -> None:
        """Make `run` raise an error; any thread may call it."""
        self._failure = error
        self.stop()

    def stop(self) -> None:
        """Make `run` return; any thread and any signal handler may call it."""
        self._stopping = True
        self.ports.wake()

    def close(self) -> None:
        """Close the P4Runtime server and all ports; `run` must have returned."""
        self._resources.close()
        if self._trace is not None:
            self._trace.write()

    def __enter__(self) -> SwitchProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _loop_over(self, ports: PortSet) -> Loop:
        """Return the loop over the ports that it covers, compiled."""
        loop = Loop(ports, NO_SPANS if self._trace is None else self._trace.spans)
        ports.wake()
        loop.warm_up(self._output)
        return loop

    def _run_loop(self) -> bool:
        """Run the loop until Python has something to do; return False if the loop cannot run now."""
        pipeline, loop = self.device.pipeline, self._loop
        if loop is None or pipeline is None or loop.is_blocked or self.ports.is_tapped or self._queues.holds:
            return False
        pipeline.lock.make_way = self.ports.wake
        # Let control-plane threads go first.  One that comes after this look calls `make_way`, which ends the loop.
        while pipeline.lock.is_wanted and not self._stopping:
            time.sleep(0)
        with pipeline.lock:
            entry = pipeline.entry(self._output)
            if entry is None:
                return False
            if pipeline is not self.device.pipeline:  # another program was committed while this thread waited
                return True
            ended = loop.run(entry, self._batch, self._output)
        if ended == UNSENT:
            self._send(self._output)
        elif ended == HELD:
            loop.hold(self._output)
        self._forward(self._batch, loop.ran)
        self.ports.done()
        return True

    def _unchanged(self) -> AbstractContextManager[object]:
        """Keep the controller from changing anything between what a capture says of frames and their passage."""
        pipeline = self.device.pipeline
        return nullcontext() if pipeline is None or self.service.on_change is None else pipeline.lock

    def _forward(self, batch: Batch, first: int = 0) -> int:
        """Run a batch through the program and send its output; return how many frames were sent.

        Without a program the frames are dropped.
        """
        pipeline, went = self.device.pipeline, 0
        if pipeline is None:
            return went
        now_us = self.clock.now_us()
        while first < batch.count:
            columns = batch.addresses[first:], batch.lengths[first:], batch.ports[first:]
            output = self._output
            try:
                first += pipeline.process_batch(*columns, batch.count - first, output, now_us)
            except UsageError:  # the output is too small for the copies of one frame: a multicast group has grown
                frames, size = pipeline.room(int(batch.lengths[first]))
                self._output = Output(max(frames, len(output.ports)), max(size, len(output.arena)))
                continue
            self._send(self._output)
            went += self._output.count
            if self._queues.holds:
                self._departures.take(pipeline)
        return went

    def _send(self, output: Output) -> None:
        """Send the output of a batch."""
        made = slice(output.count)
        self.ports.transmit(output.ports[made], output.addresses[made], output.lengths[made])

    def _packet_out(self, frame: bytes) -> None:
        if self._cpu is None:
            raise Refused(Code.FAILED_PRECONDITION, "the switch was started without a CPU port")
        self._cpu.packet_out(frame)
        self.ports.wake()

    def _start(self, program: bytes, p4info: str, loaded: Pipeline | None = None) -> None:
        """Commit a program, which is loaded unless it is already; raises Refused."""
        config = v1.ForwardingPipelineConfig(p4info=parse_p4info(p4info), p4_device_config=program)
        action = v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        prepared = self.device.prepare(action, config) if loaded is None else self.device.adopt(config, loaded)
        self.device.apply(action, config, prepared)


def _first_expected(expected: bytes | None, load: Callable[[bytes], Pipeline]) -> Callable[[bytes], Pipeline]:
    """Load what is expected; return a function that loads programs, and has this one already when it comes first."""
    loaded = [] if expected is None else [(expected, load(expected))]

    def take(data: bytes) -> Pipeline:
        try:  # one step, for calls of several threads
            text, pipeline = loaded.pop()
        except IndexError:
            return load(data)
        return pipeline if text == data else load(data)

    return take


def _open_taps(config: Config, clock: Clock) -> Iterator[Tap]:
    """Yield the taps that `config` asks for; raises UsageError."""
    try:
        if config.pcap is not None:
            settings = {
                "cpu_port": config.cpu_port,
                "drop_port": config.drop_port,
                "priority_queues": config.priority_queues,
                "max_passes": config.max_passes,
            }
            yield Capture(config.pcap, config.cpu_port, settings, clock.epoch_ns)
        if config.interface_pcaps is not None:
            yield InterfaceFiles(config.interface_pcaps, config.interfaces, clock.epoch_ns)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error
    if config.logged_bytes is not None:
        yield FrameLog(config.logged_bytes)


def start_interruptible(config: Config) -> SwitchProcess:
    """Return a switch that SIGINT and SIGTERM stop, even if they arrive while it starts; raises SwitchsumError."""
    endings = (signal.SIGINT, signal.SIGTERM)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, endings)  # the kernel holds them until there is a switch to stop
    try:
        switch = SwitchProcess(config)
        for number in endings:
            signal.signal(number, lambda *_: switch.stop())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    serving.warn_of(switch.address)
    _collect_rarely()
    return switch


def _collect_rarely() -> None:
    """Look for garbage less often: entries are written by the thousand, stay, and are searched again and again."""
    gc.freeze()
    gc.set_threshold(_GARBAGE)
