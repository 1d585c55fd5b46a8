"""Queues with rates in a switch that runs: packets wait for their time on the machine's clock."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.timing import eventually, patience
from switchsum_protocol.errors import UsageError
from switchsum_switch.bmv2.queue_depths import set_queue_depths, set_queue_rates
from switchsum_switch.daemon.command_line import make_config, parse
from switchsum_switch.daemon.daemon import Config, ProgramConfig
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.queues.queue_settings import QueueSetting, read_depth, read_rate
from switchsum_switch.queues.queues import Queues
from switchsum_switch.queues.traffic_manager import TrafficManager
from switchsum_switch.state.clock import Clock
from switchsum_switch.wires.packetsocket import open_packet_socket

from .conftest import PROGRAMS
from .test_daemon import MemorySwitch, made_config
from .test_traffic_manager import FRAME_BYTES, PORT, Report, frame, report

LONG_S = patience(20)
COUNT, PERIOD_US = 12, 2000
DEPTH = 9
FLOOD, LAST = 200, 9
CLOCK_US = 100
"""BMv2 takes the time of a packet a little after it has decided when the packet goes."""
THRIFT = 9090
RATE = f"{PORT}={1_000_000 // PERIOD_US}pps"


def config(engine: EngineName, rates: list[str], **fields: object) -> Config:
    program = ProgramConfig(device_config=(PROGRAMS / "queueing.json").read_bytes())
    return made_config(program=program, engine=engine, queues=tuple(map(read_rate, rates)), **fields)


def check_times(reports: list[Report]) -> None:
    """Compare the times that frames report with the rate; the machine may be late, and the switch is never early."""
    assert [one.number for one in reports] == [*range(COUNT)]
    for number, one in enumerate(reports):
        assert one.egress_us >= reports[0].enqueued_us + number * PERIOD_US
        assert one.waited_us == one.egress_us - one.enqueued_us
        assert one.enq_depth <= number


@pytest.mark.parametrize("engine", ["interpreter", "native"])
def test_frames_wait_for_the_rate_of_their_port(engine: EngineName) -> None:
    with MemorySwitch(config(engine, [RATE])) as switch:
        for number in range(COUNT):
            switch.receive(1, frame(0, number))
        sent = switch.sent(COUNT)
    assert {port for port, _ in sent} == {PORT}
    check_times([report(made) for _, made in sent])


def test_the_highest_priority_waits_least() -> None:
    with MemorySwitch(config("native", [f"{PORT}=100pps"], priority_queues=2)) as switch:
        for number in range(6):
            switch.receive(1, frame(int(number > 2), number))
        sent = [report(made) for _, made in switch.sent(6)]
    # The first goes at once, and perhaps the second before the others have come.
    order = [one.number for one in sent]
    assert sorted(order) == [0, 1, 2, 3, 4, 5]
    assert order.index(5) < order.index(2)


def test_a_program_that_is_replaced_takes_its_packets_with_it() -> None:
    clock = Clock()
    clock.stop(at_s=0)  # no packet's time comes before the test says so
    settings = config("native", [f"{PORT}=1pps"], clock=clock)
    with MemorySwitch(settings) as switch:
        waiting = switch._departures._manager.ports[PORT]
        for number in range(3):
            switch.receive(1, frame(0, number))
        assert eventually(lambda: waiting.waiting == 2, LONG_S)  # the first has gone
        assert settings.program is not None
        switch._start(settings.program.device_config, settings.program.p4info)
        switch.ports.wake()
        assert eventually(lambda: waiting.waiting == 0, LONG_S)
        switch.receive(1, frame(0, 9))
        assert eventually(lambda: waiting.waiting == 1, LONG_S)
        clock.advance(10)
        switch.ports.wake()
        numbers = [report(made).number for _, made in switch.sent(2)]
    assert numbers == [0, 9]


@pytest.fixture(
    params=[
        pytest.param([sys.executable, "-c", "from switchsum_switch.__main__ import main; main()"], id="switchsum-bmv2"),
        pytest.param(["simple_switch_grpc"], id="simple_switch_grpc", marks=pytest.mark.bmv2),
    ]
)
def near(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """near1 === port 1 [switch] port 3, 500 frames/s, 5 frames === near3: yield the sockets of the near ends."""
    for port in (1, PORT):
        subprocess.run(f"ip link add near{port} type veth peer name far{port}".split(), check=True)
        for end in (f"near{port}", f"far{port}"):
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    line = f"{PROGRAMS}/queueing.json -i 1@far1 -i {PORT}@far{PORT} --thrift-port {THRIFT} -- --priority-queues 2"
    line += f" --grpc-server-addr unix:{tmp_path}/p4runtime"
    is_bmv2 = request.param == ["simple_switch_grpc"]
    if not is_bmv2:
        line += f" --queue-rate {PORT}.0={1_000_000 // PERIOD_US}pps --queue-depth {PORT}={DEPTH}"
    command = [shutil.which(request.param[0]) or request.param[0], *request.param[1:], *line.split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert eventually(lambda: (tmp_path / "p4runtime").exists() or process.poll() is not None, LONG_S)
        assert process.poll() is None
        if is_bmv2:
            set_queue_depths(THRIFT, DEPTH, patience_s=LONG_S)
            set_queue_rates(THRIFT, 1_000_000 // PERIOD_US)
        with open_packet_socket("near1") as source, open_packet_socket(f"near{PORT}") as sink:
            sink.settimeout(LONG_S)
            yield source, sink
    finally:
        process.kill()
        process.wait(LONG_S)


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_on_interfaces_frames_wait_as_in_bmv2(near: tuple[Any, Any]) -> None:
    """What frames report agrees with itself: a queue is as deep as it has frames that came and have not gone."""
    source, sink = near
    for number in range(DEPTH):
        source.send(frame(0, number))
    reports = [report(sink.recv(2000)) for _ in range(DEPTH)]
    assert [one.number for one in reports] == [*range(DEPTH)]
    for number, one in enumerate(reports):
        assert one.egress_us >= reports[0].enqueued_us + number * PERIOD_US - CLOCK_US
        before, after = reports[:number], reports[number + 1 :]
        assert one.enq_depth == sum(other.egress_us > one.enqueued_us for other in before)
        assert one.deq_depth == sum(other.enqueued_us <= one.egress_us for other in after)
    assert max(one.enq_depth for one in reports) > 0


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_on_interfaces_a_full_queue_drops_as_in_bmv2(near: tuple[Any, Any]) -> None:
    source, sink = near
    for _ in range(FLOOD):
        source.send(frame(0, 1))
    reports: list[Report] = []
    while not reports or reports[-1].number != LAST:
        source.send(frame(0, LAST))  # is dropped while the queue is full
        reports.append(report(sink.recv(2000)))
    assert sum(one.number == 1 for one in reports) < FLOOD
    assert max(one.enq_depth for one in reports) == DEPTH - 1


def test_command_lines_set_rates_and_lengths() -> None:
    options = parse(["--no-p4", "--", "--queue-rate", "1000pps", "--queue-rate", "3.1=10mbit", "--queue-depth", "3=9"])
    settings = make_config(options).queues
    assert settings == (
        QueueSetting(rate_pps=1000),
        QueueSetting(port=3, priority=1, rate_bps=10e6),
        QueueSetting(port=3, depth_frames=9),
    )
    queues = Queues(2)
    manager = TrafficManager(queues)
    for setting in settings:
        setting.apply(manager, except_for={255})
    assert queues.held.sum() == 511
    assert not queues.held[255]
    assert manager.port(3).queues[1].rate.bits_per_s == 10e6
    assert [queue.depth_frames for queue in manager.port(3).queues] == [9, 9]
    assert read_depth("2.0=5000bytes") == QueueSetting(port=2, priority=0, depth_bytes=5000)


@pytest.mark.parametrize("text", ["", "fast", "10", "3=10", "-1pps", "3.=5pps", "1e3pps"])
def test_bad_rates_are_named(text: str) -> None:
    with pytest.raises(UsageError, match="a rate is"):
        read_rate(text)


def test_ports_and_queues_that_are_not_there_are_named() -> None:
    manager = TrafficManager(Queues(2))
    with pytest.raises(UsageError, match="no port 600"):
        read_rate("600=5pps").apply(manager)
    with pytest.raises(UsageError, match="no queue 2"):
        read_rate("3.2=5pps").apply(manager)
    with pytest.raises(UsageError, match="a length is"):
        read_depth("64frames")


def test_a_frame_that_is_larger_than_usual_waits_too() -> None:
    with MemorySwitch(config("native", [f"{PORT}=500pps"])) as switch:
        for number in range(3):
            switch.receive(1, frame(0, number) + bytes(20_000))
        sizes = [len(made) for _, made in switch.sent(3)]
    assert sizes == [FRAME_BYTES + 20_000] * 3
