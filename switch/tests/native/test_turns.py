"""The right to compile: an exception of a signal handler's does not leave it taken."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from switchsum_switch.kernels import turns
from switchsum_switch.kernels.cache import Store


class Interrupt(Exception):
    """What a handler raises."""


class Interrupter:
    """Raise at one line of what takes the right to compile, as a signal handler may at any of them."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Interrupter | None:
        if frame.f_code.co_filename != turns.__file__ or frame.f_code.co_name not in {
            "begin",
            "_held",
            "_acquired",
        }:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise Interrupt
        return self


def test_an_exception_at_any_line_gives_the_right_back(tmp_path: Path) -> None:
    store, threads = Store(tmp_path, os.open(tmp_path, os.O_RDONLY)), threading.active_count()
    for line in itertools.count(1):
        interrupter = Interrupter(line)
        with trace(interrupter), contextlib.suppress(Interrupt), turns.together(), turns.compiling(store, "x"):
            sys.settrace(None)
        turn = turns._turn
        assert (turn.depth, turn.together, turn._held) == (0, 0, None)
        assert threading.active_count() == threads
        if interrupter.left > 0:  # all lines have had theirs
            break
    assert line > 10


def test_lines_about_a_wait_become_rarer() -> None:
    backoff = turns.Backoff()
    assert [second for second in range(200) if backoff.is_due(second)] == [3, 6, 12, 24, 48, 96, 192]
    late = turns.Backoff()
    assert [second for second in range(40, 100) if late.is_due(second)] == [40, 48, 96]


def test_a_terminal_shows_each_second_of_a_long_wait() -> None:
    backoff = turns.Backoff()
    assert [second for second in range(8) if backoff.is_due(second, often=True)] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_launcher_hears_each_tick_and_a_log_few(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(ticks=30)
    monkeypatch.setattr(turns, "time", clock)
    monkeypatch.setattr(turns, "_has_terminal", lambda: is_terminal)
    turn, heard = turns._Turn(), list[str]()
    turn.listener, turn.depth = heard.append, 1
    turn._tick(clock, None, 0.0)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("switchsum: compiling: ")]
    assert len(heard) == 28
    assert len(said) == (28 if is_terminal else 4), said


class Clock(threading.Event):
    """A clock that goes on by a second whenever the process waits, and an event that is set after some of them."""

    def __init__(self, ticks: int) -> None:
        super().__init__()
        self.now, self.ticks = 0.0, ticks

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.now > self.ticks


@contextlib.contextmanager
def trace(function: Interrupter) -> Iterator[None]:
    """Have a function called at each line that this thread runs."""
    before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)
