"""`switchsum controller`: the process that keeps the jobs."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from switchsum.cli.fields import takes
from switchsum.cli.output import greet, log_daemon
from switchsum.cli.remote import LAST_SWITCH_PORT, DeviceOption, check_address
from switchsum.launch.builds import AUTO, LanesOption, read_lanes
from switchsum_protocol.builds import largest_build
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import AGGREGATION_PORT
from switchsum_switch.connections.addresses import check_form, is_listening, is_number
from switchsum_switch.connections.serving import allow_many_descriptors
from switchsum_switch.process.runtime_directory import controller_address, p4runtime_address, path_of
from switchsum_switch.wires.headers import Address, parse_ip, parse_mac

if TYPE_CHECKING:
    from switchsum_controller.service.config import Config
    from switchsum_controller.service.controller import Controller
    from switchsum_controller.service.server import Service
    from switchsum_controller.switches.switch_session import Build
    from switchsum_controller.trees.fabric import Fabric

LAUNCHED_S = 0.005
"""Pause between two looks for a switch that the launcher has started as well."""
STANDBY_S = 0.25
"""Pause between two looks for a controller whose place may be vacant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """What the controller is told."""

    switch: Annotated[
        str | None,
        typer.Option(help="P4Runtime server of the switch, host:port or unix:path. Default: this user's switch."),
    ] = None
    fleet: Annotated[
        Path | None, typer.Option(help="JSON file of several switches and their trees, instead of --switch.")
    ] = None
    listen: Annotated[
        str | None,
        typer.Option(
            help="Address for hosts and commands, host:port or unix:path. Default: a socket that only this "
            "user reaches."
        ),
    ] = None
    local: Annotated[
        str | None, typer.Option(help="unix:path for commands of this user, which need no certificate there.")
    ] = None
    lanes: LanesOption = AUTO
    mtu: Annotated[
        int, typer.Option(min=1, max=65535, help="MTU of every link to hosts, from which --lanes auto follows.")
    ] = 1500
    mac: Annotated[str, typer.Option(help="The switch's own Ethernet address.")] = "02:00:00:00:00:fe"
    ip: Annotated[str, typer.Option(help="The switch's own IPv4 address.")] = "10.0.0.254"
    station: Annotated[
        list[str] | None, typer.Option(help="MAC@PORT: forward frames for this address to this port.")
    ] = None
    flood_port: Annotated[
        list[int] | None, typer.Option(min=0, max=LAST_SWITCH_PORT, help="Port to which broadcasts go as well.")
    ] = None
    growth_bytes: Annotated[
        int | None,
        typer.Option(
            min=0, max=0xFFFF, help="Bytes that the switch may add to a frame. Default: found out (BMv2: 512)."
        ),
    ] = None
    port_frames: Annotated[
        int | None, typer.Option(min=1, help="Frames that each port can hold. Default: found out (BMv2: 32).")
    ] = None
    device_id: DeviceOption = 0
    election_id: Annotated[
        int | None, typer.Option(help="Election id of P4Runtime. Default: 65536, or more if no client is primary.")
    ] = None
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait until the controller at --listen ends, then take its place.")
    ] = False
    web: Annotated[str | None, typer.Option(help="HOST:PORT of a live page and of metrics for Prometheus.")] = None
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False


@takes(ControllerOptions)
def controller(options: ControllerOptions) -> None:
    """Run the controller until interrupted: it sets switches up with program and entries, and admits ranks to jobs."""
    from switchsum import __version__
    from switchsum_controller.service.config import Config
    from switchsum_controller.switches import discovery

    log_daemon("controller", verbose=options.verbose)
    build = read_lanes(options.lanes) or largest_build(options.mtu)
    listen = options.listen or controller_address()
    # One that stands by cannot have the address yet: another one has it, here or on the machine where it is now.
    (check_form if options.standby else check_address)(listen)
    check_form(options.switch or p4runtime_address())
    if options.local is not None and path_of(options.local) is None:
        raise UsageError(f"--local is a socket of this machine, unix:path, not {options.local!r}")
    allow_many_descriptors()
    if options.election_id is not None and not 0 < options.election_id < 1 << 128:
        raise UsageError(f"--election-id is a number of 1 to 2^128 - 1, not {options.election_id}")
    if options.fleet is not None and options.switch is not None:
        raise UsageError("a controller keeps one --switch or those of a --fleet, not both")
    program = load_program(build)
    address = Address(mac=read_mac(options.mac), ip=read_ip(options.ip), port=AGGREGATION_PORT)
    stations = dict(read_station(text) for text in options.station or ())
    if options.standby:  # what is wrong with its options is said now, and not when it is needed
        if options.fleet is not None:
            discovery.read(options.fleet, build)
        stand_by(listen)
    several = None if options.fleet is None else read_fleet(options.fleet, options, program)
    config = Config(
        program=program,
        switch_address=several.switches[several.home].p4runtime if several else options.switch or p4runtime_address(),
        fabric=several,
        address=address,
        growth_bytes=options.growth_bytes,
        port_frames=options.port_frames,
        stations=stations,
        flood_ports=frozenset(options.flood_port or ()),
        device_id=options.device_id,
        election_id=options.election_id,
        package_version=__version__,
    )
    serve(config, listen, options.web, standby=options.standby, local=options.local)


