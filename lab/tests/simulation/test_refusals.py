"""Options drawn at random: a command refuses what it cannot do in one sentence, and runs the rest."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from switchsum.cli.app import application
from switchsum_lab.sweeps.axes import AXES
from switchsum_protocol.errors import SwitchsumError

WORDS = (
    *("", "x", "-1", "0", "1", "2", "1.5", "1e-9", "1e400", "nan", "inf", "-inf", "0x10", "1e3", " 5", "%", "50%", "é"),
    *("99999999999999999999", "-5us", "5us", "0us", "0B", "1kB", "1TB", "64f", "0f", "10gbit", "0gbit", "measured"),
    *("h1", "h1@", "@", "h1@1ms", "s1@1ms", "a->b", "h1->s1", "h1->s1@1ms", "h1@1ms+1ms", "s1->h1@0s+0s", "none"),
    *("128", "256", "2048", "int8", "2048,int8", "77", "ring", "best", "ring,tree", "halving-doubling", "switchml"),
    *("star,2", "star,0", "star", "leaf-spine,2,1,2", "leaf-spine,2", "fat-tree,3", "/nowhere/x", "[1, 2]", "topk"),
)
SIMULATE = (
    "bytes workers jobs rate delay queue mark loss host-queue bucket late late-by twice batch outage pause overhead "
)
SIMULATE += "lanes density window frame-cost against seed until fail switch-timeout move-after topology plot"
PLAN = "machines rate model recording step density ranks mtu lanes rack oversubscription compress every delay slots "
PLAN += "compute"


def draw(command: str, begin: list[str], options: str, count: int) -> None:
    app, chance = application(command), random.Random(command)
    for _ in range(count):
        chosen = chance.sample(options.split(), chance.choice((1, 1, 2)))
        words = [*begin, *(f"--{name}={chance.choice(WORDS)}" for name in chosen)]
        ended = CliRunner().invoke(app, [command, *words])
        if isinstance(ended.exception, SwitchsumError):
            says = str(ended.exception)
            # A wrong topology file has a line for each of its mistakes; here is none that could be read.
            assert says, words
            assert "\n" not in says, words
        else:
            assert ended.exception is None or isinstance(ended.exception, SystemExit), (words, ended.exception)


def test_simulate_refuses_in_one_sentence_or_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw("simulate", ["--bytes=4kB", "--workers=2", "--longest=5s", "--until=100ms"], SIMULATE, 100)


def test_plan_refuses_in_one_sentence_or_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    draw("plan", ["--machines=4", "--rate=1gbit", "--model=1MB"], PLAN, 150)


def test_a_sweep_refuses_in_one_sentence_or_lists_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app, chance = application("sweep"), random.Random("sweep")
    for _ in range(150):
        cell = {"bytes": "4kB", "workers": "2"}
        cell |= {name: chance.choice(WORDS) for name in chance.sample([*AXES, "best", "plot", "nokey"], 2)}
        Path("one.yaml").write_text("".join(f"{name}: {value}\n" for name, value in cell.items()))
        ended = CliRunner().invoke(app, ["sweep", "one.yaml", "--dry-run"])
        is_fine = ended.exception is None or isinstance(ended.exception, SystemExit | SwitchsumError)
        assert is_fine, (cell, ended.exception)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate", "--workers", "1"], "an allreduce has 2 workers or more, not 1"),
        (["simulate", "--workers", "2", "--seed", "-1"], "a seed is a whole number from 0 on, not -1"),
        (["simulate", "--workers", "2", "--window", "0"], "a window has at least 1 slot, not 0"),
        (["simulate", "--workers", "2", "--overhead", "9999999"], "what a cable adds to each frame must be"),
        (["simulate", "--workers", "2", "--late-by", "99999s"], "how late a frame is must be"),
        (["simulate", "--workers", "2", "--until", "0us"], "a simulation ends later than it begins"),
        (["compare", "switchml", "--workers", "99"], "switchml's P4 program does not take 99 workers"),
    ],
)
def test_the_sentence_says_what_would_work(words: list[str], says: str) -> None:
    ended = CliRunner().invoke(application(words[0]), words)
    assert isinstance(ended.exception, SwitchsumError)
    assert says in str(ended.exception)


def test_a_refusal_imports_no_solver() -> None:
    """scipy's solvers and numba take most of a second, and a refusal needs neither."""
    code = "import sys, switchsum_lab.simulation.scenario; print(*{'numba', 'scipy.optimize'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
