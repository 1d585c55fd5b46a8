"""Mininet's own command with our switches and topologies, as a user calls it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.timing import patience
from switchsum_switch.kernels.cache import open_store
from switchsum_switch.kernels.sources import source_digest

pytestmark = [pytest.mark.root, pytest.mark.mininet, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = patience(150)
WORKER = f"train,{sys.executable} tests/mininet/allreduce.py"
# A network and process namespace for each Mininet: nothing of it meets, or outlives into, the machine's own.
ALONE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c")
ENTER = 'mount -t sysfs none /sys && ip link set lo up && "$@"'
VALUES = 100_000
"""As many as tests/mininet/allreduce.py adds."""
TREES = all(find_spec(name) for name in ("scipy", "yaml"))
"""Whether trees can be planned; else there is one, the widest."""
SWITCHES = ["switchsum", pytest.param("bmv2", marks=pytest.mark.bmv2)]

Mn = Callable[..., subprocess.CompletedProcess[str]]


def environment() -> dict[str, str]:
    system = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**system, "SWITCHSUM_BIN": str(Path(sys.executable).parent)}


def command(*options: str) -> list[str]:
    return ["mn", "--custom", "mininet/custom.py", *options]


def bytes_up(said: str) -> list[int]:
    """Return what the links carried up, the busiest host's first."""
    [line] = re.findall(r"bytes up: .*", said)
    return [int(count.replace(",", "")) for count in re.findall(r" ([\d,]+)(?:;|$)", line)]


def alone(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ALONE, script, "sh", *words],
        cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


@pytest.fixture
def mn(tmp_path: Path) -> Mn:
    """Return a function that runs mn in namespaces of its own, with a script for its CLI if there is one."""

    def run(*options: str, script: str = "") -> subprocess.CompletedProcess[str]:
        if script:
            path = tmp_path / "script"
            path.write_text(script)
            options = (*options, "--post", str(path))
        return alone(ENTER, *command(*options))

    return run


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--topo", "strar,4"), "--topo strar: there is none of that name, but fat-tree, leaf-spine,"),
        (("--topo=strar,4",), "--topo strar"),
        (("--switch", "bmw2", "--topo", "star,4"), "--switch bmw2: there is none of that name, but"),
    ],
)
def test_a_mistyped_name_is_refused_before_mininet_cleans_the_machine(
    mn: Mn, options: tuple[str, ...], said: str
) -> None:
    done = mn(*options)
    assert (done.returncode, said in done.stdout, "Removing" in done.stdout) == (1, True, False), done.stdout


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_star_from_mininets_prompt(mn: Mn, switch: str) -> None:
    script = f"""
        h2 switchsum job list --json </dev/null
        h3 env
        h1 ping -c 1 -W {round(patience(10))} 10.255.255.254
        switch s1 stop
        h1 ping -c 1 -W 1 h2
        switch s1 start
        h1 until ping -c 1 -W 1 h2 ; do sleep 0.2 ; done
        train {WORKER[6:]}
    """
    done = mn("--switch", switch, "--topo", "star,3", "--test", "pingall", script=textwrap.dedent(script))
    assert done.returncode == 0, done.stdout
    assert "0% dropped (6/6 received)" in done.stdout
    assert re.search(r'"job": "mininet".*"workers": 3', done.stdout, re.DOTALL), done.stdout
    assert {"RANK=2", "WORLD_SIZE=3", "SWITCHSUM_LINK=packet:h3-eth0"} <= set(done.stdout.split())
    received = re.findall(r"packets transmitted, (\d) received", done.stdout)
    assert received[:2] == ["1", "0"], "the switch answers ping for its own address, and nobody does when it has ended"
    assert received[-1] == "1", "its controller gives it its entries again"
    assert "3 workers agree" in done.stdout, done.stdout


def all_but_the_switchs_kernels(cache: Path) -> None:
    """Make a cache of what is compiled already, without any kernel of the switch: a fast processor soon has one."""
    digest = source_digest()
    store = open_store("kernels", digest)
    assert store is not None
    left_out = shutil.ignore_patterns("switch.*")
    shutil.copytree(store.path, cache / "kernels" / digest, ignore=left_out, copy_function=copy_if_there)


