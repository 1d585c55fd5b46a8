"""`switchsum-bmv2`: the embedded switch behind the command line of BMv2's `simple_switch_grpc`.

Options before `--` are those of every BMv2 target, options behind it are those of simple_switch_grpc.  They mean what
docs/simple_switch.md and targets/simple_switch_grpc/README.md of p4lang/behavioral-model say.  An option that this
switch cannot honour is an error if traffic depends on it, and otherwise a warning.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final, NoReturn

from switchsum_switch.connections.addresses import check_form
from switchsum_switch.connections.serving import allow_many_descriptors
from switchsum_switch.errors import UsageError

from ..ports.peers import SCHEME
from ..program.v1model import DROP_PORT, MAX_PASSES, MAX_QUEUES, PASSES
from ..queues.queue_settings import read_settings
from ..queues.queues import PORTS
from .daemon import Config, ProgramConfig, Services, start_interruptible

JSON_VERSION: Final = "2.23"
"""Newest version of the JSON format that is understood."""
LISTEN: Final = "0.0.0.0:9559"
"""Default address of BMv2's P4Runtime server."""
MAX_DEVICE_ID: Final = (1 << 64) - 1
"""P4Runtime's messages have 64 bits for it."""
LOG_BYTES: Final = 5 << 20
LOG_FILES: Final = 3
LOG_FORMAT: Final = "[%(asctime)s] [%(levelname)s] %(message)s"

_LEVELS: Final = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
_WITHOUT_EFFECT: Final = {
    "thrift_port": "there is no Thrift server: P4Runtime does what its clients did",
    "nanolog": "there are no nanomsg logs",
    "notifications_addr": "there are no nanomsg notifications",
    "debugger": "there is no debugger",
    "debugger_addr": "there is no debugger",
    "disable_swap": "a program can always be replaced",
    "max_mc_groups": "there may be 65,535 multicast groups",
    "max_l1_entries": "multicast groups are not limited",
    "max_l2_entries": "multicast groups are not limited",
}
_REFUSED: Final = {
    "use_files": "packets come from interfaces",
    "packet_in": "packets come from interfaces",
    "restore_state": "write the state again by P4Runtime",
    "dp_grpc_server_addr": "packets come from interfaces",
    "grpc_server_ssl": "the P4Runtime server of `switchsum-bmv2` has no TLS",
}

_log = logging.getLogger("switchsum.switch.command_line")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def run(arguments: Sequence[str], services: Services = ()) -> None:
    """Run the switch until SIGINT or SIGTERM, with `services` beside P4Runtime; raises SwitchsumError."""
    options = parse(arguments)
    config = replace(make_config(options), services=services)
    start_log(options)
    allow_many_descriptors()
    with start_interruptible(config) as switch:
        for option, reason in _WITHOUT_EFFECT.items():
            if getattr(options, option) is not None:
                _log.warning("%s has no effect: %s", _option(option), reason)
        _log.info("P4Runtime server listening on %s, device id %d", switch.address, config.device_id)
        for port, name in config.interfaces.items():
            _log.info("port %d is %s", port, name if name.startswith(SCHEME) else f"interface {name}")
        switch.run()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read a command line; raises UsageError, and SystemExit for `--help` and the versions."""
    target = _target_parser()
    common = _common_parser(target)
    own = list(arguments)
    rest: list[str] = []
    if "--" in own:
        place = own.index("--")
        own, rest = own[:place], own[place + 1 :]
    options = target.parse_args(rest, common.parse_args(own))
    for name, reason in _REFUSED.items():
        if getattr(options, name) is not None:
            raise UsageError(f"{_option(name)} is not supported: {reason}")
    return options


def make_config(options: argparse.Namespace) -> Config:
    """Return the configuration of a switch with these options; raises UsageError."""
    if options.log_console and options.log_file:
        raise UsageError("--log-console and --log-file exclude each other")
    if options.program is None and not options.no_p4:
        raise UsageError("give a BMv2 JSON file, or --no-p4 to start without a program")
    check_form(options.grpc_server_addr)
    if options.pcap is not None and not options.pcap.is_dir():
        raise UsageError(f"--pcap: there is no directory {options.pcap}")
    return Config(
        listen=options.grpc_server_addr,
        device_id=options.device_id,
        program=None if options.no_p4 else _read_program(options.program),
        interfaces=_interfaces(options.interface),
        cpu_port=options.cpu_port,
        drop_port=options.drop_port,
        priority_queues=options.priority_queues,
        queues=read_settings(options.queue_rate, options.queue_depth),
        max_passes=options.max_passes,
        deep_buffers=False,
        interface_pcaps=options.pcap,
        logged_bytes=options.dump_packet_data if _wanted_level(options) <= logging.INFO else None,
    )


def start_log(options: argparse.Namespace) -> None:
    """Log as the options say: to the console or to a file that rotates; without either, warnings to stderr."""
    handler: logging.Handler
    if options.log_file:
        try:
            handler = RotatingFileHandler(
                f"{options.log_file}.txt",  # BMv2 adds the ending
                maxBytes=options.log_file_max_size,
                backupCount=options.log_file_max_files,
            )
        except OSError as error:
            raise UsageError(f"--log-file {options.log_file}: {error.strerror}") from None
    else:
        handler = logging.StreamHandler(sys.stdout if options.log_console else sys.stderr)
    level = _wanted_level(options)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), format=LOG_FORMAT)
    logging.getLogger("switchsum").setLevel(level)  # not the root logger: numba logs each step of its compiler


def _wanted_level(options: argparse.Namespace) -> int:
    if options.log_console or options.log_file:
        return _LEVELS[options.log_level]
    return logging.WARNING


def _read_program(path: Path) -> ProgramConfig:
    try:
        return ProgramConfig(device_config=path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def _interfaces(pairs: Sequence[tuple[int, str]]) -> dict[int, str]:
    interfaces = dict(pairs)
    if len(interfaces) != len(pairs):
        raise UsageError("two interfaces have the same port number")
    return interfaces


def _interface(text: str) -> tuple[int, str]:
    port, _, name = text.partition("@")
    if not port.isdecimal() or not name:
        raise argparse.ArgumentTypeError(f"an interface is PORT@NAME, not {text!r}")
    return int(port), name


def _number(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return what reads a whole number of a range, in decimal, hexadecimal or octal as BMv2 does."""

    def read(text: str) -> int:
        try:
            number = int(text, 0)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
        if number < low or (high is not None and number > high):
            limits = f"{low} or more" if high is None else f"{low} to {high}"
            raise argparse.ArgumentTypeError(f"{number} is not {limits}")
        return number

    return read


