"""`switchsum explain` names what is wrong with real jobs: a straggler, a link that loses, ranks that have not come."""

from __future__ import annotations

import json
import random
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.daemons import run_here
from support.parts import JOB, Parts
from support.timing import eventually, patience
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.errors import NoCapacity, UnknownJob

pytestmark = pytest.mark.timeout(200)


def explain(parts: Parts) -> dict[str, dict[str, Any]]:
    """Return what the command finds, by kind."""
    done = run_here("explain", JOB, "--json", "--controller", f"unix:{parts.scratch}/controller")
    assert done.returncode == 0, done.stderr
    return {one["kind"]: one for one in json.loads(done.stdout)["findings"]}


def top_in_words(parts: Parts, *arguments: str) -> str:
    """Return what `switchsum top --once` prints, without line breaks."""
    done = run_here("top", *arguments, "--once", "--controller", f"unix:{parts.scratch}/controller")
    return " ".join((done.stdout + done.stderr).split())


def top(parts: Parts) -> list[dict[str, Any]]:
    """Return what `switchsum top` shows, by rank."""
    done = run_here("top", JOB, "--json", "--controller", f"unix:{parts.scratch}/controller")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def page_commands() -> list[list[str]]:
    """Return the commands of the page that end by themselves, for this job."""
    page = " ".join((Path(__file__).resolve().parents[2] / "docs/operations.md").read_text().split())
    found = re.findall(r"switchsum (explain digits|top --once|top --json)", page)
    assert sorted(found) == ["explain digits", "top --json", "top --once"]
    return [line.replace("digits", JOB).split() for line in found]


def in_words(parts: Parts) -> str:
    return " ".join(run_here("explain", JOB, "--controller", f"unix:{parts.scratch}/controller").stdout.split())


@pytest.fixture
def stack() -> Any:
    with ExitStack() as stack:
        yield stack


def test_a_straggler_is_named_with_host_link_slots_and_operation(tmp_path: Path, stack: ExitStack) -> None:
    parts = Parts(stack, tmp_path, size=3)
    parts.switch(), parts.controller()
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job=JOB, workers=3, slots=64)))
    workers = [parts.worker(rank, "straggler.py", SLOW="1") for rank in range(3)]
    assert eventually(lambda: "straggler" in explain(parts), 60)
    found = explain(parts)["straggler"]
    assert found["ranks"] == [1]
    assert found["since_s"] >= 2
    assert found["slots"]
    assert "float32" in found["operation"]
    assert found["command"] == f"py-spy dump --pid {workers[1].pid}"
    assert f"on {socket.gethostname()[:80]}" in found["advice"]
    text = in_words(parts)
    assert f"Rank 1 ({socket.gethostname()[:80]}) has been outside collectives for" in text
    assert "ranks 0 and 2 wait for it" in text
    assert f"Rank 1: host {socket.gethostname()[:80]}, address " in text
    assert ", link shm." in text
    assert "Rank 1 has begun 10 collectives." in text
    assert "link" not in explain(parts)  # those who wait repeat, but nothing is lost
    for command in page_commands():
        done = run_here(*command, "--controller", f"unix:{parts.scratch}/controller")
        assert done.returncode == 0, done.stderr
        assert "1" in done.stdout
    assert "ranks 0 and 2 wait for it" in top_in_words(parts)
    waiting = {row["rank"]: row for row in top(parts) if row["waiting_s"] >= 1}
    assert waiting.keys() == {0, 2}
    assert "float32" in waiting[0]["operation"]
    parts.stop_file.touch()
    for worker in workers:
        assert worker.wait(patience(60)) == 0


