"""Workers with links to several switches: a rail's switch dies, and a controller, and what is added goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.timing import eventually
from switchsum_switch.bmv2.process import free_port

from .test_trees import LEAVES, Tree

pytestmark = pytest.mark.timeout(300)

RAILS = (("left1", "right1"), ("left2", "right2"))
"""Of each rank, the switches to which its links lead."""


class Rails(Tree):
    """Two workers, each with two leaves of its own, below one spine."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        super().__init__(stack, scratch)
        leaves = [name for names in RAILS for name in names]
        self._endpoints = {
            name: {"p4runtime": f"unix:{scratch}/{name}", "udp": f"127.0.0.1:{free_port()}"}
            for name in ("spine", *leaves)
        }
        above = {name: {"above": "spine"} for name in leaves}
        fleet = {"switches": {name: endpoints | above.get(name, {}) for name, endpoints in self._endpoints.items()}}
        (scratch / "fleet.json").write_text(json.dumps(fleet))

    def link_of(self, rank: int) -> str:
        return ",".join(f"udp:{self._endpoints[name]['udp']}" for name in RAILS[rank])

    def go_on(self, *names: str) -> bool:
        """Return whether these switches take more contributions."""
        before = self.took()
        return eventually(lambda: all(self.took().get(name, 0) > before[name] for name in names), 90)


@pytest.fixture
def rails(tmp_path: Path) -> Iterator[Rails]:
    with ExitStack() as stack:
        yield Rails(stack, tmp_path)


@pytest.mark.slow
def test_a_job_goes_on_over_the_rails_that_are_left_also_with_a_new_controller(rails: Rails) -> None:
    workers = rails.start_all()
    assert rails.all_take()
    job = rails.show()
    assert [member.switches for member in job.members] == [list(names) for names in RAILS]
    rails.kill("right2")
    assert eventually(lambda: rails.show().links_down == [1], 60)
    assert rails.go_on("spine", "left1", "left2")
    rails.kill("controller")
    rails.begin_controller()
    assert eventually(lambda: rails.show().state == "running", 60)
    assert rails.go_on("spine", "left1", "left2")
    assert [worker.poll() for worker in workers] == [None] * len(RAILS)
    rails.end_well(workers)


class Both(Tree):
    """Two leaves below two roots, and workers with two links to their leaf."""

    def link_of(self, rank: int) -> str:
        udp = self._endpoints[LEAVES[rank]]["udp"]
        return f"udp:{udp},udp:{udp}%127.0.0.2"


def test_workers_with_several_links_add_over_several_trees(tmp_path: Path) -> None:
    with ExitStack() as stack:
        both = Both(stack, tmp_path)
        workers = both.start_all()
        assert both.all_take()
        assert [len(member.links) for member in both.show().members] == [2, 2]
        both.kill("other")
        assert eventually(lambda: bool(both.show().moved), 60)
        both.begin("other")
        assert eventually(lambda: both.took().get("root", 0) > 0, 60)
        both.end_well(workers)
