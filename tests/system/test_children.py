"""The launcher's processes: together from start to end, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import eventually
from switchsum_switch.process import children as launcher
from switchsum_switch.process.children import Children

SLEEP = ["sleep", "100"]


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_all_well_is_zero() -> None:
    with Children() as children:
        workers = [children.start(f"rank {rank}", ["true"]) for rank in range(3)]
        assert children.wait(workers) == (None, 0)


@pytest.mark.parametrize(
    ("command", "code"),
    # The last one is looked for in no folder of PATH: where one may not be read, a missing command ends with 126.
    [(["false"], 1), (python("raise SystemExit(7)"), 7), (["sh", "-c", "kill -9 $$"], 137), (["/no/command"], 127)],
)
def test_the_first_failure_ends_the_job(command: list[str], code: int) -> None:
    with Children() as children:
        workers = [children.start("rank 0", SLEEP), children.start("rank 1", command)]
        failed, seen = children.wait(workers)
        assert (failed, seen) == (workers[1], code)
    assert workers[0].process.poll() == -signal.SIGTERM


def test_workers_that_may_end_end_no_other_and_one_that_ends_well_is_enough() -> None:
    with Children() as children:
        dies = children.start("rank 0", ["false"], may_end=True)
        lives = children.start("rank 1", ["sh", "-c", "sleep 0.3; true"], may_end=True)
        assert children.wait([dies, lives]) == (None, 0)
        assert children.wait([dies]) == (dies, 1)


def test_a_daemon_that_ends_is_a_failure() -> None:
    with Children() as children:
        daemon = children.start("switch", ["true"])
        assert children.wait([children.start("rank 0", SLEEP)]) == (daemon, 0)


def test_a_child_of_another_user_keeps_no_other_from_ending(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    end = os.killpg
    monkeypatch.setattr(launcher, "STOP_S", 0.5)
    with Children() as children:
        ours, foreign = children.start("rank 0", SLEEP), children.start("rank 1", SLEEP, prefix=True)
        number = foreign.process.pid

        def refuse(group: int, signal_: int) -> None:
            if group == number:
                raise PermissionError  # as the kernel does after `sudo`
            end(group, signal_)

        monkeypatch.setattr(os, "killpg", refuse)
    assert ours.process.poll() == -signal.SIGTERM
    assert foreign.process.poll() is None
    assert capsys.readouterr().err == f"switchsum: rank 1 is another user's and goes on: {number}\n"
    end(number, signal.SIGKILL)
    foreign.process.wait()


@pytest.mark.parametrize("command", [["true"], ["false"]])
def test_a_helper_may_end_as_it_likes(command: list[str]) -> None:
    with Children() as children:
        helper = children.start("helper", command, may_end=True)
        helper.process.wait()
        assert children.wait([children.start("rank 0", ["true"])]) == (None, 0)


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with Children() as children:
        children.start("rank 0", ["sh", "-c", f"sleep 100 & echo $! > {pids}.new; mv {pids}.new {pids}; wait"])
        assert eventually(pids.exists)
        grandchild = int(pids.read_text())
        assert not gone(grandchild)
    assert eventually(lambda: gone(grandchild))


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(ready)!r}, 'w'); "
    with Children() as children:
        child = children.start("rank 0", python(code + "time.sleep(100)"))
        assert eventually(ready.exists)
    assert child.process.poll() == -signal.SIGKILL


def test_children_die_with_a_launcher_that_is_killed(tmp_path: Path) -> None:
    scratch = tmp_path / "it's a folder"
    (scratch / "inner").mkdir(parents=True)
    code = (
        "import time\n"
        "from switchsum_switch.process.children import Children\n"
        f"children = Children({str(scratch)!r})\n"
        "print(children.start('rank 0', ['sleep', '100']).process.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    launcher = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    child = int(launcher.stdout.readline())
    assert eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    launcher.stdout.close()
    assert eventually(lambda: gone(child))
    assert eventually(lambda: not scratch.exists())
    assert tmp_path.exists()


def test_output_is_waited_for_as_long_as_it_comes(capfd: pytest.CaptureFixture[str]) -> None:
    lines = "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; echo $i; done"
    with Children() as children:  # the child ends at once; who it leaves behind speaks for longer than silence is borne
        workers = [children.start("rank 0", ["setsid", "--fork", "sh", "-c", lines], prefix=True)]
        children.wait(workers)
    assert len(capfd.readouterr().out.splitlines()) == 9


def test_output_is_prefixed_line_by_line(capfd: pytest.CaptureFixture[str]) -> None:
    with Children() as children:
        workers = [
            children.start(f"rank {rank}", ["sh", "-c", "echo one; echo two >&2; printf three"], prefix=True)
            for rank in range(2)
        ]
        children.wait(workers)
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == ["[rank 0] one", "[rank 0] three", "[rank 1] one", "[rank 1] three"]
    assert sorted(err.splitlines()) == ["[rank 0] two", "[rank 1] two"]
