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

from switchsum.native import compiling
from switchsum.native.cache import Store


class Interrupt(Exception):
    """What a handler raises."""


class Interrupter:
    """Raise at one line of what takes the right to compile, as a signal handler may at any of them."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: Any) -> Interrupter | None:
        if frame.f_code.co_filename != compiling.__file__ or frame.f_code.co_name not in {
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
        with trace(interrupter), contextlib.suppress(Interrupt), compiling.together(), compiling.compiling(store, "x"):
            sys.settrace(None)
        turn = compiling._turn
        assert (turn.depth, turn.together, turn._held) == (0, 0, None)
        assert threading.active_count() == threads
        if interrupter.left > 0:  # all lines have had theirs
            break
    assert line > 10


@contextlib.contextmanager
def trace(function: Interrupter) -> Iterator[None]:
    """Have a function called at each line that this thread runs."""
    before = sys.gettrace()
    sys.settrace(function)
    try:
        yield
    finally:
        sys.settrace(before)
