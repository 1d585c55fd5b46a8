"""Jobs whose workers have several links."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.parts import WORKERS
from switchsum.cli.job import _show
from switchsum.launch.link_options import read_links
from switchsum_protocol import rpc
from switchsum_protocol.errors import UsageError

from .conftest import NAMESPACES, Run

ADDS = [sys.executable, str(WORKERS / "loses_link.py")]


def shown(run: Run, tmp_path: Path, *options: str, command: list[str]) -> Any:
    """Run a job and return what `job show` has said of it before its end."""
    done = run(*options, command=command)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((tmp_path / "result").read_text())


def test_sums_over_two_addresses_of_a_host_are_right_although_frames_are_lost(run: Run, tmp_path: Path) -> None:
    job = shown(run, tmp_path, "-n", "2", "--links", "udp@200,udp@100", "--loss", "0.005", command=ADDS)
    assert (job["link_rates"], job["links_down"]) == ([200, 100], [])
    addresses = [[link.split(":")[0] for link in member["links"]] for member in job["members"]]
    assert addresses == [["127.0.0.1", "127.0.0.2"]] * 2


@pytest.mark.root
@NAMESPACES
@pytest.mark.parametrize("how", [pytest.param("down", marks=pytest.mark.slow), "mtu"])
def test_a_link_that_fails_in_the_midst_of_allreduces_is_left_out(how: str, run: Run, tmp_path: Path) -> None:
    job = shown(run, tmp_path, "-n", "3", "--links", "veth@200,veth@100", command=[*ADDS, how])
    assert (job["link_rates"], job["links_down"], job["state"]) == ([200, 100], [1], "running")


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ("shm,shm", "shm is a single link"),
        ("veth,udp", "of one kind"),
        ("veth@200,veth", "give a rate to all"),
        ("udp@0,udp@1", "0.001 to 1,000,000,000, not '0'"),
        (",".join(["udp"] * 9), "1 to 8 links, not 9"),
    ],
)
def test_links_that_no_job_can_have_are_refused(links: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_links(links)


def test_links_are_shown_with_their_switches_and_those_to_one_that_is_away_are_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    links = ["not known, port -1", "10.0.0.1:5 port 2"]
    member = rpc.MemberInfo(rank=0, state="admitted", address="10.0.0.1:5", links=links, switches=["", "b"])
    info = rpc.JobInfo(
        job="a", number=1, epoch=1, state="running", workers=1, first_slot=0, slot_count=1, members=[member],
        link_rates=[1.0, 1.0], links_down=[0],
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "200")
    _show(info, as_json=False)
    assert "not known, 10.0.0.1:5 port 2 of b" in capsys.readouterr().out
