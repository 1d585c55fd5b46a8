"""Jobs that wait for orders: they answer in their turn, and end with the block."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from switchsum_lab.sweeps.warm_jobs import Session

RANK = """
import socket, sys
orders = socket.socket(socket.AF_UNIX)
orders.connect(sys.argv[1])
lines = orders.makefile("rw")
for line in lines:
    if line == "13\\n":
        raise SystemExit(3)
    lines.write('{"seconds": %s}\\n' % line.strip())
    lines.flush()
"""


def ranks(path: Path) -> list[str]:
    python = f"{sys.executable} -S -c '{RANK.replace(chr(39), chr(34) * 3)}' {path}"
    return ["sh", "-c", f"{python} & one=$!; {python}; two=$?; wait $one && exit $two"]


def test_a_job_answers_when_it_is_its_turn_and_ends_with_the_block() -> None:
    with Session(ranks, 2) as session:
        for order in (4, 8):
            assert session.ask(str(order)) == [{"seconds": order}] * 2
    assert session.process.returncode == 0


def test_a_job_that_ends_before_its_turn_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError), Session(ranks, 2) as session:
        session.ask("13")
    with pytest.raises(subprocess.CalledProcessError), Session(lambda _: ["false"], 2) as session:
        session.ask("4")


def test_a_job_whose_rank_has_ended_may_say_what_happened(tmp_path: Path) -> None:
    def job(path: Path) -> list[str]:
        return [*ranks(path)[:2], f"{ranks(path)[2]}; sleep 0.5; echo the reason"]

    log = tmp_path / "log.txt"
    with log.open("w") as file, pytest.raises(subprocess.CalledProcessError), Session(job, 2, output=file) as session:
        session.ask("13")
    assert log.read_text() == "the reason\n"


def test_a_rank_that_ended_before_its_turn_is_an_error() -> None:
    with Session(ranks, 2) as session:
        session.ask("4")
        for rank in session._ranks:
            rank.shutdown(socket.SHUT_WR)  # so the ranks end
        session.process.wait()
        with pytest.raises(subprocess.CalledProcessError):
            session.ask("4")