def test_a_link_that_loses_is_named(tmp_path: Path, stack: ExitStack) -> None:
    parts = Parts(stack, tmp_path, size=3)
    parts.start("endless.py")
    members = {one.rank: one.ingress_port for one in parts.show().members}
    assert "link" not in explain(parts)
    assert eventually(lambda: all(row["collectives_per_s"] > 0 < row["bytes_per_s"] for row in top(parts)), 60)
    table = top_in_words(parts, JOB)
    assert "Job" not in table
    assert "collectives" in table
    assert "MB/s" in table
    port = str(members[2])
    run_here("drop-probability", "0.05", "--port", port, "--controller", f"unix:{parts.scratch}/controller")
    found: dict[str, Any] = {}  # kept when seen: a link that has lost nothing for some seconds is not named any more

    def is_named() -> bool:
        found.update(explain(parts).get("link", {}))
        return "on the way to the switch" in found.get("details", "")

    assert eventually(is_named, 60)
    assert found["ranks"] == [2]
    assert f"drop simulator of port {port}" in found["text"]
    assert found["command"] == "switchsum drop-probability 0"
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown = top_in_words(parts)
        return "the link of rank 2 (" in shown

    assert eventually(is_shown, 60), shown
    lost = {row["rank"]: row["lost"] for row in top(parts)}
    assert lost[2] > max(lost[0], lost[1])


def test_ranks_that_have_not_come_and_a_job_without_slots(tmp_path: Path, stack: ExitStack) -> None:
    parts = Parts(stack, tmp_path, size=2)
    parts.switch(), parts.controller()
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job=JOB, workers=2, slots=64)))
    assert explain(parts)["nobody"]["ranks"] == [0, 1]
    parts.worker(0, "endless.py")
    assert eventually(lambda: explain(parts).get("starting", {}).get("ranks") == [1], 60)
    assert "The job starts: 1 of 2 ranks have joined within" in in_words(parts)  # a minute later they are missing
    free = parts.ask(lambda client: client.info()).free_slots
    done = run_here("explain", "other", "--controller", f"unix:{parts.scratch}/controller")
    assert done.returncode == 1
    has_no_slots = f"it has no slots; {free} are free, and job 'a' has 64"
    assert f"there is no job 'other', so {has_no_slots}" in done.stderr
    assert f"there is no job 'other', so {has_no_slots}" in top_in_words(parts, "other")
    join = member_rpc.JoinRequest(job="other", rank=0, world_size=2)
    with pytest.raises(UnknownJob):
        parts.ask(lambda client: client.call("Join", join, member_rpc.JoinReply))
    with pytest.raises(NoCapacity):
        parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job="large", workers=2, slots=free + 1)))
    shown = top_in_words(parts)
    assert "rank 1 is still to come." in shown
    assert "There is no job 'other'. There are: 'a'." in shown
    assert "Job 'large' was not made: " in shown
    # What has been made good is no news any more.
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job="other", workers=2, slots=4)))
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job="large", workers=2, slots=4)))
    parts.ask(lambda client: client.call("Join", join, member_rpc.JoinReply))
    shown = top_in_words(parts)
    assert "Job other: The job starts: 1 of 2 ranks have joined within" in shown
    assert "was not" not in shown
    assert "There is no job" not in shown


@pytest.mark.slow
def test_a_rank_that_sleeps_a_little_in_each_step_is_named_and_all_jobs_are_shown(
    tmp_path: Path, stack: ExitStack
) -> None:
    parts = Parts(stack, tmp_path, size=3)
    parts.switch(), parts.controller()
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job=JOB, workers=3, slots=64)))
    parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job="idle", workers=2, slots=4)))
    culprit = random.randrange(3)
    for rank in range(3):
        parts.worker(rank, "endless.py", REST_S="0.025" if rank == culprit else "0.005")
    found: dict[str, Any] = {}

    def is_named() -> bool:
        found.update(explain(parts).get("late", {}))
        return bool(found) and re.search(r"(9[5-9]|100) of the last 100 steps", found["text"]) is not None

    assert eventually(is_named, 100), found
    assert found["ranks"] == [culprit]
    assert "sleeps, or waits for data" in found["details"]
    assert "before allreduce (sum) of float32[1], call" in found["details"]
    rows = {row["rank"]: row for row in top(parts)}
    assert rows[culprit]["late_s"] >= 0.01
    assert all(rows[rank]["waiting_share"] > 3 * rows[culprit]["waiting_share"] for rank in rows if rank != culprit)
    assert "late by" in top_in_words(parts, JOB)
    done = run_here("explain", "--json", "--controller", f"unix:{parts.scratch}/controller")
    shown = {row["job"]: row for row in json.loads(done.stdout)}
    assert "No rank has joined" in shown["idle"]["what is wrong"]
    assert f"ank {culprit} (" in shown[JOB]["what is wrong"]
