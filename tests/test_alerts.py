"""What `top` and the page say is wrong: losses of the last seconds, one sentence for each cause, what would help."""

from __future__ import annotations

from dataclasses import replace

from switchsum.view.alerts import alerts
from switchsum.view.explain import explain
from switchsum.view.facts import Facts, Overview
from switchsum.view.findings import Finding
from switchsum.view.losses import loss_of
from switchsum_controller.jobs.reported import Reported
from switchsum_controller.service.refusals import Refusals
from switchsum_protocol import rpc
from switchsum_protocol.errors import NoCapacity, SwitchsumError, UnknownJob, UsageError, WorldSizeMismatch
from switchsum_protocol.reports import WorkerReport

DAY_S = 86_400
INFO = rpc.ControllerInfo(
    package_version="1", wire_version=3, program_digest="d", lanes_per_frame=256, switch="s", free_slots=9
)


def links_of(known: Facts) -> list[Finding]:
    return [one for one in explain(known) if one.kind == "link"]


class FakeLink:
    """A rank whose link carries 1,000 contributions a second, at the clock of a controller that is set forward."""

    def __init__(self) -> None:
        self.reported = Reported()
        self.now_s = 0.0
        self.sent = self.came = 0

    def run(self, seconds: int, loss: float) -> None:
        """Let time pass; a report comes each second."""
        for _ in range(seconds):
            self.now_s += 1
            self.sent += 1000
            self.came += round(1000 * (1 - loss))
            report = WorkerReport(
                job="a", nonce=1, frames_sent=self.sent, frames_received=self.came, rounds=self.came, begun=self.sent
            )
            self.reported.note(report, self.now_s)

    def is_named(self) -> bool:
        return bool(links_of(self.facts()))

    def facts(self, *, job: str = "a", ranks: int = 1, loss: float = 0.0) -> Facts:
        latest = self.reported.latest
        assert latest is not None
        worker = rpc.WorkerInfo(
            rank=0, age_s=0.1, frames_sent=latest.frames_sent, frames_received=latest.frames_received,
            rounds=latest.rounds, begun=latest.begun, recent=self.reported.recent,
        )  # fmt: skip
        counted = rpc.MemberCounters(
            job=job, rank=0, contributions=latest.frames_received, contribution_bytes=1, results=latest.frames_received
        )
        members = [rpc.MemberInfo(rank=rank, state="admitted", ingress_port=rank) for rank in range(ranks)]
        info = rpc.JobInfo(
            job=job, number=1, epoch=1, state="running", workers=ranks, first_slot=0, slot_count=4, members=members
        )
        names = [f"{job}/{rank}" for rank in range(ranks)]
        return Facts(
            job=info,
            workers=[replace(worker, rank=rank) for rank in range(ranks)],
            counters={rank: replace(counted, rank=rank) for rank in range(ranks)},
            slots=[],
            ports=rpc.PortList(ports=[rpc.PortInfo(port=0, members=names, ingress_loss=loss, egress_loss=loss)]),
        )


def test_loss_that_begins_after_a_day_is_named_in_seconds_and_so_is_its_end() -> None:
    link = FakeLink()
    link.run(30, loss=0.0)
    link.sent += 1000 * DAY_S
    link.came += 1000 * DAY_S
    link.now_s += DAY_S
    link.run(30, loss=0.0)
    assert not link.is_named()
    link.run(20, loss=0.04)
    assert link.is_named()
    [found] = links_of(link.facts())
    assert found.text == "The link of rank 0 loses 4 %; no rank waits for long."
    assert "400 of 10000 contributions or their answers were lost in the last 10 s." in found.details
    link.run(20, loss=0.0)
    assert not link.is_named()
    loss = loss_of(link.facts(), link.facts().workers[0])
    assert loss is not None
    assert loss.lost == 0


def test_a_little_traffic_that_loses_a_tenth_is_named() -> None:
    link = FakeLink()
    link.run(1, loss=0.0)
    for _ in range(20):
        link.now_s, link.sent, link.came = link.now_s + 1, link.sent + 10, link.came + 9
        report = WorkerReport(job="a", nonce=1, frames_sent=link.sent, frames_received=link.came, rounds=link.came)
        link.reported.note(report, link.now_s)
    assert link.is_named()


