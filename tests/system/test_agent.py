"""`switchsum agent`: machines that share nothing but a network, over UDP without root and in namespaces with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.daemons import free_udp_port, run, run_here, system
from support.timing import patience
from switchsum.agent.options import choose_link, read_ranks
from switchsum.launch import wires
from switchsum.launch.link_options import MTU
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import MOST_WORKERS
from switchsum_switch.process.children import Children

pytestmark = pytest.mark.timeout(120)

NARROW_MTU = "1000"
"""Frames of 256 lanes are longer."""

SUM = """
import numpy as np, os, switchsum
with switchsum.connect() as comm:
    print(os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"], comm.allreduce(np.full(3, comm.rank + 1, np.int32)))
"""


def both(*commands: list[str], within: tuple[list[str], ...] = ([], [])) -> list[subprocess.CompletedProcess[str]]:
    """Run two commands side by side."""
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(run, *command, within=where) for command, where in zip(commands, within, strict=True)]
        return [each.result() for each in ended]


@pytest.fixture(scope="module")
def udp() -> Iterator[tuple[str, list[str]]]:
    """Yield the UDP port of a switch, and options that lead to its controller."""
    port = free_udp_port()
    with system("--udp", f"127.0.0.1:{port}") as controller:
        yield f"127.0.0.1:{port}", ["--controller", controller]


def create(
    name: str, workers: int, options: list[str], run: Callable[..., subprocess.CompletedProcess[str]] = run_here
) -> None:
    done = run(
        "job", "create", name, "--workers", str(workers), "--slots", "64", "--timeout", str(patience(60)), *options
    )
    assert done.returncode == 0, done.stderr


def test_two_agents_try_a_job_out_over_udp(udp: tuple[str, list[str]]) -> None:
    port, options = udp
    create("try", 2, options)
    agent = ["agent", "--job", "try", "--udp", port, "--size", "0.5", "--count", "3", *options]
    text, data = both([*agent, "--rank", "0"], [*agent, "--rank", "1", "--json"])
    assert text.returncode == data.returncode == 0, text.stderr + data.stderr
    assert "3 x 0.5 MB" in text.stdout
    assert "every sum is right" in text.stdout
    seen = json.loads(data.stdout)
    assert (seen["rank"], seen["world_size"], seen["allreduces"]) == (1, 2, 3)
    assert seen["frames_received"] >= 3 * 0.5e6 / 1024


def test_agents_run_a_command_as_one_or_several_ranks(udp: tuple[str, list[str]]) -> None:
    port, options = udp
    create("command", 3, options)
    agent = ["agent", "--job", "command", "--udp", port, *options]
    command = ["--", sys.executable, "-c", SUM]
    one, two = both([*agent, "--rank", "1", *command], [*agent, "--rank", "0,2", *command])
    assert (one.returncode, one.stdout) == (0, "0 1 [6 6 6]\n"), one.stderr
    assert (two.returncode, sorted(two.stdout.splitlines())) == (
        0,
        ["[rank 0] 0 2 [6 6 6]", "[rank 2] 1 2 [6 6 6]"],
    ), two.stderr


def test_the_exit_code_is_the_commands(udp: tuple[str, list[str]]) -> None:
    port, options = udp
    create("fails", 3, options)
    agent = ["agent", "--job", "fails", "--udp", port, *options]
    assert run(*agent, "--rank", "0", "--", "sh", "-c", "exit 7").returncode == 7
    done = run(*agent, "--rank", "0", "--", "no-such-program")
    assert (done.returncode, done.stderr) == (
        127,
        "switchsum: there is no program 'no-such-program', or it cannot be executed\n",
    )
    done = run(*agent, "--rank", "0-1", "--", "sh", "-c", 'test "$RANK" = 0 || exit 8; sleep 1000')
    assert done.returncode == 8
    assert "rank 1 ended with exit code 8" in done.stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            ["--job", "nobody", "--rank", "0"],
            "there is no job 'nobody': create it with `switchsum job create nobody --workers N",
        ),
        (["--job", "here", "--rank", "2"], "job 'here' has ranks 0 to 1, not 2"),
        (["--job", "here", "--rank", "x"], "ranks are written like 2, 0-3 or 0,4-7"),
        (["--job", "here", "--rank", "0", "--udp", "h", "--link", "shm:x"], "give only one of"),
        (["--job", "here", "--rank", "0", "--interface", "nowhere9"], "interface nowhere9: no such interface"),
        (["--job", "here", "--rank", "0", "--udp", "no.such.host.invalid"], "cannot reach a switch at"),
        (["--job", "here", "--rank", "\u00b2"], "ranks are written like 2, 0-3 or 0,4-7"),
        (["--job", "here", "--rank", "0", "--size", "-1"], "a trial takes at least one allreduce"),
        (["--job", "here", "--rank", "0-1", "--size", "nan"], "a trial takes at least one allreduce"),
    ],
)
def test_what_is_wrong_is_one_line(udp: tuple[str, list[str]], options: list[str], text: str) -> None:
    _, where = udp
    if "here" not in run_here("job", "list", *where).stdout:
        create("here", 2, where)
    done = run_here("agent", *where, *options)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("switchsum: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_options_stand_for_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SWITCHSUM_LINK", raising=False)
    assert choose_link("eth0", None, None, "c:1") == "packet:eth0"
    assert choose_link(None, "h", None, "c:1") == "udp:h"
    assert choose_link(None, None, "shm:x", "c:1") == "shm:x"
    assert choose_link(None, None, None, "c:1") == "udp:c"
    with pytest.raises(UsageError, match="the link to the switch is missing"):
        choose_link(None, None, None, "unix:/run/c")
    monkeypatch.setenv("SWITCHSUM_LINK", "scapy:eth1")
    assert choose_link(None, None, None, "c:1") == "scapy:eth1"
    assert choose_link("eth0", None, None, "c:1") == "packet:eth0"


@pytest.mark.parametrize(("text", "ranks"), [("3", (3,)), ("0-3", (0, 1, 2, 3)), ("0,4-5", (0, 4, 5))])
def test_ranks_are_read(text: str, ranks: tuple[int, ...]) -> None:
    assert read_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "-1", "1-", "3-2", "1,1", str(MOST_WORKERS), "a", "0-99999999999"])
def test_other_ranks_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_ranks(text)


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_machines_with_interfaces_are_a_job_as_the_page_says() -> None:
    # This namespace is the machine with the switch, 10.0.0.100 its kernel's own address; each worker has another one.
    with Children() as children:
        laid = [wires.lay(children, rank, mtu=MTU, rate=None) for rank in range(2)]
        wires.run(["ip", "address", "add", "10.0.0.100/32", "dev", "lo"])
        for wire in laid:
            wires.run(["ip", "route", "add", f"10.0.0.{wire.port}/32", "dev", wire.interface])
        interfaces = [word for wire in laid for word in ("--interface", f"{wire.port}@{wire.interface}")]
        with system(*interfaces, listen="10.0.0.100:9560"):
            options = ["--controller", "10.0.0.100:9560"]
            create("wires", 2, options, run)  # gRPC's threads here are in the first namespace
            agent = ["agent", "--job", "wires", "--interface", wires.WORKER_INTERFACE, "--size", "0.5", *options]
            commands = [[*agent, "--rank", str(rank)] for rank in range(2)]
            ended = both(*commands, within=tuple(wire.inside([]) for wire in laid))
    for done in ended:
        assert done.returncode == 0, done.stderr
        assert "every sum is right" in done.stdout


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_frames_that_do_not_fit_a_link_are_refused_when_a_member_joins() -> None:
    def join(link: str, place: str) -> str:
        done = run(*agent, link, place, within=wire.inside([]))
        said = [line for line in done.stderr.splitlines() if "It is tried for up to" not in line]
        assert len(said) == done.returncode, done.stderr
        return done.stderr

    options = ["--controller", "10.0.0.100:9560"]
    agent = ["agent", "--job", "narrow", "--rank", "0", "--size", "0.1", *options]
    with Children() as children:
        wire = wires.lay(children, 0, mtu=MTU, rate=None)
        narrow_worker = wire.inside(["ip", "link", "set", wires.WORKER_INTERFACE, "mtu", NARROW_MTU])
        wires.run(["ip", "address", "add", "10.0.0.100/24", "dev", wire.interface])
        # A switch for each link: one with ports of both kinds compiles a loop that nothing else here needs.
        with system("--interface", f"1@{wire.interface}", listen="10.0.0.100:9560"):
            create("narrow", 1, options, run)
            assert join("--interface", wires.WORKER_INTERFACE) == ""
            # The switch's end is too narrow: nothing on the worker's side knows.
            wires.run(["ip", "link", "set", wire.interface, "mtu", NARROW_MTU])
            assert "frames of 1114 bytes get lost" in join("--interface", wires.WORKER_INTERFACE)
            wires.run(narrow_worker)
            assert f"`ip link set {wires.WORKER_INTERFACE} mtu 1100`" in join("--interface", wires.WORKER_INTERFACE)
        wires.run([*narrow_worker[:-1], str(MTU)])
        with system("--udp", "10.0.0.100:21333", listen="10.0.0.100:9560"):
            create("narrow", 1, options, run)
            assert "frames of 1114 bytes get lost" in join("--udp", "10.0.0.100")
            wires.run(narrow_worker)
            assert f"takes IPv4 packets of {NARROW_MTU} bytes, not 1100" in join("--udp", "10.0.0.100")
