"""A job over a tree of switches: what each of them adds, and the death of leaves, root and controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.parts import JOB, SWITCHSUM, WORKERS, Parts, Process
from support.timing import eventually, patience
from switchsum.launch import tree as trees
from switchsum.launch.link_options import Links
from switchsum.launch.local_job import RunningSwitch
from switchsum.launch.options import RunOptions
from switchsum.launch.tree import TreePlan
from switchsum.planning.sources import read
from switchsum_controller.trees.fleet_file import load
from switchsum_protocol import rpc
from switchsum_protocol.errors import UsageError
from switchsum_switch.bmv2.process import free_port
from switchsum_switch.process.children import Children

from .conftest import BMV2, TREE, VETH, Run

pytestmark = [pytest.mark.timeout(300), *TREE.marks]

EXAMPLES = Path(__file__).parents[2] / "examples" / "topologies"

LEAVES = ("left", "right")
ROOTS = ("root", "other")


class Tree(Parts):
    """Two leaves below two roots, a worker at each leaf, and a controller: half of the slots belong to each tree."""

    def __init__(self, stack: ExitStack, scratch: Path, roots: Sequence[str] = ROOTS) -> None:
        super().__init__(stack, scratch, size=len(LEAVES))
        self._endpoints = {
            name: {"p4runtime": f"unix:{scratch}/{name}", "udp": f"127.0.0.1:{free_port()}"}
            for name in (*LEAVES, *roots)
        }
        trees = [{"above": dict.fromkeys(LEAVES, root)} for root in roots]
        (scratch / "fleet.json").write_text(json.dumps({"switches": self._endpoints, "trees": trees}))
        self.running: dict[str, Process] = {}

    def start_all(self, **variables: str) -> list[Process]:
        """Start everything; return the workers, of which each has done rounds."""
        self.begin(*self._endpoints)
        self.begin_controller()
        create = rpc.CreateJobRequest(job=JOB, workers=self.size)
        self.ask(lambda client: client.create_job(create))
        workers = [
            self.worker(rank, "endless.py", SWITCHSUM_LINK=self.link_of(rank), **variables) for rank in range(self.size)
        ]
        self.await_progress()
        return workers

    def link_of(self, rank: int) -> str:
        """Return the link of a worker."""
        return f"shm:{self.scratch}/{LEAVES[rank]}.shm"

    def begin(self, *names: str) -> None:
        """Start switches."""
        for name in names:
            endpoints = self._endpoints[name]
            (self.scratch / name).unlink(missing_ok=True)
            self.running[name] = self.spawn(
                *SWITCHSUM, "switch", "--listen", str(endpoints["p4runtime"]), "--udp", str(endpoints["udp"]),
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
        """Return whether each switch of the job's trees takes contributions, now that all are there again.

        On a busy machine one may have been away for so long that its tree has another root.
        """
        before = self.took()

        def take() -> bool:
            passed = {name for pair in self.show().tree for name in pair[:2]}
            return passed <= {name for name, count in self.took().items() if count > before.get(name, 0)}

        return eventually(take, 90)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Tree]:
    with ExitStack() as stack:
        yield Tree(stack, tmp_path)


def test_a_job_goes_on_after_leaf_root_both_and_the_controller_were_killed_and_without_a_root(tree: Tree) -> None:
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
    # A root that stays away: its tree goes to the other one, and a controller that never saw it knows the job.
    tree.kill("root")
    assert eventually(lambda: bool(tree.show().moved), 60)
    tree.kill("controller")
    tree.begin_controller()
    assert tree.all_take()
    job = tree.show()
    assert ([*map(str, job.moved)], {above for _, above, *_ in job.tree}) == (
        ["root stays away: tree 0 has root other, not root"],
        {"other"},
    )
    assert [worker.poll() for worker in workers] == [None] * len(LEAVES)
    assert (job.state, job.epoch) == ("running", epoch)
    tree.end_well(workers)


@pytest.mark.slow
def test_a_leaf_that_is_killed_for_good_ends_the_job_of_all_ranks_in_its_name(tmp_path: Path) -> None:
    with ExitStack() as stack:
        tree = Tree(stack, tmp_path, ROOTS[:1])
        workers = tree.start_all(SWITCH_S=str(patience(5)), OUTLIVE=str(tmp_path))
        tree.kill("left")
        ended = [worker.communicate(timeout=patience(100))[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [1, 1], ended
    assert "SwitchLost" in ended[0]  # its own one, which is silent
    assert "SwitchLost: no result for" in ended[1]
    assert f"left (unix:{tmp_path}/left) does not answer the controller" in ended[1]


def planned(source: str | Path, workers: int, *, kind: Links = Links.SHM, mbit: float = 1000.0) -> TreePlan:
    from switchsum.planning import runs as planning  # needs the extra `trees`

    return planning.plan(read(str(source), mbit), workers, kind)


def test_a_run_has_all_trees_of_the_plan_and_the_links_that_they_need() -> None:
    plan = planned("two-spines,2,100,40", 4, mbit=140)
    assert plan.switches == ("s1", "s3", "s4", "s2")
    assert [above for above, _ in plan.trees] == [{"s3": "s1", "s4": "s1"}, {"s3": "s2", "s4": "s2"}]
    assert [share for _, share in plan.trees] == pytest.approx([100, 40])
    assert plan.rails[0].leaves == ("s3", "s3", "s4", "s4")
    assert plan.rails[0].rates_mbit == (140.0,) * 4
    assert plan.trunks_mbit == {("s1", "s3"): 100, ("s1", "s4"): 100, ("s2", "s3"): 40, ("s2", "s4"): 40}


def test_what_others_have_reserved_of_a_link_is_no_part_of_its_wire() -> None:
    plan = planned(EXAMPLES / "two-racks.yaml", 4, kind=Links.VETH)
    assert {pair: mbit for pair, mbit in plan.trunks_mbit.items() if "spine2" in pair} == {
        ("leaf1", "spine2"): 400,
        ("leaf2", "spine2"): 200,
    }


def test_a_worker_is_at_one_switch_so_that_trees_which_have_its_host_elsewhere_are_left_out() -> None:
    plan = planned(EXAMPLES / "sharded.yaml", 4)
    assert (plan.trees, len({*plan.rails[0].leaves})) == ((({}, plan.trees[0][1]),), 1)
    assert plan.notes == (
        "a worker is at one switch: its host's links to others would carry 750 Mbit/s more, not on shared memory",
    )
    assert planned("two-spines,2,100,40", 4, mbit=140).notes == ()


def test_a_worker_has_a_link_to_each_switch_of_its_host_where_each_tree_has_one_to_itself() -> None:
    plan = planned(EXAMPLES / "sharded.yaml", 4, kind=Links.UDP)
    assert (plan.trees, plan.notes, len(plan.switches)) == ((({}, 1.0),), (), 4)
    assert sorted(rail.leaves for rail in plan.rails) == [(name,) * 4 for name in ("a1", "a2", "a3", "a4")]
    assert [rail.share_mbit for rail in plan.rails] == pytest.approx([250] * 4)
    # Two trees over the links to one spine: nothing tells their parts of a host's link apart.
    assert len(planned("two-spines,2,100,40", 4, kind=Links.UDP, mbit=140).rails) == 1


def test_a_worker_of_a_topology_has_all_its_links_also_where_wires_were_given_a_rate() -> None:
    switch = RunningSwitch(p4runtime="fleet.json", link=None, links=("packet:a@250,packet:b@250",), has_fleet=True)
    assert switch.link_of(0, (200.0,)) == switch.links[0]


def test_a_wire_is_a_hosts_and_two_workers_have_no_host_together() -> None:
    with pytest.raises(UsageError, match="one worker on each host, and the topology has 4 hosts for 5 workers"):
        planned("star,4", 5, kind=Links.VETH)
    assert planned("star,4", 5).rails[0].leaves == ("s1",) * 5


@pytest.mark.parametrize("source", ["two-spines,2,100,40", "star,3"])
def test_the_controller_reads_what_is_written_of_switches_that_use_udp(source: str, tmp_path: Path) -> None:
    options = RunOptions(command=["true"], workers=3, topology=source, links="udp")
    with Children() as children:
        layout = trees.lay_out(children, options, planned(source, 3), tmp_path, ())
    layout.write_fleet(tmp_path / "fleet.json")
    fabric = load(tmp_path / "fleet.json", 256)
    assert list(fabric.switches) == list(layout.endpoints)
    assert [fabric.parents, *fabric.others] == [above for above, _ in layout.planned.trees]
    assert layout.endpoints["s1"].command(options)[3:] == ["--udp", layout.endpoints["s1"].udp]


@pytest.mark.parametrize(
    ("switch", "options"),
    [
        pytest.param("embedded", (), id="shm"),
        pytest.param("embedded", ("--links", "veth@70"), id="veth", marks=[*VETH.marks, pytest.mark.slow]),
        pytest.param("bmv2", ("--links", "veth@70"), id="bmv2", marks=BMV2.marks),
    ],
)
def test_a_run_adds_at_the_switches_of_both_trees_and_its_workers_reach_one_another(
    run: Run, tmp_path: Path, switch: str, options: tuple[str, ...]
) -> None:
    program = str(WORKERS / "over_trees.py")
    topology = ("--topology", "two-spines,2,50,20", "--switch", switch, *options)
    done = run("-n", "3", "--lanes", "256", *topology, command=[sys.executable, program])
    assert done.returncode == 0, done.stdout + done.stderr
    took = json.loads((tmp_path / "result").read_text())
    assert sorted(took) == ["s1", "s2", "s3", "s4"]
    one_each = pytest.approx(took["s4"], rel=0.05)  # a barrier's frames may be on their way
    assert (took["s3"] / 2, (took["s1"] + took["s2"]) / 2) == (one_each, one_each), (
        "two workers' leaf sends up one frame"
    )
    assert took["s1"] > took["s2"] > 0, "the faster spine's tree has more of the slots"
