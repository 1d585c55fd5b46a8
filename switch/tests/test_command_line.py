"""`switchsum-bmv2`: BMv2's command line, as a parser and as a process."""

from __future__ import annotations

import io
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from support.timing import patience
from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.daemon.command_line import LISTEN, make_config, parse, run
from switchsum_switch.daemon.daemon import Config
from switchsum_switch.ports.base import Batch
from switchsum_switch.ports.taps import InterfaceFiles
from switchsum_switch.wires.packetsocket import open_packet_socket

PROGRAM: Final = Path(__file__).parent / "programs" / "lives.json"
COMMAND: Final = [sys.executable, "-c", "from switchsum_switch.__main__ import main; main()"]
START_S: Final = patience(40)


def config(line: str) -> Config:
    return make_config(parse(line.split()))


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command and yield it when it listens."""
    process = subprocess.Popen(
        [*COMMAND, "--log-console", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=0
    )
    assert process.stdout is not None
    try:
        assert select.select([process.stdout], [], [], START_S)[0]
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_line_that_the_tutorials_write(tmp_path: Path) -> None:
    made = config(
        f"-i 1@s1-eth1 -i 2@s1-eth2 --pcap {tmp_path} --nanolog ipc:///tmp/bm-0-log.ipc --device-id 3 --no-p4 "
        "--log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 254"
    )
    assert (made.interfaces, made.device_id, made.program) == ({1: "s1-eth1", 2: "s1-eth2"}, 3, None)
    assert (made.listen, made.cpu_port, made.interface_pcaps) == ("0.0.0.0:50051", 254, tmp_path)
    assert made.logged_bytes == 0


def test_what_holds_without_options() -> None:
    made = config(f"{PROGRAM}")
    assert (made.listen, made.device_id, made.cpu_port, made.drop_port) == (LISTEN, 0, None, 511)
    assert made.program is not None
    assert made.program.device_config == PROGRAM.read_bytes()
    assert (made.interface_pcaps, made.logged_bytes, made.interfaces) == (None, None, {})


def test_spellings_of_boost() -> None:
    made = config(f"--interface=7@x -i8@y {PROGRAM} --device-id=0x10 --pcap -- --cpu-port=0x1ff --drop-port 510")
    assert (made.interfaces, made.device_id, made.interface_pcaps) == ({7: "x", 8: "y"}, 16, Path())
    assert (made.cpu_port, made.drop_port) == (511, 510)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "--no-p4"),
        ("/nowhere/x.json", "/nowhere/x.json: No such file"),
        ("--no-p4 -i 1-eth0", "PORT@NAME"),
        ("--no-p4 -i 1@a -i 1@b", "same port number"),
        ("--no-p4 --device-id -1", "-1 is not 0 to 18446744073709551615"),
        ("--no-p4 --device-id 0x10000000000000000", "18446744073709551616 is not 0 to"),
        ("--no-p4 --log-file-max-size 0", "0 is not 1 or more"),
        ("--no-p4 --log-console --log-file x", "exclude each other"),
        ("--no-p4 --log-level loud", "invalid choice"),
        ("--no-p4 --pcap /nowhere", "no directory /nowhere"),
        ("--no-p4 -- --grpc-server-addr 127.0.0.1:99999", "an address is host:port"),
        ("--no-p4 -- --grpc-server-addr 9559", "an address is host:port"),
        ("--no-p4 -- --cpu-port 0", "0 is not 1 to 511"),
        ("--no-p4 -- --cpu-port many", "'many' is no number"),
        ("--no-p4 -- --priority-queues 0", "0 is not 1 to"),
        ("--no-p4 -- --max-passes 0", "0 is not 1 to 65536"),
        ("--no-p4 --cpu-port 255", "unrecognized arguments: --cpu-port"),
        ("--no-p4 -- --dp-grpc-server-addr x:1", "--dp-grpc-server-addr is not supported"),
        ("--no-p4 --use-files 1", "--use-files is not supported"),
        ("--no-p4 -i 1@there-is-none", "interface there-is-none"),
        (f"{PROGRAM.with_suffix('.p4')}", "not a BMv2 program"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(line: str, reason: str) -> None:
    with pytest.raises(SwitchsumError) as refused:
        run([*line.split()])
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}


def test_a_busy_port_ends_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        line = f"--no-p4 -- --grpc-server-addr 127.0.0.1:{busy.getsockname()[1]}"
        done = subprocess.run([*COMMAND, *line.split()], capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("switchsum-bmv2: cannot listen on 127.0.0.1:")
    assert "ss -lntp sport = :" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly(number: signal.Signals) -> None:
    with started("--no-p4", "--thrift-port", "9090", "--", "--grpc-server-addr", "127.0.0.1:0") as process:
        process.send_signal(number)
        log, errors = process.communicate(timeout=START_S)
    assert (process.returncode, errors) == (0, "")
    assert "--thrift-port has no effect" in log
    assert "P4Runtime server listening on 127.0.0.1:" in log


@pytest.mark.parametrize("option", ["--help", "--version", "--json-version"])
def test_what_is_asked_for_is_printed(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run([option])
    assert ended.value.code == 0
    assert capsys.readouterr().out


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_frames_cross_it_and_are_recorded(tmp_path: Path) -> None:
    from scapy.utils import rdpcap

    for pair in ("a", "b"):
        subprocess.run(["ip", "link", "add", f"{pair}0", "type", "veth", "peer", "name", f"{pair}1"], check=True)
        for end in "01":
            subprocess.run(["sysctl", "-qw", f"net.ipv6.conf.{pair}{end}.disable_ipv6=1"], check=True)
            subprocess.run(["ip", "link", "set", f"{pair}{end}", "up"], check=True)
    line = f"-i 2@a0 -i 1@b0 --pcap {tmp_path} --dump-packet-data 4 {PROGRAM} -- --grpc-server-addr 127.0.0.1:0"
    frame = bytes(64)  # which lives.p4 sends to port 1, with a header in front
    with open_packet_socket("a1") as sender, open_packet_socket("b1") as receiver, started(*line.split()) as process:
        receiver.settimeout(START_S)
        sender.send(frame)
        arrived = receiver.recv(2000)
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=START_S)
    assert arrived.endswith(frame)
    assert "frame of 64 bytes received on port 2" in log
    assert "00 00 00 00\n" in log
    recorded = {path.name: [bytes(packet) for packet in rdpcap(str(path))] for path in tmp_path.iterdir()}
    assert recorded == {"a0_in.pcap": [frame], "a0_out.pcap": [], "b0_in.pcap": [], "b0_out.pcap": [arrived]}
    assert time.time() > float(rdpcap(str(tmp_path / "a0_in.pcap"))[0].time)


def test_a_full_disk_ends_the_recording_and_not_the_switch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = InterfaceFiles(tmp_path, {1: "a0", 2: "b0"})
    files._out[1].close()
    files._out[1] = io.BufferedWriter(io.FileIO("/dev/full", "w"))
    frame, batch = np.zeros(60, np.uint8), Batch(1)
    batch.append(1, frame.ctypes.data, len(frame))
    for _ in range(2):
        files.received(batch)
        files.sent(*batch.frames())
    files.close()
    assert [record.getMessage() for record in caplog.records] == [
        "--pcap: No space left on device; nothing more is recorded"
    ]
    assert (tmp_path / "a0_in.pcap").stat().st_size == 24 + 16 + len(frame)


def test_a_full_disk_is_named_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "b0_in.pcap").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as full:
        InterfaceFiles(tmp_path, {1: "a0", 2: "b0"})
    assert full.value.filename == str(tmp_path / "b0_in.pcap")


@pytest.mark.parametrize("part", range(5))
def test_an_interrupt_while_it_starts_is_quiet(part: int) -> None:
    """Whenever it comes: while modules are imported, while the program is loaded, or when the switch is there."""
    begin = "import sys; sys.argv[1:] = ['--no-p4']; print(flush=True)"
    code = f"from switchsum_switch.__main__ import main; {begin}; main()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.01 + random.Random(part).random() * part / 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=patience(60))
    assert process.returncode in (0, 130, -signal.SIGINT), errors
    assert "Traceback" not in errors
    assert "KeyboardInterrupt" not in errors