def seen(*jobs: Facts, refused: list[rpc.RefusalInfo] | None = None) -> Overview:
    return Overview(at_s=0.0, info=replace(INFO, refused=refused or []), jobs=list(jobs))


def test_the_drop_simulator_is_one_sentence_for_all_links_and_jobs() -> None:
    link = FakeLink()
    link.run(20, loss=0.04)
    one, other = (link.facts(job=job, ranks=4, loss=0.02) for job in ("a", "b"))
    [found] = alerts(seen(one, other))
    assert found.text == "The drop simulator is on: 8 links lose 4 %; no rank waits for long."
    simulated = "The drop simulator loses 2 % on the way to the switch and 2 % on the way back, 4 % in all."
    assert found.details == f"Jobs a and b. {simulated}"
    assert found.jobs == ["a", "b"]
    assert (found.advice, found.command) == ("Switch it off:", "switchsum drop-probability 0")
    [alone] = alerts(seen(one))
    assert alone.text == "The drop simulator is on: the links of ranks 0-3 lose 4 %; no rank waits for long."
    assert alone.details.startswith("1600 of 40000 contributions or their answers were lost in the last 10 s")


def test_a_host_whose_links_all_lose_is_one_sentence() -> None:
    link = FakeLink()
    link.run(20, loss=0.04)
    facts = link.facts(ranks=4)
    hosts = [replace(one, host="north" if one.rank < 2 else f"south{one.rank}") for one in facts.workers]
    found = links_of(replace(facts, workers=hosts))
    assert [one.ranks for one in found] == [[0, 1], [2], [3]]
    assert "The links of ranks 0 and 1, all at host north, lose 4 %" in found[0].text


def test_a_switch_that_is_lost_is_one_sentence_for_all_jobs() -> None:
    link = FakeLink()
    link.run(20, loss=0.0)
    facts = link.facts()
    gone = [replace(facts, job=replace(facts.job, job=job, state="stalled")) for job in ("a", "b", "c")]
    [found] = alerts(seen(*gone))
    assert found.text == "Jobs a, b and c: The switch does not answer the controller; 1 rank waits for it."


def fleet(*, waiting_s: float = 0.0, moved: rpc.Move | None = None) -> Overview:
    """Return two leaves below two spines, of which spine2 is away; unless its job was moved, it needs that."""
    trees = [[leaf, spine, str(tree)] for tree, spine in enumerate(("spine1", "spine2")) for leaf in ("leaf1", "leaf2")]
    link = FakeLink()
    link.run(20, loss=0.0)
    facts = link.facts(ranks=2)
    members = [replace(one, switch=f"leaf{one.rank + 1}") for one in facts.job.members]
    state = "stalled" if waiting_s else "running"
    job = replace(
        facts.job, members=members, tree=trees[:2] if moved else trees, moved=[moved] if moved else [], state=state
    )
    workers = [replace(one, waiting_s=waiting_s) for one in facts.workers]
    switches = [
        rpc.SwitchInfo(switch=name, p4runtime=f"{name}:9559", state=state, trouble=trouble)
        for name in ("spine1", "spine2", "leaf1", "leaf2")
        for state, trouble in [("away", "no answer") if name == "spine2" else ("settled", "")]
    ]
    links = [rpc.LinkInfo(switch="spine1", port=at, far_switch=f"leaf{at}", far_port=9, in_tree=True) for at in (1, 2)]
    faults = [
        rpc.LinkFault(
            text=f"the link from port 8 of leaf{at} to port {at} of spine2 is gone", switches=[f"leaf{at}", "spine2"]
        )
        for at in (1, 2)
    ]
    there = rpc.LinkList(links=links, faults=[] if moved else faults)
    found = seen(replace(facts, job=job, workers=workers))
    return replace(found, links=there, switches=rpc.SwitchList(switches=switches), trouble="the switch is away")


