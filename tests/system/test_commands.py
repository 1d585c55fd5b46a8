"""The command line against processes of its own: one switch and one controller for all tests of this file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from support.daemons import run_here
from support.timing import patience
from switchsum.cli.observe import rank_record, rank_row
from switchsum.cli.output import LEAST_WATCH_S, repeat
from switchsum.cli.remote import persist
from switchsum_protocol import rpc
from switchsum_protocol.errors import ControllerUnreachable, UsageError
from switchsum_protocol.frame import Reason

pytestmark = pytest.mark.timeout(120)

START_S = patience(30.0)
SWITCHSUM = [sys.executable, "-m", "switchsum"]


def spawn(arguments: list[str], waiting_for: Path) -> subprocess.Popen[str]:
    """Start a command and wait until its socket is there."""
    process = subprocess.Popen([*SWITCHSUM, *arguments], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + START_S
    while not waiting_for.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            _, errors = process.communicate()
            raise RuntimeError(errors)
        time.sleep(0.05)
    return process


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Interrupt a command as Ctrl-C does; return its exit code and what it said."""
    process.send_signal(signal.SIGINT)
    try:
        _, errors = process.communicate(timeout=START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, errors


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a controller whose switch is up."""
    scratch = tmp_path_factory.mktemp("commands")
    p4runtime, listen = f"unix:{scratch}/p4runtime", f"unix:{scratch}/controller"
    switch = spawn(["switch", "--listen", p4runtime, "--engine", "interpreter"], scratch / "p4runtime")
    daemon = spawn(
        ["controller", "--switch", p4runtime, "--listen", listen, "--lanes", "128", "--station", "02:00:00:00:00:09@9"],
        scratch / "controller",
    )
    yield listen
    assert end(daemon)[0] == 0
    assert end(switch)[0] == 0


def run(controller: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command that asks this controller."""
    with patch.dict(os.environ, {"SWITCHSUM_CONTROLLER": controller}):
        return run_here(*arguments)


def ask(controller: str, *arguments: str) -> Any:
    """Run a command that must succeed with --json; return what it prints."""
    done = run(controller, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_jobs_life_at_the_command_line(controller: str) -> None:
    [created] = ask(controller, "job", "create", "digits", "-n", "4", "--slots", "32", "--timeout", "2.5")
    assert (created["state"], created["workers"], created["slot_count"], created["timeout_s"]) == (
        "waiting",
        4,
        32,
        2.5,
    )
    assert ask(controller, "job", "show", "digits") == created
    assert created["lanes_per_frame"] == 128
    assert ask(controller, "job", "list") == [created]
    [resized] = ask(controller, "job", "resize", "digits", "--workers", "2")
    assert (resized["workers"], resized["epoch"]) == (2, (created["epoch"] + 1) & 0xFFFF)
    table = run(controller, "job", "show", "digits").stdout
    assert "0 to 31" in table
    assert table.count("expected") == 3  # once in the job's line, once for each member
    assert run(controller, "job", "remove", "digits").stdout == ""
    assert ask(controller, "job", "list") == []
    assert run(controller, "job", "list").stdout == "jobs: none\n"


def test_creating_a_job_waits_for_what_the_lines_before_it_start(tmp_path: Path) -> None:
    p4runtime, listen = f"unix:{tmp_path}/p4runtime", f"unix:{tmp_path}/controller"
    wait_s = round(patience(10))
    create = [sys.executable, "-m", "switchsum", "job", "create", "early", "-n", "1", "--controller", listen]
    create += ["--wait", str(wait_s)]
    with subprocess.Popen(create, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as created:
        assert created.stderr is not None
        assert created.stderr.readline() == f"switchsum: no controller yet, waiting {wait_s} s (--wait) for it\n"
        daemons = [spawn(["controller", "--switch", p4runtime, "--listen", listen], tmp_path / "controller")]
        try:
            daemons.append(spawn(["switch", "--listen", p4runtime, "--engine", "interpreter"], tmp_path / "p4runtime"))
            output, errors = created.communicate(timeout=START_S)
        finally:
            for daemon in daemons:
                end(daemon)
    assert created.returncode == 0, errors
    assert "early" in output


def test_an_interrupt_before_a_command_runs_is_no_traceback() -> None:
    with patch.object(sys.modules["switchsum.cli.app"], "application", side_effect=KeyboardInterrupt):
        assert run_here("run").returncode == 130


def test_who_does_not_come_is_missed() -> None:
    def call() -> None:
        raise ControllerUnreachable("no controller answers")

    with pytest.raises(ControllerUnreachable):
        persist(call, patience_s=0.3)


def test_names_are_text_and_not_markup(controller: str) -> None:
    ask(controller, "job", "create", "[bold]x[/]", "-n", "1", "--slots", "1")
    assert "[bold]x[/]" in run(controller, "job", "list").stdout
    assert run(controller, "job", "remove", "[bold]x[/]").returncode == 0


def test_the_switch_is_looked_into(controller: str) -> None:
    ask(controller, "job", "create", "a", "-n", "1", "--slots", "3")
    try:
        cells = ask(controller, "slots", "a")
        assert [(cell["slot"], cell["version"], cell["seen"]) for cell in cells] == [
            (slot, version, 0) for slot in range(3) for version in (0, 1)
        ]
        assert len(ask(controller, "slots", "--limit", "1")) == 2
        assert run(controller, "slots").stdout == "slots: none\n3 slots were never used\n"  # no page of dashes
        assert run(controller, "slots", "--watch", "0").returncode == 2
    finally:
        run(controller, "job", "remove", "a")
    assert [counter["reason"] for counter in ask(controller, "stats")] == [reason.name.lower() for reason in Reason]
    assert run(controller, "stats").stdout == "counters: none\n"
    assert "not_admitted" in run(controller, "stats", "--all").stdout
    assert run(controller, "stats", "--ranks").stdout == "ranks: none\n"
    assert ask(controller, "stats", "--ranks") == []


def test_watching_shows_again_until_an_interrupt() -> None:
    shown: list[int] = []

    def show() -> None:
        shown.append(len(shown))
        if len(shown) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        repeat(show, LEAST_WATCH_S)
    assert shown == [0, 1, 2]
    repeat(lambda: shown.append(3), None)
    assert shown == [0, 1, 2, 3]
    for seconds in (float("nan"), float("inf"), 1e300, 0.0, -1.0):
        with pytest.raises(UsageError, match=r"--watch takes 0\.1 to 100,000,000 seconds, not"):
            repeat(show, seconds)


def test_a_ranks_row_says_what_became_of_its_contributions() -> None:
    reasons = [rpc.ReasonCount(reason="contributed", packets=4), rpc.ReasonCount(reason="held", packets=0)]
    reasons.append(rpc.ReasonCount(reason="repeated", packets=2))
    member = rpc.MemberCounters(job="a", rank=1, contributions=6, contribution_bytes=600, results=4, reasons=reasons)
    assert list(rank_row(member).values()) == ["a", 1, 6, 600, 4, "4 contributed, 2 repeated"]
    assert rank_record(member)["reasons"] == {"contributed": 4, "held": 0, "repeated": 2}


def test_ports_and_their_loss(controller: str) -> None:
    assert [port["port"] for port in ask(controller, "ports")] == [9]
    changed = ask(controller, "drop-probability", "0.25", "--egress", "0.5", "--port", "3")
    assert changed[0] == {"port": 3, "members": [], "ingress_loss": 0.25, "egress_loss": 0.5}
    assert {"25 %", "50 %", "0 %"} <= set(re.findall(r"[0-9.]+ %", run(controller, "ports").stdout))
    assert [port["port"] for port in ask(controller, "drop-probability", "0")] == [9]


def test_loss_that_is_set_is_read_back_where_nobody_is(controller: str) -> None:
    nobody: dict[str, Any] = {"port": None, "members": [], "ingress_loss": 0.01, "egress_loss": 0.0001}
    assert nobody in ask(controller, "drop-probability", "0.01", "--egress", "0.0001")
    assert nobody in ask(controller, "ports")
    text = run(controller, "ports").stdout
    assert "all with members" in text
    assert {"1 %", "0.01 %"} <= set(re.findall(r"[0-9.]+ %", text))
    assert [port["port"] for port in ask(controller, "drop-probability", "0")] == [9]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["job", "show", "nobody"], 1, "switchsum: there is no job 'nobody'"),
        (
            ["job", "create", "a", "-n", "33"],
            2,
            "switchsum: a job over this controller's switches has 1 to 32",
        ),
        (
            ["job", "create", "a", "-n", "1", "--timeout", "nan", "--controller", "127.0.0.1:1"],
            2,
            "switchsum: a time-out",
        ),
        (
            ["job", "create", "a", "-n", "1", "--wait", "nan", "--controller", "127.0.0.1:1"],
            2,
            "switchsum: --wait takes",
        ),
        (["job", "create", "a", "-n", "1", "--slots", "2000"], 2, "switchsum: a job has 1 to 1024 slots, not 2000"),
        (["drop-probability", "2"], 2, "switchsum: a probability is between 0 and 1, not 2.0"),
        (["drop-probability"], 2, "switchsum: the probability is missing"),
        (["controller", "--lanes", "77"], 2, "switchsum: --lanes must be 128, 256, 2048 or auto, not 77"),
        (["controller", "--mac", "1:2"], 2, "switchsum: not an Ethernet address: '1:2'"),
        (["controller", "--ip", "10.0.0"], 2, "switchsum: not an IPv4 address: '10.0.0'"),
        (["controller", "--station", "02:00:00:00:00:01"], 2, "switchsum: a station is MAC@PORT"),
        (["controller", "--listen", "256.1.1.1:x"], 2, "switchsum: an address is host:port"),
        (["controller", "--listen", "256.1.1.1:1"], 2, "switchsum: cannot listen at"),
        (["controller", "--listen", "127.0.0.1:70000"], 2, "switchsum: an address is host:port"),
        (["controller", "--station", "02:00:00:00:00:01@511"], 2, "switchsum: a station is MAC@PORT with a port"),
        (
            ["controller", "--station", "ff:ff:ff:ff:ff:ff@1"],
            2,
            "switchsum: ff:ff:ff:ff:ff:ff is a multicast address",
        ),
        (["controller", "--switch", "nonsense"], 2, "switchsum: an address is host:port, [IPv6]:port or unix:path"),
        (["top", "--interval", "nan"], 2, "switchsum: --interval takes 0.2 to 100,000,000 seconds, not nan"),
        (["send", "--wait", "inf"], 2, "switchsum: --wait takes 0 to 100,000,000 seconds, not inf"),
        (["capture", "-i", "lo", "--seconds", "-1"], 2, "switchsum: --seconds takes 0 to 100,000,000 seconds, not -1"),
        (["switch", "--listen", "::1:9559"], 2, "switchsum: an address is host:port, [IPv6]:port"),
        (["switch", "--udp", "127.0.0.1:70000"], 2, "switchsum: an address is HOST:PORT with a port of 0 to 65535"),
        (["switch", "--udp", "[::1]:21333"], 2, "switchsum: an address is HOST:PORT with an IPv4 host"),
        (["switch", "--interface", "512@lo"], 2, "switchsum: an interface is PORT@INTERFACE with a port of 0 to 510"),
        (["run", "--switch", "nonsense", "--", "true"], 2, "switchsum: --switch must be embedded, bmv2"),
        (["job", "list", "--controller", "127.0.0.1:70000"], 2, "switchsum: an address is host:port"),
        (
            ["job", "create", "a", "-n", "4097", "--controller", "127.0.0.1:1"],
            2,
            "switchsum: a job has 1 to 4096 workers",
        ),
        (
            ["job", "list", "--controller", "127.0.0.1:1"],
            1,
            # The end of the line: what gRPC says in raw terms does not follow.
            "switchsum: no controller answers at 127.0.0.1:1; `switchsum controller` starts one, or "
            "SWITCHSUM_CONTROLLER says where it is\n",
        ),
    ],
)
def test_errors_are_one_line_and_an_exit_code(controller: str, arguments: list[str], code: int, text: str) -> None:
    done = run(controller, *arguments)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith(text)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["capture", "--interface", "lo", "--port", "65536"],
        ["controller", "--device-id", "-1"],
        ["controller", "--flood-port", "511"],
        ["controller", "--growth-bytes", "-1"],
        ["controller", "--growth-bytes", "65536"],
        ["controller", "--mtu", "65536"],
        ["controller", "--port-frames", "0"],
        ["shell", "--device-id", "-1"],
        ["slots", "--limit", "0"],
        ["switch", "--device-id", "18446744073709551616"],
        ["tls", "certificates", "--days", "36501"],
        ["topology", "discover", "--fleet", "x", "--device-id", "-1"],
    ],
)
def test_numbers_that_cannot_be_are_refused_by_name(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(f"unix:{tmp_path}/nowhere", *arguments)
    assert (done.returncode, f"Invalid value for '{arguments[-2]}'" in done.stderr) == (2, True), done.stderr
    assert not list(tmp_path.iterdir())


def test_the_console_script_says_the_same(controller: str) -> None:
    command = [*SWITCHSUM, "job", "show", "nobody", "--controller", controller]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "switchsum: there is no job 'nobody' (switchsum job list)\n"


def test_a_controller_waits_for_its_switch_and_can_be_interrupted(tmp_path: Path) -> None:
    daemon = spawn(
        ["controller", "--switch", f"unix:{tmp_path}/nowhere", "--listen", f"unix:{tmp_path}/controller"],
        tmp_path / "controller",
    )
    code, errors = end(daemon)
    assert code == 0
    assert "Traceback" not in errors


def test_the_shell_is_started_or_says_how_to_get_it(controller: str, tmp_path: Path) -> None:
    from switchsum.doctor.python import runs_here

    if runs_here():
        pytest.skip("p4runtime-shell is in this environment")
    empty = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(
        [*SWITCHSUM, "shell"], env=empty, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "pip install p4runtime-shell" in done.stderr

    # A stand-in for the environment of its own that `doctor` tells people to make: it prints what it is started with.
    home = tmp_path / "switchsum" / "shell"
    (home / "lib/python3/site-packages/p4runtime_sh").mkdir(parents=True)
    (home / "lib/python3/site-packages/p4runtime_sh/__main__.py").touch()
    (home / "bin").mkdir()
    (home / "bin/python").write_text('#!/bin/sh\necho "$@"\n')
    (home / "bin/python").chmod(0o755)
    done = subprocess.run(
        [*SWITCHSUM, "shell", "--controller", controller, "--", "--verbose"],
        env=empty,
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    p4runtime = controller.replace("/controller", "/p4runtime")
    # p4runtime-shell's own election id would oust the controller, and end its jobs.
    expected = f"-m p4runtime_sh --grpc-addr {p4runtime} --device-id 0 --election-id 0,1 --verbose\n"
    assert done.stdout == expected, done.stderr


def test_a_switch_that_cannot_start_leaves_signals_as_they_were(controller: str) -> None:
    done = run(controller, "switch", "--listen", "127.0.0.1:0", "--interface", "1@there-is-none")
    assert done.returncode == 1
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT, signal.SIGTERM}
