"""Two jobs that share slots: processes over UDP sockets, frames lost on purpose, a worker and the aggregator killed."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.daemons import run_here
from support.parts import JOB, START_S, SWITCHSUM, Parts, Process
from support.timing import eventually, patience
from switchsum_protocol import rpc
from switchsum_switch.bmv2.process import free_port

from .conftest import NAMESPACES, UDP

pytestmark = [pytest.mark.timeout(300), *UDP.marks]

OTHER = "b"


class Sharing(Parts):
    """A switch, an aggregator, a controller, and two jobs of two workers each."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        super().__init__(stack, scratch, size=2, links="udp")
        self._endpoints = {
            "main": {"p4runtime": self.p4runtime, "udp": self._udp},
            "spare": {"p4runtime": f"unix:{scratch}/spare", "udp": f"127.0.0.1:{free_port()}", "role": "aggregator"},
        }
        fleet = {"switches": self._endpoints, "shared_slots": 8}
        (scratch / "fleet.json").write_text(json.dumps(fleet))

    def switch_named(self, name: str, command: str) -> Process:
        """Start the switch or the aggregator."""
        endpoints = self._endpoints[name]
        Path(endpoints["p4runtime"].removeprefix("unix:")).unlink(missing_ok=True)
        return self.spawn(*SWITCHSUM, command, "--listen", endpoints["p4runtime"], "--udp", endpoints["udp"])

    def begin_job(self, job: str, script: str = "endless.py") -> list[Process]:
        """Make a job and start its workers."""
        create = rpc.CreateJobRequest(job=job, workers=self.size, shares_slots=True)
        self.ask(lambda client: client.create_job(create))
        return [self.worker(rank, script, SWITCHSUM_JOB=job, REST_S="0") for rank in range(self.size)]

    def contributions(self, job: str, reason: str = "contributed") -> int:
        """Return how many contributions of a job the switch has counted under a reason."""
        members = self.ask(lambda client: client.statistics()).members
        return sum(one.packets for member in members if member.job == job for one in member.reasons
                   if one.reason == reason)  # fmt: skip

    def goes_on(self, job: str) -> bool:
        before = self.contributions(job)
        return eventually(lambda: self.contributions(job) > before + 100, 60)


def test_jobs_that_share_slots_go_on_while_frames_are_lost_and_the_aggregator_and_a_worker_are_killed(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        parts = Sharing(stack, tmp_path)
        parts.switch_named("main", "switch")
        spare = parts.switch_named("spare", "aggregator")
        parts.spawn(
            *(*SWITCHSUM, "controller", "--fleet", f"{tmp_path}/fleet.json"),
            *("--listen", f"unix:{tmp_path}/controller"),
        )
        workers = {job: parts.begin_job(job) for job in (JOB, OTHER)}
        for job in workers:
            assert parts.goes_on(job)
        parts.ask(lambda client: client.set_loss(rpc.LossRequest(ingress=0.01, egress=0.01)))
        spare.kill()
        spare.wait()
        parts.switch_named("spare", "aggregator")
        for job in workers:
            assert parts.goes_on(job)
        assert eventually(lambda: parts.contributions(JOB, "taken") > 0, 60), "each job wants all of the slots"
        shown = run_here("job", "show", OTHER, "--controller", f"unix:{tmp_path}/controller").stdout
        assert "spare" in shown
        workers[OTHER][1].kill()
        assert workers[OTHER][0].wait(START_S) == 1
        assert parts.goes_on(JOB), "what the other job has left behind disturbs nobody"
        parts.stop_file.touch()
        for worker in workers[JOB]:
            assert worker.communicate(timeout=START_S)[0].endswith("right sums\n")


def test_sparse_sums_of_jobs_that_share_slots_are_right_on_each_way(tmp_path: Path) -> None:
    with ExitStack() as stack:
        parts = Sharing(stack, tmp_path)
        parts.switch_named("main", "switch")
        parts.switch_named("spare", "aggregator")
        parts.spawn(
            *(*SWITCHSUM, "controller", "--fleet", f"{tmp_path}/fleet.json"),
            *("--listen", f"unix:{tmp_path}/controller"),
        )
        workers = [worker for job in (JOB, OTHER) for worker in parts.begin_job(job, "sparse.py")]
        for job in (JOB, OTHER):
            assert parts.goes_on(job)
        assert eventually(lambda: parts.contributions(JOB, "taken") > 0, 60), "each job wants all of the slots"
        parts.stop_file.touch()
        for worker in workers:
            assert worker.communicate(timeout=START_S)[0].endswith("right sums\n")


RACKS = """
from checks.lab.sharing_rig import Case, Way, rig
from switchsum.launch import wires

wires.run(["ip", "link", "set", "lo", "up"])
with rig(jobs_=2, slots=4, racks=2) as made:
    way = Way(name="shared", shares=True)
    print(made.run(Case(sizes=(40_000,) * 2, way=way, mbit=50.0, slots=4, window=4, racks=2)))
"""


@pytest.mark.slow
@pytest.mark.root
@NAMESPACES
def test_jobs_whose_ranks_are_in_two_racks_share_the_slots_of_a_switch_to_which_bridges_lead() -> None:
    """Each rank checks its sums, as the rank of `checks.lab.sharing_rig`."""
    root = Path(__file__).parents[2]
    command = ["unshare", "--net", sys.executable, "-c", RACKS]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=patience(100), check=False)
    assert done.returncode == 0, done.stderr
    assert "taken=0.0," not in done.stdout, "each job wants all four slots"