def test_a_switch_of_several_is_one_sentence_with_its_links_and_with_what_jobs_feel() -> None:
    links = "No answer. Its links to leaf1, leaf2 are gone with it."
    [found] = alerts(fleet(waiting_s=7))
    assert found.text == "Switch spine2 is away; job a has waited 7 s for it."
    assert (found.details, "at spine2:9559" in found.advice) == (links, True)
    assert (found.kind, found.jobs, found.switch) == ("away", ["a"], "spine2")
    [found] = alerts(fleet())
    assert found.text == "Switch spine2 is away; job a needs it, and has not stopped yet."
    what = "its tree has root spine1, not spine2"
    [found] = alerts(fleet(moved=rpc.Move(why="spine2 stays away", what=what, away=["spine2"])))
    assert found.text == "Switch spine2 is away; job a goes on without it."
    assert found.details == "No answer. Job a: its tree has root spine1, not spine2."
    [found] = alerts(fleet(moved=rpc.Move(why="two stay away", what=what, away=["spine2", "spine3"])))
    assert found.text == "Switch spine2 is away; job a goes on without it."
    assert found.details == "No answer. Job a: its tree has root spine1, not spine2."
    unused = replace(fleet(), jobs=[], links=rpc.LinkList())
    assert [one.text for one in alerts(unused)] == ["Switch spine2 is away; no job needs it."]


def test_a_link_that_is_gone_between_switches_that_answer_is_a_fault_of_its_own() -> None:
    whole = fleet()
    answering = [replace(one, state="settled", trouble="") for one in whole.switches.switches]
    two = [rpc.LinkInfo(switch="spine2", port=1, far_switch="leaf1", far_port=8, in_tree=True)]
    itself = rpc.LinkFault(text="leaf1 hears leaf1", switches=["leaf1"])
    links = replace(whole.links, links=[*whole.links.links, *two], faults=[whole.links.faults[1], itself])
    found = alerts(replace(whole, trouble="", switches=rpc.SwitchList(switches=answering), links=links))
    assert [one.text for one in found] == [
        "The link from leaf2 to spine2 is gone; job a needs it, and has not stopped yet.",
        "Links: leaf1 hears leaf1.",
    ]


def test_what_holds_a_job_up_comes_before_what_slows_it_down_and_before_what_is_no_job() -> None:
    link = FakeLink()
    link.run(20, loss=0.04)
    lossy, gone = link.facts(job="lossy"), link.facts(job="gone")
    gone = replace(gone, job=replace(gone.job, members=[replace(one, state="lost") for one in gone.job.members]))
    absent = link.facts(job="train", ranks=3, loss=0.0)
    states = ["seen", "expected", "expected"]
    members = [replace(one, state=state) for one, state in zip(absent.job.members, states, strict=True)]
    absent = replace(absent, job=replace(absent.job, members=members), workers=[], counters={})
    refusals = Refusals()
    refusals.note("trian", 0, UnknownJob("there is no job 'trian'"), 1.0)
    found = alerts(seen(lossy, absent, gone, refused=refusals.latest(2.0)))
    assert [one.kind for one in found] == ["lost", "missing", "link", "link", "refused"]
    assert found[-1].text == "There is no job 'trian'. Is 'train' meant?"
    who = "Rank 0 of job 'trian' was not let in."
    assert found[-1].details == f"{who} 1 s ago. 'train' waits for ranks 1 and 2."


def refused(rank: int, error: SwitchsumError) -> list[rpc.RefusalInfo]:
    refusals = Refusals()
    refusals.note("large", rank, error, 1.0)
    return refusals.latest(2.0)


def test_advice_fits_why_a_job_was_refused() -> None:
    link = FakeLink()
    link.run(20, loss=0.0)
    there = link.facts()
    [found] = alerts(seen(there, refused=refused(-1, UsageError("a job has 1 to 32 workers, not 40"))))
    assert found.text == "Job 'large' was not made: a job has 1 to 32 workers, not 40."
    [found] = alerts(seen(there, refused=refused(-1, NoCapacity("no 99 slots in a row are free"))))
    assert "slots" in found.text
    assert found.advice == "9 are free, and job 'a' has 4."
    [found] = alerts(seen(there, refused=refused(3, UnknownJob("there is no job 'large' (switchsum job list)"))))
    assert found.text == "There is no job 'large'. There are: 'a'."
    assert "It has no slots; 9 are free" in found.details
    [found] = alerts(seen(there, refused=refused(3, WorldSizeMismatch("job 'large' has 2 ranks, not 4", 4))))
    assert "create" not in found.text
    assert found.command == "switchsum job resize large --workers 4"
    # A number in the sentence is no size: here it is one of links, and another size would not help.
    [found] = alerts(seen(there, refused=refused(3, WorldSizeMismatch("rank 3 comes with 2 links, not 1"))))
    assert (found.advice, found.command) == ("", "")
