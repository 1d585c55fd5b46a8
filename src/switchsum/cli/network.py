"""`switchsum network`: switches between UDP ends on this machine, with their P4Runtime servers, without root."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from switchsum.cli.fields import takes
from switchsum.cli.output import check_seconds, print_records
from switchsum_protocol.errors import UsageError

if TYPE_CHECKING:
    from switchsum_switch.live.network import LiveNetwork

LAST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """What `switchsum network` is told."""

    file: Annotated[Path, typer.Argument(help="Hosts, switches and links, as a tutorial's topology.json; or YAML.")]
    folder: Annotated[Path | None, typer.Option(help="Where relative paths begin. Default: at the file.")] = None
    grpc: Annotated[
        int, typer.Option(min=0, max=LAST_PORT, help="TCP port of the first P4Runtime server, on 127.0.0.1; 0: any.")
    ] = 50051
    udp: Annotated[
        int, typer.Option(min=1, max=LAST_PORT, help="First UDP port of the hosts' links, on 127.0.0.1.")
    ] = 7401
    every: Annotated[float | None, typer.Option(help="Print the counts every so many seconds.")] = None
    seconds: Annotated[float | None, typer.Option(help="End after so many seconds. Default: at SIGINT.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@takes(NetworkOptions)
def network(options: NetworkOptions) -> None:
    """Run P4 switches and the links between them on this machine, without root, until interrupted.

    Each host has a UDP end that any program can use, or is a capture file or a TAP device. Each switch has a P4Runtime
    server. At the end the counts of all ports are printed.
    """
    check_seconds("--every", options.every)
    check_seconds("--seconds", options.seconds)
    from switchsum_switch.connections.serving import allow_many_descriptors
    from switchsum_switch.live.file import read_network

    allow_many_descriptors()
    made = read_network(options.file, folder=options.folder, first_grpc=options.grpc, first_udp=options.udp)
    if not made.nodes:
        made.close()
        raise UsageError(f"{options.file}: there is no switch")
    with _until_a_signal() as ended, made:
        made.start()
        print_records("network", _nodes(made), as_json=options.as_json)
        left = options.seconds
        while not ended.wait(left if options.every is None else min(options.every, left or options.every)):
            if left is not None and (left := left - (options.every or left)) <= 0:
                break
            print_records("ports", _ports(made), as_json=options.as_json)
    print_records("ports", _ports(made), as_json=options.as_json)
    if hosts := _hosts(made):
        print_records("hosts", hosts, as_json=options.as_json)


def _nodes(made: LiveNetwork) -> list[dict[str, Any]]:
    nodes = [{"node": name, "kind": "switch", "end": address} for name, address in made.addresses.items()]
    ends = {name: host.end.text for name, host in made.hosts.items() if host.end is not None}
    return nodes + [{"node": name, "kind": "host", "end": link} for name, link in (made.outside | ends).items()]


def _hosts(made: LiveNetwork) -> list[dict[str, Any]]:
    """Return what the hosts have sent and received that are capture files and TAP devices."""
    return [
        {"host": name, "end": host.end.text, "tx_frames": host.end.sent, "rx_frames": host.end.received}
        for name, host in made.hosts.items()
        if host.end is not None
    ]


def _ports(made: LiveNetwork) -> list[dict[str, Any]]:
    return [
        {"switch": name, "port": port, "to": made.beyond(name, port), **counts}
        for name, ports in made.counts().items()
        for port, counts in ports.items()
    ]


@contextmanager
def _until_a_signal() -> Iterator[threading.Event]:
    """Give an event that SIGINT and SIGTERM set; both are as before afterwards."""
    ended, before = threading.Event(), {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, lambda *_: ended.set())
    try:
        yield ended
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
