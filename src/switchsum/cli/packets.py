"""`switchsum send` and `switchsum capture`: single packets, with Scapy.  `switchsum replay`: a recording once more."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from switchsum.cli.controller import read_ip, read_mac
from switchsum.cli.fields import takes
from switchsum.cli.output import JsonOption, check_seconds, print_json
from switchsum.cli.remote import CONTROLLER, ControllerOption, address_of
from switchsum_protocol.errors import TransportError, UsageError
from switchsum_protocol.frame import AGGREGATION_PORT, LANE_BUILDS
from switchsum_switch.notices import waiting_for
from switchsum_switch.wires.headers import Address

VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show all fields and lanes of every packet.")]
PcapOption = Annotated[Path | None, typer.Option(help="Write the packets to this pcapng file, too.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Which packet is sent, to whom, and how it is shown."""

    fields: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE", help="Header fields: kind=hello slot=3 flags=repeat.")
    ] = None
    values: Annotated[str | None, typer.Option(help="Values such as 1,-2,3, repeated until all lanes are full.")] = None
    job: Annotated[str | None, typer.Option(help="Join this job first. Without it, the switch refuses the packet.")] = (
        None
    )
    rank: Annotated[int, typer.Option(help="Rank to join as.")] = 0
    link: Annotated[
        str, typer.Option(envvar="SWITCHSUM_LINK", help="udp:HOST, packet:INTERFACE, scapy:INTERFACE or shm:NAME.")
    ] = "udp:127.0.0.1"
    times: Annotated[int, typer.Option(help="Send the packet this many times.")] = 1
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for answers each time.")] = 1.0
    lanes: Annotated[int, typer.Option(help="Without --job: 32-bit lanes in the frame.")] = 256
    mac: Annotated[str, typer.Option(help="Without --job: the switch's Ethernet address.")] = "02:00:00:00:00:fe"
    ip: Annotated[str, typer.Option(help="Without --job: the switch's IPv4 address.")] = "10.0.0.254"
    verbose: VerboseOption = False
    pcap: PcapOption = None
    controller: ControllerOption = CONTROLLER


@takes(SendOptions)
def send(options: SendOptions) -> None:
    """Send one packet, and show the packet and the answers.

    With --job, the command joins the job and fills in job, epoch, rank and number. Without --job, the switch refuses
    the packet.

    switchsum send --job toy --values 1,2,3 slot=5 next_block=7
    """
    from switchsum.packets.craft import read_fields, read_values
    from switchsum.packets.send import answers, anybody, member
    from switchsum.packets.send import send as send_packet

    if options.lanes not in LANE_BUILDS or options.times < 1:
        raise UsageError(f"--lanes must be {' or '.join(map(str, LANE_BUILDS))}, and --times at least 1")
    check_seconds("--wait", options.wait_s)
    wanted, numbers = read_fields(options.fields or ()), None if options.values is None else read_values(options.values)
    switch = Address(mac=read_mac(options.mac), ip=read_ip(options.ip), port=AGGREGATION_PORT)
    if options.job is None:
        sender = anybody(options.link, switch, options.lanes)
    else:
        sender = member(options.link, address_of(options.controller), options.job, options.rank)
    with ExitStack() as opened:
        show = opened.enter_context(Printer(verbose=options.verbose, pcap=options.pcap))
        with waiting_for("the link" if options.job is None else f"the other ranks of job {options.job}"):
            place = opened.enter_context(sender)
        has_answered = False
        for _ in range(options.times):
            show(send_packet(place, wanted, numbers))
            before = show.count
            for answer in answers(place, options.wait_s):
                show(answer)
            has_answered |= show.count > before
            if show.count == before:
                typer.echo(f"no answer within {options.wait_s:g} s: until all ranks contribute, a round has no result")
        if not has_answered and options.job is None:  # a switch refuses a contribution of a stranger, and says so
            send_packet(place, {}, None)
            if next(answers(place, options.wait_s), None) is None:
                raise TransportError(
                    f"nothing answers at {options.link}: no switch is there, or none that has its program yet "
                    "(switchsum switch, switchsum controller)"
                )


def capture(
    interface: Annotated[str | None, typer.Option("--interface", "-i", help="Listen here; needs CAP_NET_RAW.")] = None,
    read: Annotated[Path | None, typer.Option(help="Read this pcap or pcapng file instead.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many packets.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after this many seconds.")] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="UDP port of the switch, if it is not the default.")
    ] = AGGREGATION_PORT,
    verbose: VerboseOption = False,
    pcap: PcapOption = None,
) -> None:
    """Show the packets of an interface or a capture file, one line each, until interrupted."""
    from switchsum.packets.watch import from_file, from_interface, listen_at

    if (interface is None) == (read is None):
        raise UsageError("give either --interface eth0 or --read frames.pcapng")
    check_seconds("--seconds", seconds)
    listen_at(port)
    packets = from_file(read) if read is not None else from_interface(str(interface), seconds)
    place = f"packets of UDP port {port} at {interface}, until Ctrl-C" if read is None else f"the file {read}"
    with Printer(verbose=verbose, pcap=pcap) as show, closing(packets):
        wanted = islice(packets, count)
        with waiting_for(place):
            first = next(wanted, None)
        for packet in chain([] if first is None else [first], wanted):
            show(packet)


def replay(
    recording: Annotated[
        Path,
        typer.Argument(metavar="FILE.pcapng", help="File that --pcap of `switchsum switch` or `switchsum run` wrote."),
    ],
    explained: Annotated[
        Path | None,
        typer.Option(help="Write the packets to this pcapng file, each with a comment of what the switch did."),
    ] = None,
    cut: Annotated[
        bool, typer.Option("--cut", help="Replay what is whole of a recording that ends in the midst.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Feed a recording to a switch again, and compare the frames that leave it (exit code 1 if any differ)."""
    from switchsum.packets.replay import replay as run_again

    if explained is not None and explained.resolve() == recording.resolve():
        raise UsageError("--explained would overwrite the recording: give it another file name")
    with waiting_for(f"the replay of {recording}"):
        outcome = run_again(recording, explained, cut=cut)
    if as_json:
        print_json(asdict(outcome))
    else:
        for text in outcome.differences:
            typer.echo(text)
        verdict = "as recorded" if not outcome.different else f"{outcome.different} differences"
        taken = f"{outcome.received} packets in, {outcome.sent} out, {outcome.changes} requests of the controller"
        typer.echo(f"{taken}: {verdict}")
    if outcome.different:
        raise typer.Exit(1)


class Printer:
    """Prints packets with the time since the first one, and writes them to a file if there is one."""

    def __init__(self, *, verbose: bool, pcap: Path | None) -> None:
        from scapy.utils import PcapWriter

        self._verbose = verbose
        self._first: float | None = None
        self.count = 0
        """Number of packets that were printed."""
        try:
            self._file = PcapWriter(str(pcap), linktype=1, sync=True) if pcap is not None else None
        except OSError as error:
            raise UsageError(f"{pcap}: {error.strerror}") from error

    def __call__(self, packet: Any) -> None:
        """Print one packet."""
        from switchsum.packets.text import all_fields, one_line

        now = float(packet.time)
        self.count += 1
        self._first = now if self._first is None else self._first
        typer.echo(f"{now - self._first:11.6f}  {one_line(packet)}")
        if self._verbose:
            typer.echo(all_fields(packet))
        if self._file is not None:
            self._file.write(packet)

    def __enter__(self) -> Printer:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()
