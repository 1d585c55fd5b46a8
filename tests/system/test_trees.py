"""A job over a tree of switches: what each of them adds, and the death of leaves, root and controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from switchsum.launch.bmv2 import free_port
from switchsum.protocol import rpc

from ..timing import eventually
from .parts import JOB, SWITCHSUM, Parts, Process

pytestmark = pytest.mark.timeout(300)

LEAVES = ("left", "right")
ROOTS = ("root", "other")


class Tree(Parts):
    """Two leaves below two roots, a worker at each leaf, and a controller: half of the slots belong to each tree."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        super().__init__(stack, scratch, size=len(LEAVES))
        self._sites = {
            name: {"p4runtime": f"unix:{scratch}/{name}", "udp": f"127.0.0.1:{free_port()}"}
            for name in (*LEAVES, *ROOTS)
        }
        trees = [{"above": dict.fromkeys(LEAVES, root)} for root in ROOTS]
        (scratch / "fleet.json").write_text(json.dumps({"switches": self._sites, "trees": trees}))
        self.running: dict[str, Process] = {}

    def start_all(self) -> list[Process]:
        """Start everything; return the workers, of which each has done rounds."""
        self.begin(*self._sites)
        self.begin_controller()
        create = rpc.CreateJobRequest(job=JOB, workers=self.size)
        self.ask(lambda client: client.create_job(create))
        workers = [
            self.worker(rank, "endless.py", SWITCHSUM_LINK=f"shm:{self.scratch}/{name}.shm")
            for rank, name in enumerate(LEAVES)
        ]
        self.await_progress()
        return workers

    def begin(self, *names: str) -> None:
        """Start switches."""
        for name in names:
            site = self._sites[name]
            (self.scratch / name).unlink(missing_ok=True)
            self.running[name] = self.spawn(
                *SWITCHSUM, "switch", "--listen", str(site["p4runtime"]), "--udp", str(site["udp"]),
                "--shm", f"{self.scratch}/{name}.shm",
            )  # fmt: skip

    def begin_controller(self) -> None:
        """Start the controller, which keeps the fleet."""
        (self.scratch / "controller").unlink(missing_ok=True)
        listen = ("--listen", f"unix:{self.scratch}/controller")
        fleet = ("--fleet", f"{self.scratch}/fleet.json")
        self.running["controller"] = self.spawn(*SWITCHSUM, "controller", *fleet, *listen)

    def kill(self, *names: str) -> None:
        """Kill switches, or the controller."""
        for name in names:
            self.running[name].kill()
            self.running[name].wait()

    def took(self) -> dict[str, int]:
        """Return how many contributions each switch took since it was started."""
        return {one.switch: one.contributions for one in self.ask(lambda client: client.statistics()).switches}

    def all_take(self) -> bool:
        """Return whether each switch takes contributions, now that all are there again."""
        before = self.took()
        return eventually(lambda: all(count > before[name] for name, count in self.took().items()), 90)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield Tree(stack, tmp_path)


def test_a_job_goes_on_after_leaf_root_both_and_the_controller_were_killed(tree: Tree) -> None:
    workers = tree.start_all()
    assert tree.all_take()
    epoch = tree.show().epoch
    for names in (["left"], ["root"], ["right", "root"], ["controller"]):
        tree.kill(*names)
        if "controller" in names:
            tree.begin_controller()
        else:
            tree.begin(*names)
        assert tree.all_take(), names
    assert [worker.poll() for worker in workers] == [None] * len(LEAVES)
    assert (tree.show().state, tree.show().epoch) == ("running", epoch)
    tree.end_well(workers)