def copy_if_there(source: str, target: str) -> None:
    with contextlib.suppress(FileNotFoundError):  # another process was writing it, under a name for that time
        shutil.copy2(source, target)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_without_compiled_code_mininet_shows_what_it_waits_for(
    mn: Mn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_but_the_switchs_kernels(tmp_path / "cache")
    monkeypatch.setenv("SWITCHSUM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setitem(globals(), "DEADLINE_S", patience(600))
    done = mn("--switch", "switchsum", "--topo", "star,2", "--test", WORKER)
    assert done.returncode == 0, done.stdout
    assert "s1 is compiling" in done.stdout.partition("s1 adds")[0], done.stdout
    assert "2 workers agree" in done.stdout


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_job_adds_at_the_leaves_and_at_both_spines(mn: Mn, switch: str) -> None:
    done = mn("--switch", switch, "--topo", "two-spines,2", "--link", "tc,bw=125,use_tbf=1,latency_ms=1000",
              "--test", "pingall", "--test", WORKER)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "0% dropped" in done.stdout
    spines = "s1 and s2" if TREES else "s1"
    assert f"s3, s4 and above them {spines} add" in done.stdout
    assert "4 workers agree" in done.stdout
    [line] = re.findall(r"contributions: .*", done.stdout)
    took = {name: int(count.replace(",", "")) for name, count in re.findall(r"(s\d) ([\d,]+)", line)}
    blocks = -(-VALUES // 256)  # each leaf has two hosts, each spine two leaves
    assert (took["s3"], took["s4"], took["s1"] + took.get("s2", 0)) == (2 * blocks, 2 * blocks, 2 * blocks)
    assert (took.get("s2", 0) > 0) == TREES
    host, *uplinks = bytes_up(done.stdout)
    assert VALUES * 4 < sum(uplinks[::2]) < 1.5 * host, "a leaf's uplinks together carry what a host's link does"


def test_mininets_own_topology_jumbo_frames_slow_links_and_the_exit_code_of_a_job(mn: Mn) -> None:
    options = ("--switch", "switchsum,lanes=2048,adds=s2", "--topo", "linear,2", "--link", "tc,bw=50")
    done = mn(*options, "--test", WORKER, "--test", "train,sh -c 'exit 3'")
    assert "50.00Mbit" in done.stdout
    assert "s1 and above them s2 add" in done.stdout, "and not the first one of two in the middle at the top"
    assert "2 workers agree" in done.stdout, done.stdout
    assert done.returncode == 3, done.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--switch", "switchsum", "--topo", "fat-tree,3"), "--topo fat-tree: a fat tree has switches with an even"),
        (("--switch", "switchsum", "--topo", "star,spokes=3"), "--topo star: "),
        (("--switch", "switchsum,adds=s5", "--topo", "star,2", "--test", "none"), "adds=s5 names no switch"),
        (
            ("--switch", "switchsum,lanes=7", "--topo", "star,2", "--test", "none"),
            "--lanes must be 128, 256, 2048 or auto",
        ),
    ],
)
def test_mistakes_end_with_one_line(mn: Mn, options: tuple[str, ...], reason: str) -> None:
    done = mn(*options)
    assert done.returncode == 1
    *_, last = done.stdout.strip().splitlines()
    assert last.startswith("switchsum: ")
    assert reason in last
    assert "Traceback" not in done.stdout


def test_a_network_with_more_hosts_than_its_switches_add_for_says_so(mn: Mn) -> None:
    done = mn("--switch", "switchsum", "--topo", "star,33", "--test", "none")
    assert "there is no job: a switch can add for 32 hosts, not for 33" in done.stdout


def test_a_switch_that_cannot_start_ends_the_network_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "switchsum").symlink_to(Path(sys.executable).parent / "switchsum")
    (tmp_path / "switchsum-bmv2").write_text("#!/bin/sh\necho no such luck >&2; exit 1\n")
    (tmp_path / "switchsum-bmv2").chmod(0o755)
    script = f'SWITCHSUM_BIN={tmp_path}; export SWITCHSUM_BIN; {ENTER}; echo "exit code: $?"; ip -br link; ps axo args'
    done = alone(script, *command("--switch", "switchsum", "--topo", "linear,2", "--test", "none"))
    assert "switchsum: s1 has ended: no such luck\nexit code: 1\n" in done.stdout
    assert "eth" not in done.stdout.partition("exit code")[2]
    assert "switchsum controller" not in done.stdout


CRASH = r"""
mount -t sysfs none /sys && ip link set lo up
folder=$1; shift
mkfifo $folder/stdin; : >$folder/output
"$@" <$folder/stdin >>$folder/output 2>&1 &
mn=$!
exec 9>$folder/stdin
while ! grep -q 'Starting CLI' $folder/output; do kill -0 $mn && sleep 0.1 || { cat $folder/output; exit 1; }; done
kill -9 $mn; wait $mn 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do ps axo args | grep -q '[s]witchsum-bmv2' && sleep 0.2; done
echo "switches: $(ps axo args | grep -c '[s]witchsum-bmv2')"
"$@" --test pingall >$folder/refused 2>&1
echo "exit code: $?"; tail -n 1 $folder/refused
eval "$(sed -n 's/.*remove this with: //p' $folder/refused | sed 's/sudo //g')"
echo "links: $(ip -br link | grep -c eth)"
"$@" --switch switchsum,lanes=7 --test none >/dev/null 2>&1
ls -d "${TMPDIR:-/tmp}"/switchsum-mininet-*
"""


def test_what_a_crash_leaves_is_named_and_its_command_removes_it() -> None:
    # Sockets and logs go to the same place as the FIFO: what is left there at the end was left by these runs.  A
    # socket's path has 107 characters at most, too few for pytest's own folders.
    with tempfile.TemporaryDirectory() as folder:
        script = f"TMPDIR={folder}; export TMPDIR\n{CRASH}"
        done = alone(script, folder, *command("--switch", "switchsum", "--topo", "linear,2"))
    lines = done.stdout.splitlines()
    assert lines[:2] == ["switches: 0", "exit code: 1"], done.stdout
    assert lines[2] == (
        "switchsum: a Mininet that crashed has left s1-eth2; remove this with: sudo ip link delete s1-eth2"
    )
    assert lines[3] == "links: 0"
    assert lines[4].startswith("ls: "), "the next Mininet sweeps the folder that the killed one left"
