"""Topologies in files: what is read, and what is said to be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")
pytest.importorskip("scipy")

from hypothesis import given
from hypothesis import strategies as st

from switchsum.planning.topology import MOST_BYTES, TopologyError, load, parse
from switchsum.topologies import Cable

GOOD = """
switches: [s1, s2]
hosts: {h1: 10.0.0.1, h2: 10.0.0.2, h3: }
mbit: 100
links:
  - {between: [h1, s1]}
  - {between: [h2, s2], mbit: 50, reserved: 20}
  - {between: [s1, s2]}
  - {between: [s1, s2]}
  - {between: [s2, h3]}
jobs: {digits: [h1, h2]}
"""


def test_a_file_is_read() -> None:
    network, found = parse(GOOD)
    assert found == []
    assert network.switches == ("s1", "s2")
    assert network.addresses == {"h1": "10.0.0.1", "h2": "10.0.0.2"}
    assert network.jobs == {"digits": ("h1", "h2")}
    assert network.cables[1] == Cable(ends=("h2", "s2"), mbit=50, reserved_mbit=20)
    assert network.cables[1].free_mbit == 30
    assert len(network.cables) == 5


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("h2: 10.0.0.2", "h2: 10.0.0.1", "h1 and h2 have the same address, 10.0.0.1"),
        ("10.0.0.2", "10.0.0", "h2: '10.0.0' is no IP address"),
        ("[s1, s2]\nhosts", "[s1, s2, s2]\nhosts", "s2: 2 nodes have this name"),
        ("[s1, s2]\nhosts", "[s1, s2, h1]\nhosts", "h1: 2 nodes have this name"),
        ("h3: }", "h3: , h3: }", "h3: it stands there 2 times"),
        ("h3: }", '"\u202e": , "\u202e": }', r"'\u202e': it stands there 2 times"),
        ("[h1, s1]", "[h1, s9]", "link h1 to s9: there is no node s9"),
        ("[h1, s1]", "[h1, h1]", "link h1 to h1: both ends are the same node"),
        ("[h1, s1]", "[h1, h2]", "link h1 to h2: hosts do not forward, so one end of a link is a switch"),
        ("mbit: 50", "mbit: 0", "link h2 to s2: a capacity is more than 0 Mbit/s, not 0"),
        ("mbit: 50", "mbit: -3", "link h2 to s2: a capacity is more than 0 Mbit/s, not -3"),
        ("mbit: 50", "mbit: 1.0e+300", "link h2 to s2: a capacity is at most 1e+09 Mbit/s, not 1e+300"),
        ("mbit: 50", "mbit: .nan", "link h2 to s2: a capacity is more than 0 Mbit/s, not nan"),
        (
            "mbit: 50",
            "mbit: fast",
            "link h2 to s2: its capacity (mbit) and what is reserved of it are numbers of Mbit/s",
        ),
        ("reserved: 20", "reserved: 60", "link h2 to s2: 60 reserved of 50 Mbit/s"),
        ("reserved: 20", "reserved: 50", "job digits: no path with free capacity connects h2 with h1"),
        ("reserved: 20", "cost: 20", "link h2 to s2: unknown key 'cost'"),
        ("  - {between: [s2, h3]}\n", "", "host h3: it has no link, so nothing reaches it"),
        ("[s1, s2]}", "[s1, s1]}", "link s1 to s1: both ends are the same node"),
        ("[h1, h2]}", "[h1, h8]}", "job digits: there is no host h8"),
        ("[h1, h2]}", "[h1, h1]}", "job digits: host h1 is in it 2 times"),
        ("[h1, h2]}", "[]}", "job digits: it has no hosts"),
        ("jobs:", "works:", "unknown key 'works': a topology has hosts, jobs, links, mbit, switches"),
        (
            "[s1, s2]\nhosts",
            "[s1, s2, no]\nhosts",
            "switches: False is no name (a text without commas; quote numbers, yes and no)",
        ),
        ("{between: [h1, s1]}", "[h1, s1]", "link 1: it is no {between: [NODE, NODE], mbit: CAPACITY}"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(old: str, new: str, line: str) -> None:
    assert old in GOOD
    _, found = parse(GOOD.replace(old, new, 1) if old != "[s1, s2]}" else GOOD.replace(old, new))
    assert line in found


def test_islands_are_named() -> None:
    _, found = parse(GOOD.replace("  - {between: [s1, s2]}\n", ""))
    assert "island: nothing connects h1, s1 with h2" in found
    assert "job digits: no path with free capacity connects h2 with h1" in found


def test_a_cycle_is_no_fault() -> None:
    text = "switches: [a, b, c]\nhosts: [h, i]\nmbit: 1\nlinks:\n"
    for ends in ("a, b", "b, c", "c, a", "h, a", "i, b"):
        text += f"  - {{between: [{ends}]}}\n"
    assert parse(text)[1] == []


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "switches: [", "links: 3", "hosts: {a: {b: c}}", "? [a, b]\n: 1\n", "a: *b"]
)
def test_what_is_no_topology_is_said(text: str) -> None:
    _, found = parse(text)
    assert found
    assert all("\n" not in line for line in found)


@given(st.text(alphabet="switcheslnkobm:[]{},- \n0159.&*!?|>'\"", max_size=200))
def test_no_text_raises(text: str) -> None:
    parse(text)


BOMB = "x0: &x0 [a, b, c, d, e, f, g, h, i]\n" + "".join(
    f"x{level}: &x{level} [{', '.join([f'*x{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
PLAIN = "switches: [s1]\nhosts: [h1, h2]\nlinks: [{between: [h1, s1]}, {between: [h2, s1]}]\njobs: {a: [h1, h2]}\n"
LONG = "h" * 100_000
HOSTILE = {
    **{f"a bomb at {key}": BOMB + f"{key}: *x11\n" for key in ("switches", "hosts", "links", "jobs", "mbit", "other")},
    "merged mappings": "x0: &x0 {<<: {a: 1}}\n"
    + "".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
    "a list in itself": "switches: &a [*a]\n",
    "a mapping in itself": "&a {switches: *a, hosts: *a, links: *a}\n",
    "deep": "[" * 100_000,
    "a name used often": f"x: &x {LONG}\nswitches: [{', '.join(['*x'] * 2000)}]\n"
    f"links: [{', '.join(['{between: [*x, *x]}'] * 2000)}]\njobs: {{*x : [{', '.join(['*x'] * 2000)}]}}\n",
    "an address": f"hosts: {{h1: {LONG}}}\n",
    "keys": "".join(f"k{n}{LONG[:200]}: 1\n" for n in range(2000)),
    "a number": PLAIN + "mbit: 1" + "0" * 5000,
    "a number in base 16": PLAIN + "mbit: 0x" + "f" * 10_000,
    "a name that is a number": "hosts: [0x" + "f" * 10_000 + "]\n",
    "a character that turns text round": "switches: [s1\u202e\n",
    "escapes": 'switches: ["\\e[31mX"]\nhosts: ["h\\a", "\\ud800", "\\0"]\n"\\e[31m": 1\n',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused_in_short_and_in_bounded_time(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(HOSTILE[kind])
    with pytest.raises(TopologyError) as caught:
        load(file)
    text = str(caught.value)
    assert len(text) < 60_000
    assert text.replace("\n", "").isprintable()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(PLAIN + "#" * MOST_BYTES)
    with pytest.raises(TopologyError, match="more than 1,048,576 bytes"):
        load(file)
    with pytest.raises(TopologyError, match="more than 1,048,576 bytes"):
        load(Path("/dev/zero"))


def test_aliases_are_good_where_they_are_few(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(PLAIN.replace("jobs: {a: [h1, h2]}", "jobs: {a: &a [h1, h2], b: *a}\nmbit: 50"))
    assert load(file).jobs == {"a": ("h1", "h2"), "b": ("h1", "h2")}
