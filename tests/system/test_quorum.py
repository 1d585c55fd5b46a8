"""Operations that go on without some ranks: processes are stopped and killed, and the controller in between."""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.daemons import run_here
from support.parts import JOB, START_S, WORKERS, Parts
from support.timing import eventually

from .conftest import BMV2, SHM, TREE, UDP, VETH, Run, Switch

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.mark.parametrize("standby", [False, True], ids=["restarted", "standby"])
def test_a_rank_stops_the_controller_is_killed_and_another_rank_dies(tmp_path: Path, standby: bool) -> None:
    with ExitStack() as stack:
        parts = Parts(stack, tmp_path, size=4)
        _, controller, workers = parts.start("quorum.py")

        def left_out(rank: int) -> int:
            return next((count for of, count in parts.show().left_out if of == rank), 0)

        def between_operations(rank: int, asked: signal.Signals) -> None:
            wish = parts.stop_file.with_name(f"{asked.name}-{rank}")
            wish.touch()
            assert eventually(lambda: not wish.exists(), 60)

        def go_on(more: int = 3) -> None:
            before = parts.show().agreed
            assert eventually(lambda: parts.show().agreed >= before + more, 60)

        go_on()
        between_operations(3, signal.SIGSTOP)
        go_on()
        if standby:
            parts.standby()
        controller.kill()
        controller.wait()
        if not standby:
            parts.controller()
        go_on()
        assert left_out(3) >= 4
        workers[3].send_signal(signal.SIGCONT)
        assert eventually(lambda: parts.show().agreed > 0 and not parts.show().held_up, 10)
        go_on()
        assert "rank 3" in run_here("explain", JOB, "--controller", f"unix:{tmp_path}/controller").stdout
        between_operations(1, signal.SIGKILL)
        go_on()
        assert left_out(1) >= 1
        parts.stop_file.touch()
        said = [workers[rank].communicate(timeout=START_S)[0] for rank in (0, 2, 3)]
        last_lines = {output.splitlines()[-1] for output in said}
        assert len(last_lines) == 1, said
        assert said[0].endswith("right sums\n"), said


RAILS = Switch("rails", ("--links", "veth@200,veth@100"), VETH.marks)


@pytest.mark.parametrize(
    "switch", [pytest.param(one, id=one.name, marks=one.marks) for one in (SHM, UDP, VETH, BMV2, TREE, RAILS)]
)
def test_all_have_the_same_sums_while_a_rank_is_slow(run: Run, switch: Switch) -> None:
    program = [sys.executable, str(WORKERS / "quorum.py")]
    done = run("-n", "4", *switch.options, command=program, environment={"OPERATIONS": "8", "SLOWNESS": "4"})
    assert done.returncode == 0, done.stdout + done.stderr
    (_, operations, absences, *words), *others = [line.split()[-5:] for line in done.stdout.splitlines()]
    assert others == [[_, operations, absences, *words]] * 3, done.stdout
    assert words == ["right", "sums"]
    assert int(operations) >= 8
    assert int(absences) >= 1
