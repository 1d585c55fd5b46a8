"""Scripts and commands of the pages, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.timing import patience

from .conftest import NAMESPACES, Run

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
MACHINE = "192.0.2.10"
"""Of the machine with the switch, on all pages."""


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Return the blocks of code in one section of a page."""
    text = FENCE.sub(lambda found: found[0].replace("\n#", "\n\0#"), (ROOT / page).read_text())  # comments in code
    section = re.split(r"\n##? ", text.partition(f"# {heading}\n")[2])[0].replace("\0", "")
    return [code for kind, code in FENCE.findall(section) if kind == language]


def type_in(folder: Path, script: str) -> str:
    """Type lines into a shell of a machine that has a network of its own; return what it shows."""
    (folder / "run").mkdir(mode=0o700)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SWITCHSUM_RUNTIME_DIR": str(folder / "run"),
    }
    for name in ("SWITCHSUM_CONTROLLER", "SWITCHSUM_JOB", "SWITCHSUM_LINK", "RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    lines = (
        f"ip link set lo up\nip address add {MACHINE}/24 dev lo\nset -e\ntrap 'kill $(jobs -p); wait' EXIT\n{script}"
    )
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", lines],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=patience(100), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "heading"), [("README.md", "Your own job"), ("docs/numpy.md", "From numpy")])
@pytest.mark.timeout(120)
def test_train_py_runs_as_it_stands(run: Run, page: str, heading: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(blocks(page, heading, "python")[0])
    done = run("-n", "4", command=[sys.executable, str(script)])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = re.findall(r"rank \d of 4: (.*)", done.stdout)
    assert len(lines) == 4
    assert len(set(lines)) == 1  # the same on all ranks
    said = [line for block in blocks(page, heading, "text") for line in block.splitlines()]
    assert [line for line in said if line not in done.stdout.splitlines()] == []
    assert said or page != "README.md"


@pytest.mark.root
@NAMESPACES
@pytest.mark.timeout(120)
def test_packets_are_sent_by_hand(tmp_path: Path) -> None:
    one_job, two_ranks = blocks("docs/packets.md", "Send", "sh")
    rank_0, rank_1 = two_ranks.splitlines()  # in two terminals
    job = "switchsum job create two --workers 2"
    shown = type_in(tmp_path, f"{one_job}{job}\n{rank_0} & other=$!\n{rank_1} slot=257\nwait $other")
    assert len(re.findall(r"result job 1\.\d+ rank 0 slot 5 .* 1, -2, 3", shown)) == 2
    assert re.search(r"held job 2\.\d+ rank 0 slot 256 .* from 1\b", shown)
    assert "reject" not in shown


@pytest.mark.root
@NAMESPACES
@pytest.mark.timeout(120)
def test_agents_over_udp(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("README.md", "Your own job", "python")[0])
    switch, *agents = blocks("docs/machines.md", "Without root: UDP", "sh")
    assert len(agents) == 2
    script = [switch]
    for agent in agents:
        other = agent.strip().replace("--rank 0", "--rank 1")
        script.append(f"{other} & other=$!\n{agent}wait $other\n")
    shown = type_in(tmp_path, "".join(script))
    assert shown.count("every sum is right") == 2
    assert "rank 1 of 2: [3. 3. 3. 3.]" in shown


@pytest.mark.root
@NAMESPACES
@pytest.mark.timeout(120)
def test_tls(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(blocks("README.md", "Your own job", "python")[0])
    daemons, workers = blocks("docs/security.md", "gRPC over TCP", "sh")
    installs, daemons = daemons.split("\n", 1)
    assert installs.startswith("pip install cryptography ")
    shown = type_in(tmp_path, daemons + workers)
    assert "rank 1 of 2: [3. 3. 3. 3.]" in shown


@pytest.mark.root
@NAMESPACES
@pytest.mark.timeout(180)
def test_tour(tmp_path: Path) -> None:
    section = "A slow worker, and frames that are lost"
    (tmp_path / "train.py").write_text(blocks("docs/tour.md", "A program of your own", "python")[0])
    (tmp_path / "steps.py").write_text(blocks("docs/tour.md", section, "python")[0])
    parts, looks = blocks("docs/tour.md", section, "sh")
    waits = "until switchsum explain steps | tr -s ' \\n' ' ' | grep -q 'ranks 0 and 1 wait for it'; do sleep 1; done\n"
    page = "python -c \"import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080').read().decode()[:99])\"\n"
    shown = type_in(
        tmp_path,
        blocks("docs/tour.md", "A program of your own", "sh")[0]
        + blocks("docs/tour.md", "What passed on the wire", "sh")[0]
        + parts + waits + looks + page,
    )  # fmt: skip
    words = " ".join(shown.split())
    assert shown.count("[1.5 1.5 1.5]") == 2
    assert re.search(r" (hello|contribution) job \d", shown)
    assert "as recorded" in words
    assert "ranks 0 and 1 wait for it" in words
    assert "lost_ingress" in words
    assert "<html" in words


def test_the_tours_torchrun_is_that_of_the_page_on_pytorch() -> None:
    (command,) = blocks("docs/tour.md", "PyTorch", "")
    assert command in blocks("docs/pytorch.md", "PyTorch", "")[0]


@pytest.mark.timeout(120)
def test_the_example_of_connect_runs(run: Run) -> None:
    script = (
        "import doctest, switchsum; test = doctest.DocTestFinder().find(switchsum.connect, globs={})[0]; "
        "assert test.examples and not doctest.DocTestRunner().run(test).failed"
    )
    done = run("-n", "1", command=[sys.executable, "-c", script])
    assert done.returncode == 0, done.stdout + done.stderr
