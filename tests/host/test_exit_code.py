"""Whether the program ends as a failure, which Python does not tell what it calls at the end."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENDS = {
    "sys.exit(1)": (1, True),
    "sys.exit(3)": (3, True),
    "sys.exit('words')": (1, True),
    "sys.exit()": (0, False),
    "sys.exit(0)": (0, False),
    "pass": (0, False),
    "try: sys.exit(1)\nexcept SystemExit as error: assert error.code == 1": (0, False),
    "thread = threading.Thread(target=sys.exit, args=(1,)); thread.start(); thread.join()": (0, False),
}


@pytest.mark.parametrize("end", ENDS)
def test_what_is_known_at_the_end(end: str) -> None:
    program = f"""
import atexit, sys, threading
from switchsum.host.api.exit_code import is_failing, note_exit_code
note_exit_code()
atexit.register(lambda: print("bad" if is_failing() else "good"))
{end}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    code, bad = ENDS[end]
    assert (ended.returncode, ended.stdout) == (code, "bad\n" if bad else "good\n"), ended.stderr
    assert ended.stderr == ("words\n" if "words" in end else "")
