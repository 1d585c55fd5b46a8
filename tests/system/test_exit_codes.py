"""Exit codes mean one thing each: an example of each row of the table in docs/cli.md; more of `run` in test_run.py."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import patience

CLI = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SWITCHSUM = [sys.executable, "-m", "switchsum"]
NOBODY = ["--controller", "unix:/nowhere/controller"]
DAEMON = ["controller", "--switch", "unix:{place}/switch", "--listen", "unix:{place}/controller"]
RUN = ["run", "-n", "1", "--"]

WITHOUT_A_SIGNAL = [
    (["--version"], 0),
    (["job", "list", *NOBODY], 1),
    (["run", "--switch", "/bin/true", "--links", "veth", "--", "true"], 1),
    (["job", "list", "--no-such-option"], 2),
    (["no-such-command"], 2),
    (["run", "-n", "33", "--", "true"], 2),
    ([*RUN, "no such program"], 127),
    ([*RUN, "sh", "-c", "kill -9 $$"], 137),
]
BY_SIGNAL = [
    (DAEMON, signal.SIGINT, 0),
    (DAEMON, signal.SIGTERM, 0),
    (["job", "create", "a", "-n", "1", "--wait", "1000", *NOBODY], signal.SIGINT, 130),
    (["job", "create", "a", "-n", "1", "--wait", "1000", *NOBODY], signal.SIGTERM, 143),
    ([*RUN, "sh", "-c", "echo begun >&2; sleep 1000"], signal.SIGHUP, 129),
]


def test_the_table_has_every_code_that_is_tried_here() -> None:
    table = CLI.partition("## Exit codes")[2].partition("\n## ")[0]
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    tried = {code for _, code in WITHOUT_A_SIGNAL} | {code for _, _, code in BY_SIGNAL}
    assert codes == tried - {127, 137}  # those are ranks' own


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "code"), WITHOUT_A_SIGNAL)
def test_a_command_ends_with_its_code(arguments: list[str], code: int) -> None:
    done = subprocess.run([*SWITCHSUM, *arguments], capture_output=True, text=True, timeout=patience(100), check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("arguments", "number", "code"), BY_SIGNAL)
def test_a_signal_ends_a_command_with_its_code(
    arguments: list[str], number: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = [*SWITCHSUM, *(argument.format(place=tmp_path) for argument in arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()  # all of these say that they have begun
        while "compil" in said:
            said = process.stderr.readline()
        process.send_signal(number)
        _, errors = process.communicate(timeout=patience(60))
    ended = 128 - process.returncode if process.returncode < 0 else process.returncode  # as a shell has it
    assert ended == code, said + errors
    assert "Traceback" not in errors
