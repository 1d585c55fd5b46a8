"""`switchsum switch`: the embedded switch as a process; with a word behind it, a look at a controller's switches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from switchsum.cli.controller import read_ip, read_mac
from switchsum.cli.fields import takes
from switchsum.cli.output import greet, log_daemon
from switchsum.cli.remote import LAST_SWITCH_PORT, DeviceOption, check_address
from switchsum.cli.switches import list_switches, show_switch
from switchsum.launch.builds import read_lanes
from switchsum_protocol.errors import UsageError
from switchsum_switch.connections.addresses import LAST_PORT, is_number
from switchsum_switch.connections.serving import allow_many_descriptors
from switchsum_switch.process.runtime_directory import aggregator_address, p4runtime_address

app = typer.Typer(name="switch")
app.command("list")(list_switches)
app.command("show")(show_switch)


class EngineChoice(StrEnum):
    """The engine that runs the program."""

    NATIVE = "native"
    """Machine code."""
    INTERPRETER = "interpreter"
    """The interpreter, which defines what programs do: slow, and easy to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOptions:
    """What the embedded switch is told."""

    context: typer.Context
    """Context of the command line. It tells whether a word follows that is itself a command."""
    listen: Annotated[
        str | None,
        typer.Option(
            help="Address of the P4Runtime server, host:port (0: any) or unix:path. Default: a socket that "
            "only this user reaches."
        ),
    ] = None
    shm: Annotated[
        str | None, typer.Option(help="Name or path of shared-memory links; workers use the link shm:NAME.")
    ] = None
    interface: Annotated[
        list[str] | None,
        typer.Option("--interface", "-i", help="PORT@INTERFACE with CAP_NET_RAW, or PORT@udp:HOST:PORT/HOST:PORT."),
    ] = None
    udp: Annotated[str | None, typer.Option(help="HOST:PORT of a UDP socket for workers without raw sockets.")] = None
    engine: Annotated[EngineChoice, typer.Option(help="What runs the program.")] = EngineChoice.NATIVE
    pcap: Annotated[Path | None, typer.Option(help="Write every frame to this pcapng file.")] = None
    max_passes: Annotated[
        int,
        typer.Option(min=1, max=65536, help="Number of times that ingress may run for one frame."),
    ] = 1024
    priority_queues: Annotated[
        int, typer.Option(min=1, max=256, help="Queues of each port; standard_metadata.priority chooses one.")
    ] = 1
    queue_rate: Annotated[
        list[str] | None,
        typer.Option(metavar="[PORT[.PRIORITY]=]RATE", help="Rate of a port or a queue: 1000pps, 10mbit."),
    ] = None
    queue_depth: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[PORT[.PRIORITY]=]LENGTH", help="Length of a queue in frames (64) or bytes (100000bytes)."
        ),
    ] = None
    device_id: DeviceOption = 0
    mac: Annotated[str, typer.Option(help="The switch's own Ethernet address, for --udp.")] = "02:00:00:00:00:fe"
    ip: Annotated[str, typer.Option(help="The switch's own IPv4 address, for --udp.")] = "10.0.0.254"
    prepare: Annotated[
        str | None,
        typer.Option(metavar="LANES", help="Compile switchsum's program for frames of so many lanes at the start."),
    ] = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False


@app.callback(invoke_without_command=True)
@takes(SwitchOptions)
def switch(options: SwitchOptions) -> None:
    """Run the embedded switch until interrupted; a controller gives it its program.

    `switchsum switch list` and `switchsum switch show` show the switches of a controller instead.
    """
    if (command := options.context.invoked_subcommand) is not None:
        _refuse_options(options.context, command)
        return
    run_switch(options, options.listen or p4runtime_address(), "switch")


@takes(SwitchOptions)
def aggregator(options: SwitchOptions) -> None:
    """Run a switch as the fallback of jobs that share slots: it adds what finds the slots of their switch taken.

    The controller's --fleet file names it, with the role aggregator.
    """
    run_switch(options, options.listen or aggregator_address(), "aggregator")


def run_switch(options: SwitchOptions, listen: str, what: str) -> None:
    """Run the embedded switch until interrupted."""
    from switchsum import p4src
    from switchsum_protocol.frame import AGGREGATION_PORT
    from switchsum_switch.daemon.daemon import Config, UdpConfig, start_interruptible
    from switchsum_switch.ports.sampling import serve_samples
    from switchsum_switch.process.ready import announce, report_progress
    from switchsum_switch.queues.queue_settings import read_settings
    from switchsum_switch.wires.headers import Address

    log_daemon(what, verbose=options.verbose)
    report_progress()
    check_address(listen)
    lanes = None if options.prepare is None else read_lanes(options.prepare, "--prepare")
    allow_many_descriptors()
    own = Address(mac=read_mac(options.mac), ip=read_ip(options.ip), port=AGGREGATION_PORT)
    udp_config = None
    if options.udp is not None:
        host, port = read_endpoint(options.udp)
        udp_config = UdpConfig(host=host, port=port, switch=own)
    config = Config(
        listen=listen,
        device_id=options.device_id,
        max_passes=options.max_passes,
        priority_queues=options.priority_queues,
        queues=read_settings(options.queue_rate or (), options.queue_depth or ()),
        engine=options.engine.value,
        shm=options.shm,
        interfaces=read_interfaces(options.interface or ()),
        expected=None if lanes is None else p4src.load(lanes).device_config,
        udp=udp_config,
        pcap=options.pcap,
        services=(serve_samples,),
    )
    with start_interruptible(config) as running:
        greet(f"{what} with P4Runtime at {running.address}")
        announce(p4runtime=running.address)
        running.run()


def _refuse_options(context: typer.Context, command: str) -> None:
    """Refuse options of a switch that runs in front of a command that looks at switches; raises UsageError."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(f"`switch {command}` starts no switch, so {parameter.opts[0]} cannot be used with it")


def read_interfaces(texts: Sequence[str]) -> dict[int, str]:
    """Read several of them, each of another port; raises UsageError."""
    interfaces: dict[int, str] = {}
    for port, name in map(read_interface, texts):
        if port in interfaces:
            raise UsageError(f"port {port} is given to two interfaces, {interfaces[port]} and {name}")
        interfaces[port] = name
    return interfaces


def read_interface(text: str) -> tuple[int, str]:
    """Read `PORT@INTERFACE`; raises UsageError."""
    port, _, name = text.partition("@")
    if not is_number(port, LAST_SWITCH_PORT) or not name:
        raise UsageError(f"an interface is PORT@INTERFACE with a port of 0 to {LAST_SWITCH_PORT}, not {text!r}")
    return int(port), name


def read_endpoint(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`; raises UsageError."""
    host, _, port = text.rpartition(":")
    if ":" in host:
        raise UsageError(f"an address is HOST:PORT with an IPv4 host, not {text!r}: the workers' frames are IPv4")
    if not host or not is_number(port, LAST_PORT):
        raise UsageError(f"an address is HOST:PORT with a port of 0 to {LAST_PORT}, not {text!r}")
    return host, int(port)