def stand_by(listen: str) -> None:
    """Wait as long as a controller listens at an address, having imported what it takes to be one."""
    import switchsum_controller.service.controller
    import switchsum_controller.service.server  # noqa: F401

    for number in (signal.SIGINT, signal.SIGTERM):  # until `serve` has something to stop
        signal.signal(number, lambda *_: sys.exit(0))
    if is_listening(listen):
        greet(f"controller stands by for the one at {listen}")
    await_vacancy(listen, lambda: False)


def await_vacancy(listen: str, is_stopping: Callable[[], bool]) -> None:
    """Wait as long as a controller listens at an address, or until this one is to stop."""
    vacant = 0
    # At the second look one that ends of itself has taken its socket's name away.
    while vacant < 2 and not is_stopping():
        time.sleep(STANDBY_S)
        vacant = 0 if is_listening(listen) else vacant + 1


def take_place(daemon: Controller, listen: str, *, standby: bool, local: str | None = None) -> Service:
    """Listen for a controller; one that stands by tries again where another one was faster.  Raises LocalError."""
    from switchsum_controller.service.server import Service

    # Before it listens, and once: a signal that comes while another one is faster must not be forgotten.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: daemon.upkeep.stop())
    last_said = ""
    while True:
        try:
            return Service(daemon, listen, local)
        except LocalError as error:
            if not standby:
                raise
            if str(error) != last_said:
                last_said = str(error)
                logging.getLogger("switchsum.controller").warning("stands by: %s", last_said)
            await_vacancy(listen, lambda: daemon.upkeep.is_stopping)
            if daemon.upkeep.is_stopping:
                sys.exit(0)


def read_fleet(path: Path, options: ControllerOptions, program: Build) -> Fabric:
    """Read the file of several switches, and find their links if it does not name them; raises UsageError.

    Switches may be started after their controller: until they and their links are there, it says what is missing.
    """
    from switchsum_controller.switches import discovery

    last_said = ""
    while True:
        try:
            return discovery.load(path, program, device_id=options.device_id, election_id=options.election_id)
        except UsageError:
            raise
        except LocalError as error:
            if str(error) != last_said:
                last_said = str(error)
                logging.getLogger("switchsum.controller").warning("no tree of switches yet: %s", last_said)
            time.sleep(1.0)


def await_switch(address: str, is_stopping: Callable[[], bool]) -> None:
    """Wait until a switch listens, or this controller is to stop: a failed attempt would cost more time."""
    while not is_stopping() and not is_listening(address):
        time.sleep(LAUNCHED_S)


def load_program(lanes_per_frame: int) -> Build:
    """Return a lane build as the controller takes it."""
    from switchsum import p4src
    from switchsum_controller.switches.switch_session import Build

    compiled = p4src.load(lanes_per_frame)
    return Build(lanes_per_frame=lanes_per_frame, device_config=compiled.device_config, p4info=compiled.p4info)


def serve(
    config: Config, listen: str, web: str | None = None, *, standby: bool = False, local: str | None = None
) -> None:
    """Run a controller until interrupted."""
    from switchsum.web.local import LocalSource
    from switchsum.web.server import WebServer
    from switchsum_controller.service.controller import Controller
    from switchsum_switch.process.ready import announce, is_launched

    daemon = Controller(config)
    service = take_place(daemon, listen, standby=standby, local=local)
    places = ", ".join(switch.p4runtime for switch in config.switches.switches.values())
    greet(f"controller at {service.address}, switch at {places}")
    pages = None
    try:
        if web is not None:
            pages = WebServer(LocalSource(daemon.users), web, daemon.upkeep.fail)
            greet(f"page at {pages.url}, metrics at {pages.url}metrics")
        if is_launched():  # with its switch, which takes longer to start
            await_switch(config.switch_address, lambda: daemon.upkeep.is_stopping)
        # A switch that refuses the program today may be another one tomorrow, but a launcher has no other one.
        daemon.upkeep.run(
            on_connected=lambda: announce(controller=service.address, web=pages and pages.url),
            on_refused=lambda error: daemon.upkeep.fail(error) if is_launched() else None,
        )
    finally:
        if pages is not None:
            pages.stop()
        service.stop()


def read_station(text: str) -> tuple[int, int]:
    """Read `MAC@PORT`; raises UsageError."""
    mac, _, port = text.partition("@")
    if not is_number(port, LAST_SWITCH_PORT):
        raise UsageError(f"a station is MAC@PORT with a port of 0 to {LAST_SWITCH_PORT}, not {text!r}")
    return read_mac(mac), int(port)


def read_mac(text: str) -> int:
    """Read the Ethernet address of a station; raises UsageError."""
    try:
        mac = parse_mac(text)
    except ValueError as error:
        raise UsageError(f"not an Ethernet address: {text!r}") from error
    if mac >> 40 & 1:
        raise UsageError(f"{text} is a multicast address: a station needs an Ethernet address of its own")
    return mac


def read_ip(text: str) -> int:
    """Read an IPv4 address; raises UsageError."""
    try:
        return parse_ip(text)
    except ValueError as error:
        raise UsageError(str(error)) from error
