"""`switchsum switch list|show` and `link list|show`, given what a controller answers."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner

from switchsum.cli import link, observe, switches
from switchsum.cli import tree as tree_commands
from switchsum.cli.app import application
from switchsum_protocol import rpc
from switchsum_protocol.errors import LocalError, UsageError

FAULTS = [
    rpc.LinkFault(
        text="the link from port 2 of leaf2 to port 2 of spine is gone, which the tree needs",
        switches=["leaf2", "spine"],
    ),
    rpc.LinkFault(text="port 9 of leaf1-b leads back to leaf1-b itself", switches=["leaf1-b"]),
]


def member(rank: int, switch: str) -> rpc.MemberInfo:
    return rpc.MemberInfo(rank=rank, state="active", address="", ingress_port=1, last_heartbeat_s=0.1, switch=switch)


def job(tree: list[list[str]], *at: str) -> rpc.JobInfo:
    members = [member(rank, switch) for rank, switch in enumerate(at)]
    return rpc.JobInfo(
        job="a", number=1, epoch=1, state="running", workers=len(at), first_slot=0, slot_count=8, window_slots=8,
        members=members, tree=tree,
    )  # fmt: skip


class Controller:
    """A controller that answers always the same."""

    def __init__(self, switches: list[str], jobs: list[rpc.JobInfo]) -> None:
        self._switches, self._jobs = switches, jobs

    def switches(self) -> rpc.SwitchList:
        found = [rpc.SwitchInfo(switch=name, p4runtime=f"unix:/{name}", state="settled") for name in self._switches]
        return rpc.SwitchList(switches=found)

    def list_jobs(self) -> rpc.JobList:
        return rpc.JobList(jobs=self._jobs)

    def links(self) -> rpc.LinkList:
        found = rpc.LinkInfo(switch="leaf1", port=3, far_switch="spine", far_port=1, in_tree=True)
        return rpc.LinkList(links=[found], faults=FAULTS)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what runs a command against a controller."""

    def run(controller: Controller, *arguments: str) -> Any:
        for module in (switches, link, observe, tree_commands):
            monkeypatch.setattr(module, "connect_to_look", lambda address: nullcontext(controller))
        return CliRunner().invoke(application(), arguments)

    return run


TREES = [["leaf1", "spine"], ["leaf2", "spine"], ["leaf1", "leaf2", "1"]]
FLEET = Controller(["spine", "leaf1", "leaf2"], [job(TREES, "leaf1", "leaf1", "leaf2")])
ALONE = Controller([""], [job([], "", "")])


def test_a_switch_says_which_trees_pass_it_and_who_is_beside_it(ask: Any) -> None:
    found = json.loads(ask(FLEET, "switch", "show", "leaf2", "--json").stdout)
    assert (found["switch"], found["state"], found["links"]) == ("leaf2", "settled", [])
    assert [(one["tree"], one["ranks"], one["above"], one["below"]) for one in found["trees"]] == [
        (0, [2], "spine", []),
        (1, [2], "", ["leaf1"]),
    ]
    rows = [line.split() for line in ask(FLEET, "switch", "show", "leaf1").stdout.splitlines()]
    assert ["a", "0", "running", "0", "1", "spine", "-"] in rows
    assert ["a", "1", "running", "0", "1", "leaf2", "-"] in rows


def test_a_single_switch_needs_no_name_and_one_of_several_does(ask: Any) -> None:
    found = json.loads(ask(ALONE, "switch", "show", "--json").stdout)
    assert [(one["job"], one["ranks"]) for one in found["trees"]] == [("a", [0, 1])]
    with pytest.raises(UsageError, match="name one of the switches: spine, leaf1, leaf2"):
        raise ask(FLEET, "switch", "show").exception
    with pytest.raises(LocalError, match="no switch 'leaf9': the switches are spine, leaf1, leaf2"):
        raise ask(FLEET, "switch", "show", "leaf9").exception
    with pytest.raises(LocalError, match="the only switch has no name"):
        raise ask(ALONE, "switch", "show", "leaf9").exception


def test_a_link_says_which_trees_use_it_and_what_is_wrong_with_it_alone(ask: Any) -> None:
    done = ask(FLEET, "link", "show", "spine", "leaf1", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, len(found["links"]), found["faults"]) == (0, 1, [])
    assert [(one["tree"], one["above"], one["below"]) for one in found["trees"]] == [(0, "spine", "leaf1")]
    done = ask(FLEET, "link", "show", "spine", "leaf2", "--json")
    assert (done.exit_code, json.loads(done.stdout)["faults"]) == (1, [str(FAULTS[0])])
    assert str(FAULTS[0]) in ask(FLEET, "link", "show", "leaf2", "spine").stdout
    with pytest.raises(LocalError, match="no link between 'leaf1' and 'leaf9'"):
        raise ask(FLEET, "link", "show", "leaf1", "leaf9").exception
    done = ask(FLEET, "link", "list", "--json")
    assert (done.exit_code, json.loads(done.stdout)["faults"]) == (1, [*map(str, FAULTS)])


def test_options_of_a_switch_that_is_started_are_no_options_of_a_look(ask: Any) -> None:
    with pytest.raises(UsageError, match=r"`switch list` starts no switch, so --shm cannot be used"):
        raise ask(FLEET, "switch", "--shm", "here", "list").exception
    assert [one["switch"] for one in json.loads(ask(FLEET, "switch", "list", "--json").stdout)] == [
        "spine",
        "leaf1",
        "leaf2",
    ]


class WithoutOne(Controller):
    """A controller whose switch leaf2 is away."""

    def statistics(self) -> rpc.Statistics:
        counted = [rpc.SwitchCounters(switch=name, contributions=7) for name in ("spine", "leaf1")]
        total = rpc.CounterInfo(reason="contributed", packets=14, bytes=900)
        return rpc.Statistics(counters=[total], switches=counted, away=["leaf2"])

    def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
        return rpc.SlotList(away=["leaf2"])

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        return self.list_jobs().jobs[0]


@pytest.mark.parametrize("command", ["stats", "slots", "tree show a"])
def test_what_is_read_without_a_switch_that_is_away_says_so(ask: Any, command: str) -> None:
    tree = [["leaf1", "spine"], ["leaf2", "spine"]]
    done = ask(WithoutOne(["spine", "leaf1", "leaf2"], [job(tree, "leaf1", "leaf2")]), *command.split())
    assert done.exit_code == 0, done.output
    assert "switchsum: switch leaf2 does not answer: what follows is without that" in done.stderr
    assert "leaf2 does not answer" not in done.stdout
    if command != "slots":
        assert "14" in done.stdout or "leaf1: ranks 0 (7 contributions)" in done.stdout
