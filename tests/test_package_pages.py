"""The READMEs of switch and laboratory, the pages of their packages: what they show is what runs."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from support.daemons import run_here

ROOT = Path(__file__).resolve().parent.parent
LABORATORY = (ROOT / "lab/README.md").read_text()
SESSIONS = re.findall(r"```console\n\$ switchsum (.*?)\n(.*?)```", LABORATORY, re.DOTALL)


def lines(text: str) -> str:
    """Return a text without blanks at the ends of its lines."""
    return "\n".join(line.strip() for line in text.splitlines()).strip()


def test_the_example_of_the_switch_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    test = doctest.DocTestParser().get_doctest((ROOT / "switch/README.md").read_text(), {}, "switch/README.md", None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(test, out=said.append)
    assert result.attempted >= 6
    assert result.failed == 0, "".join(said)


def test_the_test_of_a_program_passes_as_the_page_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code = re.findall(r"```python\n(.*?)```", (ROOT / "switch/docs/test-your-p4.md").read_text(), re.DOTALL)[0]
    made: dict[str, Any] = {}
    exec(code, made)
    made["test_a_route"]()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("command", "shown"), SESSIONS, ids=[command.split()[0] for command, _ in SESSIONS])
def test_commands_of_the_laboratory_print_what_its_page_shows(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sweep,) = re.findall(r"```yaml\n(.*?)```", LABORATORY, re.DOTALL)
    (tmp_path / "quick.yaml").write_text(sweep)
    monkeypatch.chdir(tmp_path)
    done = run_here(*shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert doctest.OutputChecker().check_output(lines(shown), lines(done.stdout), doctest.ELLIPSIS), done.stdout


def test_both_sessions_are_there() -> None:
    assert [command.split()[0] for command, _ in SESSIONS] == ["simulate", "sweep"]
