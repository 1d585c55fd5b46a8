"""What a user meets first: something missing, taken or forbidden.  One line with the mending command, nothing left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import run_here
from support.timing import eventually, patience
from switchsum.cli.app import look_where_administrators_do
from switchsum.doctor import Verdict
from switchsum.doctor.machine import check_bmv2, check_namespaces, check_ports, left_behind
from switchsum.launch.wires import ENTERED
from switchsum_protocol.errors import LocalError
from switchsum_switch.process.children import OURSELVES, Children
from switchsum_switch.process.ready import await_ready

from .conftest import NAMESPACES

SWITCHES = {
    "too old": ("case $1 in --help) echo --grpc-server-addr;; *) echo 2.18;; esac", "reads BMv2 JSON 2.18"),
    "without gRPC": ("echo 2.23", "has no P4Runtime server"),
    "broken": ("echo 'libpi.so.0: cannot open shared object file' >&2; exit 127", "cannot open shared object file"),
}


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def one_line(*arguments: str) -> str:
    """Run a command that must refuse; return what it says."""
    done = run_here(*arguments)
    assert done.returncode in (1, 2), done.stdout
    said = [
        line for line in done.stderr.splitlines() if "compil" not in line
    ]  # a machine may do that for the first time
    assert len(said) == 1, done.stderr
    assert said[0].startswith("switchsum: ")
    return said[0]


@pytest.mark.parametrize("fault", SWITCHES)
def test_a_bmv2_that_will_not_do(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, found = SWITCHES[fault]
    script(tmp_path / "simple_switch_grpc", text)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = check_bmv2()
    assert finding.state is Verdict.LIMITED
    assert found in finding.found
    assert "p4lang" in finding.remedy


def test_a_bmv2_that_is_missing_or_only_there_without_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert check_bmv2().found == "simple_switch_grpc is not on PATH"
    script(tmp_path / "simple_switch", "echo 1.15.0")
    finding = check_bmv2()
    assert finding.state is Verdict.MISSING
    assert "simple_switch has no P4Runtime" in finding.found


def test_a_folder_named_like_us_where_the_user_stands(tmp_path: Path) -> None:
    """The clone itself, for who works beside it: Python takes it for a package without __init__.py."""
    (tmp_path / "switchsum").mkdir()
    command = [*OURSELVES, "run", "-n", "1", "--", "true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(50), check=False)
    said = [line for line in done.stderr.splitlines() if "waiting for" not in line]  # as it does on a busy machine
    assert (done.returncode, said) == (0, [])


def test_tools_of_administrators_are_found_without_their_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/sbin")
    look_where_administrators_do()
    assert os.environ["PATH"] == "/usr/bin:/sbin:/usr/sbin"


def test_a_daemon_that_dies_at_once_is_told_from_a_slow_one() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), Children() as children:
        script = f"import os, time; os.close({writing}); time.sleep(0.3); os._exit(3)"
        child = children.start("one", [sys.executable, "-c", script], pass_fds=[writing])
        os.close(writing)
        with pytest.raises(LocalError, match="the one ended with exit code 3"):
            await_ready(child, reading, patience(30))


def test_a_good_one_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "case $1 in --help) echo --grpc-server-addr;; --version) echo 1.15.0-fd5b1f0;; *) echo 2.23;; esac"
    script(tmp_path / "simple_switch_grpc", text)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = check_bmv2()
    assert (finding.state, finding.found) == (Verdict.OK, f"1.15.0-fd5b1f0 ({tmp_path}/simple_switch_grpc)")


@pytest.mark.root
@NAMESPACES
@pytest.mark.parametrize("fault", ["too old", "without gRPC"])
def test_run_says_what_is_wrong_with_its_bmv2(fault: str, tmp_path: Path) -> None:
    switch = script(tmp_path / "simple_switch_grpc", SWITCHES[fault][0])
    command = [sys.executable, "-m", "switchsum", "run", "-n", "1", "--links", "veth", "--switch", str(switch)]
    done = subprocess.run([*command, "--", "true"], capture_output=True, text=True, timeout=patience(50), check=False)
    assert done.returncode == 1
    assert SWITCHES[fault][1] in done.stderr
    assert done.stderr.count("\n") == 1
    assert eventually(lambda: not left_behind(Path("/proc")))


@pytest.fixture
def busy() -> Iterator[int]:
    """Yield a port of the loopback that is taken, for TCP and UDP."""
    with socket.socket() as stream, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        stream.bind(("127.0.0.1", 0))
        stream.listen()
        port = int(stream.getsockname()[1])
        datagram.bind(("127.0.0.1", port))
        yield port


def test_a_port_that_is_taken(busy: int) -> None:
    for command in ("switch", "controller"):
        said = one_line(command, "--listen", f"127.0.0.1:{busy}")
        assert "Address already in use" in said
        assert f"`ss -lntp sport = :{busy}`" in said
    said = one_line("switch", "--listen", "127.0.0.1:0", "--udp", f"127.0.0.1:{busy}")
    assert f"`ss -lnup sport = :{busy}`" in said
    finding = check_ports({("tcp", busy): "a", ("udp", busy): "b"})
    assert finding.state is Verdict.LIMITED
    assert f"{busy}/tcp in use (a), {busy}/udp in use (b)" in finding.found
    assert f"sport = :{busy}" in finding.remedy
    assert check_ports({}).state is Verdict.OK


def test_an_address_of_another_machine() -> None:
    assert "`ip -brief address`" in one_line("controller", "--listen", "203.0.113.1:9560")


def test_an_interface_that_does_not_exist() -> None:
    said = one_line("switch", "--listen", "127.0.0.1:0", "--interface", "1@nowhere9")
    assert "interface nowhere9: no such interface" in said
    assert "`ip -brief link`" in said


def test_a_port_of_two_interfaces() -> None:
    said = one_line("switch", "--listen", "127.0.0.1:0", "--interface", "1@eth7", "--interface", "1@eth8")
    assert "port 1 is given to two interfaces, eth7 and eth8" in said


def test_a_host_that_is_no_text() -> None:
    assert "no such host" in one_line("switch", "--listen", "127.0.0.1:0", "--udp", "\udcff:5000")


@pytest.mark.root
def test_no_right_to_raw_sockets() -> None:
    # Root without the capability: what an ordinary user has, but with this environment's files in reach.
    without = ["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", sys.executable, "-m", "switchsum"]
    for arguments, cure in (
        (["switch", "--listen", "127.0.0.1:0", "--interface", "1@lo"], "which needs neither"),
        (["capture", "--interface", "lo"], "sudo switchsum capture"),
    ):
        done = subprocess.run([*without, *arguments], capture_output=True, text=True, timeout=patience(50), check=False)
        assert done.returncode == 1
        assert "needs root or CAP_NET_RAW" in done.stderr
        assert cure in done.stderr
        assert done.stderr.count("\n") == 1
    done = subprocess.run(
        [*without, "doctor", "--json"], capture_output=True, text=True, timeout=patience(50), check=False
    )
    assert '"found": "[Errno 1] Operation not permitted"' in done.stdout


def test_what_a_killed_launcher_left_in_its_namespaces_is_found() -> None:
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, ENTERED: "1"})
    try:
        # Its parent is this process, which is no launcher, so nobody will ever end it.
        assert eventually(lambda: process.pid in left_behind(Path("/proc")))
        finding = check_namespaces()
        assert finding.state is Verdict.LIMITED
        assert str(process.pid) in finding.remedy
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.pid not in left_behind(Path("/proc"))


def test_what_has_a_launcher_is_not_left_over() -> None:
    launcher = [sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])", "switchsum", "run"]
    process = subprocess.Popen(launcher, env={**os.environ, ENTERED: "1"}, process_group=0)
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert eventually(lambda: bool(children.read_text().split()))
        child = int(children.read_text())
        assert eventually(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep"))
        assert not {process.pid, child} & set(left_behind(Path("/proc")))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