def _common_parser(target: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of the options before `--`."""
    parser = _Parser(
        prog="switchsum-bmv2",
        usage="%(prog)s [options] [program.json] [-- target options]",
        description="switchsum's embedded switch behind the command line of BMv2's simple_switch_grpc.",
        epilog="Target options, behind --:\n\n" + target.format_help().split("\n\n", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("program", nargs="?", type=Path, help="program to start with, the JSON that p4c-bm2-ss writes")
    port = "make an interface, or a UDP peer udp:HOST:PORT/HOST:PORT, a port"
    add("-i", "--interface", action="append", default=[], type=_interface, metavar="PORT@NAME", help=port)
    add("--no-p4", action="store_true", help="start without a program")
    add("--device-id", type=_number(0, MAX_DEVICE_ID), default=0, help="P4Runtime's device id (0)")
    add("--pcap", nargs="?", type=Path, const=Path(), metavar="DIR", help="write NAME_in.pcap and NAME_out.pcap here")
    add("--log-console", action="store_true", help="log to standard output")
    add("--log-file", metavar="NAME", help="log to NAME.txt")
    add("-L", "--log-level", choices=_LEVELS, default="trace", help="log what is as grave as this (trace: every frame)")
    add("--log-flush", action="store_true", help="accepted: every line of the log is flushed")
    add("--log-file-max-size", type=_number(1), default=LOG_BYTES, metavar="BYTES", help="rotate the log (5 MB)")
    add("--log-file-max-files", type=_number(0), default=LOG_FILES, metavar="COUNT", help="rotated logs to keep (3)")
    add("--dump-packet-data", type=_number(0), default=0, metavar="BYTES", help="log the first bytes of every frame")
    add("--max-port-count", type=_number(0), metavar="COUNT", help=f"accepted: there may be {PORTS} ports")
    add("-v", "--version", action="version", version=f"switchsum-bmv2 {version('switchsum-switch')}")
    add("--json-version", action="version", version=JSON_VERSION, help="newest JSON format that is understood")
    for name in ("thrift-port", "nanolog", "notifications-addr", "debugger-addr"):
        add(f"--{name}", help="accepted without effect")
    add("--debugger", action="store_true", default=None, help="accepted without effect")
    for name in ("use-files", "packet-in", "restore-state"):
        add(f"--{name}", help="not supported")
    return parser


def _target_parser() -> argparse.ArgumentParser:
    """Return the parser of the options behind `--`."""
    parser = _Parser(prog="switchsum-bmv2 --", add_help=False)
    add = parser.add_argument
    add("--grpc-server-addr", default=LISTEN, metavar="HOST:PORT", help=f"serve P4Runtime here ({LISTEN})")
    add("--cpu-port", type=_number(1, PORTS - 1), help="port of packet-ins and packet-outs; without it there are none")
    add("--drop-port", type=_number(0, PORTS - 1), default=DROP_PORT, help=f"port that means drop ({DROP_PORT})")
    add("--priority-queues", type=_number(1, MAX_QUEUES), default=1, help="queues of each port (1)")
    rate = "rate of a port or one of its queues, in pps, bit, kbit, mbit or gbit; for BMv2 Thrift sets it"
    add("--queue-rate", action="append", default=[], metavar="[PORT[.PRIORITY]=]RATE", help=rate)
    depth = "most frames, or bytes as in 100000bytes, that wait in a queue (64)"
    add("--queue-depth", action="append", default=[], metavar="[PORT[.PRIORITY]=]LENGTH", help=depth)
    passes = f"how often ingress may run for one frame ({PASSES}); not an option of BMv2, which has no limit"
    add("--max-passes", type=_number(1, MAX_PASSES), default=PASSES, metavar="COUNT", help=passes)
    add("--disable-swap", action="store_true", default=None, help="accepted without effect")
    for name in ("max-mc-groups", "max-l1-entries", "max-l2-entries"):
        add(f"--{name}", type=_number(1), help="accepted without effect")
    for name in ("grpc-server-ssl", "grpc-server-with-client-auth"):
        add(f"--{name}", action="store_true", default=None, help="not supported")
    for name in ("grpc-server-cacert", "grpc-server-cert", "grpc-server-key"):
        add(f"--{name}", help="ignored without --grpc-server-ssl")
    add("--dp-grpc-server-addr", help="not supported")
    return parser


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
