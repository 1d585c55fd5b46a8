"""`switchsum topology` and `switchsum tree` as users call them."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

import switchsum.planning
from support.daemons import run_here

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


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return path


def test_check_says_that_nothing_is_wrong_or_what_is(good: Path) -> None:
    done = run_here("topology", "check", str(good))
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 switches, 2 hosts, 3 links, 1 jobs: nothing is wrong" in done.stdout
    good.write_text(GOOD.replace("mbit: 50", "mbit: 0").replace("[h1, s1]", "[h1, s7]"))
    done = run_here("topology", "check", str(good))
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "link h1 to s7: there is no node s7",
        "link h<2> to s2: a capacity is more than 0 Mbit/s, not 0",
    ]
    assert json.loads(run_here("topology", "check", str(good), "--json").stdout) == done.stdout.splitlines()
    planned = run_here("tree", "plan", str(good))
    assert (planned.returncode, planned.stdout) == (1, "")
    assert "there is no node s7" in planned.stderr


def test_check_says_which_job_has_no_tree_and_what_is_lost_of_one_with_too_many(tmp_path: Path) -> None:
    path, hosts, spines = tmp_path / "jobs.yaml", [f"h{at}" for at in range(33)], [f"s{at}" for at in range(10)]
    links = [(host, "left", 1000) for host in hosts] + [("far", "right", 1000)]
    links += [(leaf, spine, 100) for leaf in ("left", "right") for spine in spines]
    lines = [f"  - {{between: [{one}, {other}], mbit: {mbit}}}" for one, other, mbit in links]
    jobs = {"wide": hosts, "far": ["h1", "far"], "near": ["h1", "h2"], "alone": ["h1"]}
    named = [f"switches: {['left', 'right', *spines]}", f"hosts: {[*hosts, 'far']}"]
    path.write_text("\n".join([*named, "links:", *lines, f"jobs: {jobs}"]))
    done = run_here("topology", "check", str(path))
    assert done.returncode == 1
    assert done.stdout.startswith("job wide: 33 hosts of the job have left as their only switch")
    assert done.stdout.count("\n") == 1
    del jobs["wide"]
    path.write_text("\n".join([*named, "links:", *lines, f"jobs: {jobs}"]))
    done = run_here("topology", "check", str(path))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == ["job far: a job has at most 8 trees, and 10 would carry 200 Mbit/s more"]


def test_show_draws_links_with_what_is_free(good: Path) -> None:
    done = run_here("topology", "show", str(good))
    assert done.stdout.splitlines() == ["s1", "├── 100 ── h1", "└── 100 ── s2", "s2", "└── 30 of 50 ── h<2>"]
    assert json.loads(run_here("topology", "show", str(good), "--json").stdout)["switches"] == ["s1", "s2"]
    assert "h1 ... h20 (20 hosts)" in run_here("topology", "show", "leaf-spine,leaves=2,spines=2,hosts=20").stdout


def test_plan_prints_rate_bound_and_trees_and_draws_them(good: Path, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    done = run_here("tree", "plan", str(good), "--job", "digits", "--svg", str(picture))
    assert (done.returncode, done.stderr) == (0, "")
    assert "rate of the plan      30 Mbit/s, trees: 1" in done.stdout
    assert "bound                 30 Mbit/s by linear program; the plan reaches 100 %" in done.stdout
    assert done.stdout.splitlines()[-2:] == ["s1: h1", "└── s2: h<2>"]
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    found = json.loads(run_here("tree", "plan", "two-spines,2,1000,400", "--mbit", "1400", "--json").stdout)
    assert [(tree["root"], tree["slots"]) for tree in found["trees"]] == [("s1", 183), ("s2", 73)]
    assert found["rate_mbit"] == pytest.approx(found["bound_mbit"])


def test_plan_spreads_several_jobs_over_roots_and_says_what_each_gets(tmp_path: Path) -> None:
    done = run_here("tree", "plan", "leaf-spine,4,4,8", "--jobs", "4")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("1000 Mbit/s while all jobs run, trees: 1") == 4
    assert "1 job, which could send 1000 Mbit/s over its 1000" in done.stdout
    found = json.loads(run_here("tree", "plan", "leaf-spine,4,4,8", "--jobs", "4", "--json").stdout)
    assert [one["job"] for one in found["jobs"]] == ["1", "2", "3", "4"]
    assert sorted(tree["root"] for one in found["jobs"] for tree in one["trees"]) == ["s1", "s2", "s3", "s4"]
    path = tmp_path / "jobs.yaml"
    links = [("h1", "s1"), ("h2", "s1"), ("h3", "s2"), ("h4", "s2"), ("s1", "s2")]
    lines = [f"  - {{between: [{one}, {other}]}}" for one, other in links]
    named = ["switches: [s1, s2]", "hosts: [h1, h2, h3, h4]", "mbit: 100", "jobs: {one: [h1, h3], two: [h2, h4]}"]
    path.write_text("\n".join([*named, "links:", *lines]))
    done = run_here("tree", "plan", str(path), "--job", "one", "--job", "two")
    assert done.stdout.splitlines()[:3] == [
        "job one: 50 Mbit/s while all jobs run, trees: 1",
        "job two: 50 Mbit/s while all jobs run, trees: 1",
        "busiest link between switches: s1 to s2, 2 jobs, which could send 200 Mbit/s over its 100",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("tree", "plan", "star,4", "--jobs", "3"), 2, "4 hosts are too few for 3 jobs"),
        (
            ("topology", "show", "nowhere.yaml"),
            2,
            "nowhere.yaml is neither a file nor a shape: the shapes are star, leaf-spine",
        ),
        (("topology", "check", "nowhere.yaml"), 1, "nowhere.yaml cannot be read: No such file"),
        (("topology", "show", "fat-tree,3"), 2, "even number of ports"),
        (("topology", "show", "fat-tree,x"), 2, "'x' is not a number"),
        (("topology", "show", "fat-tree,4,4"), 2, "fat-tree takes k, in this order"),
        (("topology", "show", "fat-tree,1000"), 2, "k must be a whole number from 1 to 128, not 1000"),
        (("topology", "show", "fat-tree,nan"), 2, "k must be a whole number from 1 to 128, not nan"),
        (("topology", "check", "fat-tree,3"), 2, "even number of ports"),
        (("topology", "show", "two-spines,2,-1"), 2, "more than 0"),
        (("topology", "show", "two-spines,2,nan"), 2, "more than 0"),
        (("tree", "plan", "fat-tree,4", "--mbit", "0"), 2, "--mbit must be above 0"),
        (("tree", "plan", "fat-tree,4", "--mbit", "inf"), 2, "more than 0 Mbit/s"),
        (("tree", "plan", "star,40"), 1, "at most 32 children"),
        (
            ("tree", "plan", "fat-tree,4", "--levels", "2"),
            1,
            "3 levels of switches, and at most 2 are allowed (--levels)",
        ),
        (("tree", "plan", "star,4", "--hosts", "h1,h9"), 2, "no host h9"),
        (("tree", "plan", "star,4", "--hosts", "h1", "--job", "x"), 2, "give either --hosts or --job"),
        (("tree", "plan", "star,4", "--job", "x"), 2, "no job x"),
        (("tree", "plan", "star,4", "--svg", "/nowhere/plan.svg"), 1, "/nowhere/plan.svg cannot be written"),
    ],
)
def test_what_does_not_work_is_said_in_a_line(arguments: tuple[str, ...], code: int, text: str) -> None:
    done = run_here(*arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("[h1, s1]", "[h1, s7]", "there is no node s7"),
        ("mbit: 50", "mbit: 0", "a capacity is more than 0 Mbit/s"),
        ("  - {between: [s1, s2]}\n", "", "island: nothing connects"),
        ("  - {between: [h1, s1]}\n", "", "host h1: it has no link, so nothing reaches it"),
        ("reserved: 20", "reserved: 50", "no path with free capacity connects h<2> with h1"),
        ("mbit: 100", "mbit: 100\nmbit: 100", "it stands there 2 times"),
    ],
)
def test_run_refuses_a_topology_that_carries_no_job_before_it_starts_anything(
    good: Path, old: str, new: str, text: str
) -> None:
    good.write_text(GOOD.replace(old, new, 1))
    with patch("switchsum.launch.local_job.run") as started:
        done = run_here("run", "-n", "2", "--topology", str(good), "--", "true")
    assert done.returncode in (1, 2)
    assert text in done.stderr
    assert not started.called


def test_run_refuses_trees_that_are_too_deep_and_takes_cycles(tmp_path: Path) -> None:
    switches = [f"s{at}" for at in range(1, 6)]
    ends = [("h1", "s1"), ("h2", "s5"), ("h3", "s3"), *itertools.pairwise(switches)]

    def write(links: list[tuple[str, str]]) -> str:
        path = tmp_path / "line.yaml"
        lines = [f"  - {{between: [{one}, {other}]}}" for one, other in links]
        path.write_text("\n".join([f"switches: {switches}", "hosts: [h1, h2, h3]", "mbit: 1", "links:", *lines]))
        return str(path)

    with patch("switchsum.launch.local_job.run", return_value=0) as started:
        done = run_here("run", "-n", "3", "--topology", write(ends), "--", "true")
        assert done.returncode == 0, "five in a row are three levels"
        done = run_here("run", "-n", "3", "--topology", write([*ends, ("s5", "s1")]), "--", "true")
        assert done.returncode == 0, "and a circle has trees in it"
        assert started.call_count == 2
        switches += ["s6", "s7"]
        ends = [("h1", "s1"), ("h2", "s7"), ("h3", "s4"), *itertools.pairwise(switches)]
        done = run_here("run", "-n", "3", "--topology", write(ends), "--", "true")
        assert done.returncode == 1
        assert "at most 3 are allowed" in done.stderr
        assert started.call_count == 2


def test_run_says_which_links_a_job_does_not_use(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    links = "".join(f"  - {{between: [{host}, {switch}]}}\n" for host in ("h1", "h2") for switch in ("s1", "s2"))
    path.write_text(f"switches: [s1, s2]\nhosts: [h1, h2]\nmbit: 100\nlinks:\n{links}")
    with patch("switchsum.launch.local_job.run", return_value=0):
        done = run_here("run", "-n", "2", "--topology", str(path), "--", "true")
    said = "switchsum: a worker is at one switch: its host's links to others would carry 100 Mbit/s more, not on shared"
    assert (done.returncode, done.stderr) == (0, f"{said} memory\n")


def test_a_missing_package_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "switchsum.planning.topology", raising=False)
    monkeypatch.delattr(switchsum.planning, "topology", raising=False)
    monkeypatch.setitem(sys.modules, "yaml", None)
    done = run_here("topology", "show", "star,4")
    assert done.returncode == 1
    assert "yaml is missing" in done.stderr
    assert "pip install 'switchsum[trees]'" in done.stderr
