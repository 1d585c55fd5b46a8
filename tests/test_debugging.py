"""The sessions of docs/debugging.md are what pdb says."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

from support.timing import patience
from switchsum_switch.kernels.plain import VARIABLE

PAGE = (Path(__file__).resolve().parent.parent / "docs/debugging.md").read_text()
PROMPT = "(Pdb) "


def test_the_session_is_what_pdb_shows(tmp_path: Path) -> None:
    script = re.search(r"`one_sum.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert script is not None
    (tmp_path / "one_sum.py").write_text(script[1])
    session = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).partition("one_sum.py\n")[2]
    commands = re.findall(r"^\(Pdb\) (.*)$", session, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "pdb", "one_sum.py"],
        input="\n".join([*commands, "quit"]),
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, VARIABLE: "1"},
        check=True,
        timeout=patience(100),
    )
    answers = done.stdout.split(PROMPT)
    expected = re.split(r"^\(Pdb\) .*\n", session, flags=re.MULTILINE)
    assert len(answers) == len(expected) + 1
    same = doctest.OutputChecker()
    for command, wanted, got in zip(["", *commands], expected, answers, strict=False):
        assert same.check_output(wanted, got, doctest.ELLIPSIS), f"{command}:\n{got}\nis not\n{wanted}"
