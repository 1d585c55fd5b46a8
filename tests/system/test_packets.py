"""`switchsum send` and `switchsum capture`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.daemons import SWITCHSUM, free_udp_port, run_here, system
from support.timing import patience

pytestmark = pytest.mark.timeout(120)
WAIT_S = f"{patience(2):.0f}"


@pytest.fixture(scope="module")
def where() -> Iterator[list[str]]:
    """Yield the options that lead to a switch on UDP, 128 lanes, with job `one` of one worker and `two` of two."""
    port = free_udp_port()
    with system("--udp", f"127.0.0.1:{port}", lanes=128) as controller:
        for name, workers in (("one", "1"), ("two", "2")):
            made = run_here(
                "job",
                "create",
                name,
                "-n",
                workers,
                "--slots",
                "8",
                "--timeout",
                str(patience(60)),
                "--controller",
                controller,
            )
            assert made.returncode == 0, made.stderr
        yield ["--controller", controller, "--link", f"udp:127.0.0.1:{port}", "--wait", WAIT_S]


def test_a_member_gets_the_sum_and_a_repeat_gets_it_again(where: list[str], tmp_path: Path) -> None:
    saved = tmp_path / "packets.pcap"
    done = run_here(
        "send",
        "--job",
        "one",
        "--values",
        "1,-2,3",
        "slot=5",
        "next_block=7",
        "--times",
        "2",
        "--pcap",
        str(saved),
        *where,
    )
    assert done.returncode == 0, done.stderr
    sent, result, repeat, again = done.stdout.splitlines()
    for line in (sent, repeat):
        assert "contribution job" in line
    for line in (result, again):
        assert "result job" in line
        assert "slot 5" in line
        assert "next 7 [payload] int32 1, -2, 3, 1, -2, 3, ..." in line
    read = run_here("capture", "--read", str(saved))
    assert [line.split("  ", 2)[-1] for line in read.stdout.splitlines()] == [
        line.split("  ", 2)[-1] for line in done.stdout.splitlines()
    ]
    assert len(run_here("capture", "--read", str(saved), "--count", "1").stdout.splitlines()) == 1


@pytest.mark.slow
def test_the_first_of_two_waits_and_is_told_who_is_there(where: list[str]) -> None:
    commands = [
        ["send", "--job", "two", "--rank", "0", "--values", "5", "format=int8", "--times", "2", *where],
        ["send", "--job", "two", "--rank", "1", "kind=9", *where],
    ]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(
            lambda command: subprocess.run(
                [*SWITCHSUM, *command], capture_output=True, text=True, timeout=patience(100), check=False
            ),
            commands,
        )
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert f"no answer within {WAIT_S} s" in first.stdout
    assert "held job" in first.stdout
    assert "from 1" in first.stdout
    assert "int8 5, 5, 5" in first.stdout
    assert "kind" not in second.stdout.splitlines()[1]  # the switch drops what it does not know


def test_a_stranger_is_refused_and_every_field_is_shown(where: list[str]) -> None:
    done = run_here(
        "send",
        "--lanes",
        "128",
        "--values",
        "-7",
        "job=0x303",
        "flags=payload+repeat+select",
        "bitmap=0x80020001",
        "--verbose",
        *where,
    )
    lines = done.stdout.splitlines()
    assert "lanes for all but rank 1 [payload repeat select] int32 -7, -7" in lines[0]
    assert "    flags          145 (payload+repeat+select)" in lines
    assert "    job            771" in lines
    assert sum(line.startswith("    lane ") for line in lines) == 16
    assert "reject (not_admitted)" in done.stdout
    assert "    reason         8 (not_admitted)" in lines


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["send", "slot"], "a field is NAME=VALUE"),
        (["send", "number_of_slots=3"], "the names are version, kind"),
        (["send", "job=65536"], "cannot be written"),
        (["send", "kind=greeting"], "there is no kind 'greeting'; there are contribution, result"),
        (["send", "--values", "1,x"], "values must be numbers"),
        (["send", "--values", "300", "format=int8"], "cannot be written"),
        (["send", "--lanes", "7"], "--lanes must be 128 or 256 or 2048"),
        (["send", "--job", "nobody"], "there is no job 'nobody'"),
        (["send", "--link", "packet:nowhere9"], "interface nowhere9: no such interface"),
        (["capture"], "give either --interface eth0"),
        (["capture", "--interface", "nowhere9"], "interface nowhere9: no such interface"),
        (["capture", "--read", "/nonexistent/frames"], "No such file"),
        (["capture", "--read", __file__], "Not a supported capture file"),
    ],
)
def test_what_is_wrong_is_one_line(where: list[str], arguments: list[str], text: str) -> None:
    options = where if arguments[0] == "send" and "--link" not in arguments else []
    done = run_here(*arguments, *options)
    assert done.returncode in (1, 2)
    assert done.stderr.startswith("switchsum: ")
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.root
def test_packets_are_seen_as_they_pass(where: list[str]) -> None:
    command = [*SWITCHSUM, "capture", "--interface", "lo", "--count", "2", "--seconds", "50"]
    command += ["--port", where[where.index("--link") + 1].rpartition(":")[2]]
    watcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        while watcher.poll() is None:
            run_here("send", "--lanes", "128", "slot=3", "--wait", "0.3", *where[:4])
        assert watcher.stdout is not None
        # It may begin to watch between a contribution and the answer.
        sent, answer = sorted(watcher.stdout.read().splitlines(), key=lambda line: "reject" in line)
    finally:
        watcher.kill()
        watcher.communicate()
    assert "contribution job 0.0 rank 0 slot 3" in sent
    assert "reject (not_admitted)" in answer


def test_other_commands_do_without_scapy() -> None:
    code = "import sys, switchsum.cli; sys.exit('scapy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=patience(50), check=False).returncode == 0


def test_send_where_no_switch_answers_says_so_with_exit_code_1() -> None:
    done = run_here("send", "--link", f"udp:127.0.0.1:{free_udp_port()}", "--wait", "0.3")
    assert done.returncode == 1, done.stdout
    assert "nothing answers at udp:127.0.0.1:" in done.stderr
