"""The launcher's folder is gone whenever a signal ends it."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from switchsum_switch.process.ending import ended_by_signals, scratch_folder


class Interrupter:
    """Sends this process SIGINT before a given line of what it traces, counted from its start."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
        return self


def use_folder(at: int) -> tuple[bool, bool]:
    """Use a folder and be interrupted at a line; return whether that came so far, and whether the folder was used."""
    used, interrupter, before = False, Interrupter(at), sys.gettrace()
    try:
        with ended_by_signals():
            sys.settrace(interrupter)
            try:
                with scratch_folder() as folder:
                    Path(folder, "socket").touch()
                    Path(folder, "inside").mkdir()
                    used = True
            finally:
                sys.settrace(before)
    except SystemExit as end:
        used = used and end.code == 130
    return interrupter.left <= 0, used


def test_a_signal_at_any_line_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lines = 0
    codes = []
    while (came := use_folder(lines + 1))[0]:
        lines += 1
        codes.append(came[1])
        assert list(tmp_path.iterdir()) == [], f"interrupted at line {lines}"
    assert lines > 30
    assert not codes[0]
    assert codes[-1]
    assert use_folder(10**9) == (False, True)
