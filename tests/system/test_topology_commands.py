"""`switchsum topology` and `switchsum tree` as users call them."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import pytest

pytest.importorskip("networkx")
pytest.importorskip("yaml")
pytest.importorskip("scipy")

import switchsum.controller
from switchsum.cli import main

GOOD = """
switches: [s1, s2]
hosts: [h1, "h<2>"]
mbit: 100
links:
  - {between: [h1, s1]}
  - {between: ["h<2>", s2], mbit: 50, reserved: 20}
  - {between: [s1, s2]}
jobs: {digits: [h1, "h<2>"]}
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process."""
    output, errors = io.StringIO(), io.StringIO()
    code: Any = None
    with (
        patch.object(sys, "argv", ["switchsum", *arguments]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return subprocess.CompletedProcess(arguments, code or 0, output.getvalue(), errors.getvalue())


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_check_says_that_nothing_is_wrong_or_what_is(good: Path) -> None:
    done = run("topology", "check", str(good))
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 switches, 2 hosts, 3 links, 1 jobs: nothing is wrong" in done.stdout
    good.write_text(GOOD.replace("mbit: 50", "mbit: 0").replace("[h1, s1]", "[h1, s7]"))
    done = run("topology", "check", str(good))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "link h1 to s7: there is no node s7",
        "link h<2> to s2: a capacity is more than 0 Mbit/s, not 0",
    ]
    assert json.loads(run("topology", "check", str(good), "--json").stdout) == done.stdout.splitlines()
    planned = run("tree", "plan", str(good))
    assert (planned.returncode, planned.stdout) == (1, "")
    assert "there is no node s7" in planned.stderr


def test_show_draws_links_with_what_is_free(good: Path) -> None:
    done = run("topology", "show", str(good))
    assert done.stdout.splitlines() == ["s1", "├── 100 ── h1", "└── 100 ── s2", "s2", "└── 30 of 50 ── h<2>"]
    assert json.loads(run("topology", "show", str(good), "--json").stdout)["switches"] == ["s1", "s2"]
    assert "h1 ... h20 (20 hosts)" in run("topology", "show", "leaf-spine,leaves=2,spines=2,hosts=20").stdout


def test_plan_prints_rate_bound_and_trees_and_draws_them(good: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = run("tree", "plan", str(good), "--job", "digits", "--svg", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    assert "rate of the plan      30 Mbit/s, trees: 1" in done.stdout
    assert "bound                 30 Mbit/s by linear program; the plan reaches 100 %" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["s1: h1", "└── s2: h<2>"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    found = json.loads(run("tree", "plan", "two-spines,2,1000,400", "--mbit", "1400", "--json").stdout)
    assert [(tree["root"], tree["slots"]) for tree in found["trees"]] == [("s1", 183), ("s2", 73)]
    assert found["rate_mbit"] == pytest.approx(found["bound_mbit"])


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("topology", "show", "nowhere.yaml"), 2, "there is no file nowhere.yaml, and no such shape: star, leaf-spine"),
        (("topology", "check", "nowhere.yaml"), 1, "nowhere.yaml cannot be read: No such file"),
        (("topology", "show", "fat-tree,3"), 2, "even number of ports"),
        (("topology", "show", "fat-tree,x"), 2, "'x' is no number"),
        (("topology", "show", "fat-tree,4,4"), 2, "fat-tree has k, in this order"),
        (("topology", "show", "fat-tree,1000"), 2, "k is a whole number of 1 to 128, not 1000"),
        (("topology", "show", "fat-tree,nan"), 2, "k is a whole number of 1 to 128, not nan"),
        (("topology", "check", "fat-tree,3"), 2, "even number of ports"),
        (("topology", "show", "two-spines,2,-1"), 2, "more than 0"),
        (("topology", "show", "two-spines,2,nan"), 2, "more than 0"),
        (("tree", "plan", "fat-tree,4", "--mbit", "0"), 2, "more than 0 Mbit/s"),
        (("tree", "plan", "fat-tree,4", "--mbit", "inf"), 2, "more than 0 Mbit/s"),
        (("tree", "plan", "star,40"), 1, "at most 32 children"),
        (
            ("tree", "plan", "fat-tree,4", "--levels", "2"),
            1,
            "3 levels of switches, and at most 2 are allowed (--levels)",
        ),
        (("tree", "plan", "star,4", "--hosts", "h1,h9"), 2, "no host h9"),
        (("tree", "plan", "star,4", "--hosts", "h1", "--job", "x"), 2, "either --hosts or is a --job"),
        (("tree", "plan", "star,4", "--job", "x"), 2, "no job x"),
        (("tree", "plan", "star,4", "--svg", "/nowhere/plan.svg"), 1, "/nowhere/plan.svg cannot be written"),
    ],
)
def test_what_does_not_work_is_said_in_a_line(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert done.stdout == ""


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "switchsum.controller.topology", raising=False)
    monkeypatch.delattr(switchsum.controller, "topology", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    done = run("topology", "show", "star,4")
    assert done.returncode == 1
    assert "yaml is missing" in done.stderr
    assert "pip install 'switchsum[trees]'" in done.stderr
