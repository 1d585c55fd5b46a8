"""What `switchsum explain` concludes from facts; real jobs are in tests/system/test_explain.py."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from switchsum.cli.observe import contributors
from switchsum.launch.builds import Slots, read_shared
from switchsum.view import findings
from switchsum.view.alerts import slots_owned
from switchsum.view.arrivals import Arrivals, ArrivalsOfJobs
from switchsum.view.explain import explain, headline
from switchsum.view.facts import Facts, is_over
from switchsum.view.losses import lost_frames
from switchsum.view.rounds import newest_rounds
from switchsum.view.symptoms import last_to_come, unfinished
from switchsum.view.words import link_text
from switchsum_controller.jobs.late_calls import Calls
from switchsum_protocol import rpc
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import Flag
from switchsum_protocol.reports import RecentFigures
from switchsum_protocol.rpc import WorkerInfo
from tests.situations.made_up import MADE_UP, ended


def facts(*workers: WorkerInfo, state: str = "running", members: tuple[str, ...] = ("admitted",) * 3) -> Facts:
    job = rpc.JobInfo(
        job="a", number=1, epoch=1, state=state, workers=len(members), first_slot=0, slot_count=4,
        members=[rpc.MemberInfo(rank=rank, state=state) for rank, state in enumerate(members)],
    )  # fmt: skip
    return Facts(job=job, workers=list(workers), counters={}, slots=[], ports=rpc.PortList())


def sharing() -> Facts:
    """Return what is known of a job that shares slots, and has found some taken."""
    known = facts(*BUSY)
    reasons = [rpc.ReasonCount(reason="contributed", packets=75), rpc.ReasonCount(reason="taken", packets=25)]
    sent = rpc.MemberCounters(job="a", rank=0, contributions=100, contribution_bytes=1, results=100, reasons=reasons)
    return replace(known, job=replace(known.job, shares_slots=True, fallback="spare"), counters={0: sent})


def links_of(known: Facts) -> list[findings.Finding]:
    return [one for one in explain(known) if one.kind == "link"]


def cell(slot: int, number: int, seen: int) -> rpc.SlotInfo:
    return rpc.SlotInfo(slot=slot, version=number % 2, number=number, seen=seen, flags=0, block=0, next_block=0)


PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
BUSY = [WorkerInfo(rank=rank, age_s=0.5, begun=7, finished=6, waiting_s=0.2) for rank in range(3)]


def test_a_job_at_work_is_fine() -> None:
    [found] = explain(facts(*BUSY))
    assert found.kind == "fine"


def test_a_lost_rank_a_lost_switch_and_a_silent_rank_are_told_apart() -> None:
    [lost] = explain(facts(*BUSY, members=("admitted", "lost", "admitted"), state="draining"))
    assert (lost.kind, lost.ranks) == ("lost", [1])
    [switch] = explain(facts(*BUSY, state="stalled"))
    assert switch.kind == "switch"
    [silent] = explain(facts(*BUSY[:2], replace(BUSY[2], age_s=9.0)))
    assert (silent.kind, silent.ranks) == ("silent", [2])


def test_ranks_that_have_all_come_wait_for_a_switch_that_is_named() -> None:
    [found] = explain(replace(facts(members=("seen",) * 3, state="waiting"), away=["spare"]))
    assert (found.kind, found.text) == ("switch", "All ranks have come, and wait for switch spare.")
    [found] = explain(facts(members=("seen",) * 3, state="waiting"))
    assert found.text == "All ranks have come, and wait for a switch to be set up for them."


def test_the_sentence_on_a_straggler_names_the_collective_once() -> None:
    waits = replace(BUSY[0], begun=8, waiting_s=12.0, operation="allreduce (sum) of float32[5000]")
    [found] = explain(facts(waits, replace(BUSY[1], waiting_s=0.0), replace(waits, rank=2)))
    assert (found.kind, found.ranks) == ("straggler", [1])
    assert found.text == "Rank 1 has been missing in a collective for 12 s; ranks 0 and 2 wait for it."
    assert found.details.startswith(
        "Ranks 0 and 2 have waited 12 s in collective 8, allreduce (sum) of float32[5000]. Rank 1 has begun 7"
    )


def test_an_aggregator_that_does_not_answer_is_named_and_no_link_is_blamed_for_it() -> None:
    known = sharing()
    waits = [replace(one, waiting_s=9.0, frames_sent=1000, repeats=500) for one in known.workers]
    for state in ("running", "stalled"):
        gone = replace(known, job=replace(known.job, state=state), workers=waits, away=["spare"])
        [found] = [one for one in explain(gone) if one.kind != "taken"]
        assert found.kind == "switch"
        assert found.text == "The aggregator 'spare' does not answer; 3 ranks wait for it."
    assert "does not answer" not in explain(replace(known, away=["leaf"]))[0].text
    assert is_over(known.job, "spare")


def test_how_often_a_job_met_a_taken_slot_is_said() -> None:
    said = [one for one in explain(sharing()) if one.kind == "taken"]
    assert [one.text for one in said] == [
        "25 % of its 100 contributions came to a slot that another job held. They went on to the "
        "aggregator 'spare', which took longer."
    ]
    held = [replace(cell(slot, 1, 1), job=job) for slot, job in enumerate(["b", "b", "c", "a"])]
    [named] = [one for one in explain(replace(sharing(), slots=held)) if one.kind == "taken"]
    assert named.details == "Of its 4 slots job b holds 2 and job c holds 1 now."
    early = replace(sharing().counters[0], contributions=0)  # these are counted a moment before the reasons
    [alone] = [one for one in explain(replace(sharing(), counters={0: early})) if one.kind == "taken"]
    assert alone.text.startswith("100 % of its 25 contributions came to a slot that another job held.")
    own = replace(sharing(), job=facts(*BUSY).job)
    assert all(one.kind != "taken" for one in explain(own))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("auto", Slots()),
        ("8", Slots(count=8)),
        ("shared", Slots(is_shared=True)),
        ("shared:8", Slots(is_shared=True, count=8)),
        ("64+shared", Slots(is_shared=True, own=64)),
        ("64+shared:8", Slots(is_shared=True, count=8, own=64)),
    ],
)
def test_slots_may_be_shared(text: str, read: Slots) -> None:
    assert read_shared(text) == read


@pytest.mark.parametrize("text", ["shared:x", "shared:", "sharde", "8:8", "", "+shared", "0+shared", "8+8", "shared+8"])
def test_slots_that_are_no_number_are_refused_with_all_that_there_is(text: str) -> None:
    ways = "a number, auto, shared, shared:N, M+shared or M+shared:N"
    with pytest.raises(UsageError, match=re.escape(f"{ways}, not {text}")):
        read_shared(text)


def test_slots_of_a_jobs_own_are_named_beside_those_that_it_shares() -> None:
    job = replace(facts(*BUSY).job, shares_slots=True, first_slot=0, slot_count=8, own_first_slot=16, own_slot_count=4)
    said = headline(replace(facts(*BUSY), job=job))
    assert said.endswith("3 ranks, slots 16 to 19, shared 0 to 7 of the switch")
    assert slots_owned([job], 12) == f"12 are free, and job {job.job!r} has 4"
    assert slots_owned([replace(job, own_slot_count=0)], 16) == "16 are free, and no job has any"


def test_who_was_left_out_of_operations_is_named_with_how_often() -> None:
    job = replace(facts(*BUSY).job, agreed=40, waits=3, left_out=[[2, 17]], refused_terms=[[1, 2]], held_up="no slots")
    job = replace(job, given_model=[[2, 1]])
    left_out, refused, held_up = explain(replace(facts(*BUSY), job=job))[1:4]
    assert (left_out.kind, left_out.ranks) == ("left out", [2])
    assert left_out.text.startswith(
        "40 operations could go on without ranks that are late. 17 left out rank 2. 3 of the operations waited"
    )
    assert left_out.text.endswith("So late that it was given the model was rank 2 once.")
    assert (refused.ranks, refused.text.startswith("Rank 1 asked 2 times on other terms")) == ([1], True)
    assert held_up.text == "An operation with a quorum cannot begin yet: no slots."


def test_only_the_newest_round_of_a_slot_says_who_is_missing_across_the_end_of_numbers() -> None:
    end = (1 << 32) - 1
    cells = [cell(0, end, 0b011), cell(0, 0, 0b111), cell(1, end, 0b111), cell(1, 0, 0b101), cell(2, 0, 0)]
    assert unfinished(replace(facts(*BUSY), slots=cells)) == ([1], [1])


def in_tree() -> rpc.JobInfo:
    """Four ranks, 0 and 2 at one leaf, 1 and 3 at the other one."""
    at = ("left", "right", "left", "right")
    members = [rpc.MemberInfo(rank=rank, state="admitted", switch=name) for rank, name in enumerate(at)]
    tree = [["left", "root"], ["right", "root"]]
    return replace(facts(members=("admitted",) * 4).job, members=members, tree=tree)


def test_bits_of_cells_in_a_tree_are_places_at_each_switch() -> None:
    def at(switch: str, seen: int, number: int = 5, slot: int = 0, flags: int = 0) -> rpc.SlotInfo:
        return replace(cell(slot, number, seen), switch=switch, flags=flags)

    job, done = in_tree(), Flag.FINAL
    cells = [at("root", 0b01), at("left", 0b11), at("right", 0b01)]
    cells += [at("root", 0b11, slot=1), at("left", 0b11, slot=1, flags=done), at("right", 0b11, slot=1)]
    cells += [at("root", 0b11, 4, slot=2), at("left", 0b01, 5, slot=2), at("right", 0b11, 4, slot=2, flags=done)]
    cells += [at("root", 0b11, slot=3), at("left", 0b11, slot=3), at("right", 0b11, slot=3)]  # sums have not come down
    found = newest_rounds(job, cells)
    assert [(one.missing, one.is_complete) for one in found] == [
        ([3], False),
        ([], True),
        ([1, 2, 3], False),
        ([], False),
    ]
    assert unfinished(replace(facts(*BUSY), job=job, slots=cells)) == ([0, 2, 3], [1, 2, 3])
    assert [contributors(one, job) for one in cells[:3]] == ["1 switch below", "0, 2", "1"]
    assert contributors(cell(0, 1, 0b1011)) == "0-1, 3"


def test_whose_contributions_come_last_is_a_matter_of_time_and_not_of_rounds() -> None:
    """Rank 2 is a long way off: 27 slots wait for it nearly always, and for a moment 200 wait for the others."""
    job, looks = facts(members=("admitted",) * 4).job, ArrivalsOfJobs()
    for look in range(8):
        rounds, contributed = (200, 0b0100) if look == 3 else (27, 0b1011)
        looks.note(job, [cell(slot, 1, contributed) for slot in range(rounds)], float(look))
    seen = looks.of(job.job, 8.0)
    assert [seen.share(rank) for rank in range(4)] == pytest.approx([1 / 8, 1 / 8, 7 / 8, 1 / 8])
    assert looks.of(job.job, 100.0).looks == 0


@pytest.mark.parametrize(
    ("held", "missing", "found"),
    [
        ((500, 450, 0, 400), (0.7, 0.7, 0.3, 0.7), 2),  # a long way off, and the others catch up
        ((20, 260, 15, 250), (0.14, 0.3, 0.78, 0.14), 2),  # of two that hear little, the one that is missing
        ((20, 260, 15, 250), (0.5, 0.3, 0.6, 0.14), None),
        ((500, 450, 420, 400), (0.7, 0.7, 0.3, 0.7), None),  # all wait for one another
        ((20, 25, 0, 15), (0.3, 0.3, 0.3, 0.3), None),  # too few
    ],
)
def test_a_rank_is_slow_that_never_hears_that_others_are_missing(
    held: tuple[int, ...], missing: tuple[float, ...], found: int | None
) -> None:
    workers = [
        replace(one, rank=rank, link="udp:h:1", recent=RecentFigures(seconds=10.0, rounds=20_000, held=count))
        for rank, (one, count) in enumerate(zip([*BUSY, BUSY[0]], held, strict=True))
    ]
    seen = Arrivals(looks=8, rounds=200, missing=dict(enumerate(missing)))
    rank = last_to_come(replace(facts(*workers, members=("admitted",) * 4), arrivals=seen))
    assert (None if rank is None else rank[0]) == found


def test_a_folder_that_nobody_chose_is_no_part_of_a_links_name() -> None:
    several = "shm:/tmp/switchsum-4w9z/links1,udp:127.0.0.1:21333@2"
    texts = [link_text(one) for one in ("shm:mine", several, "packet:sum0", "")]
    assert texts == ["shm:mine", "shm,udp:127.0.0.1:21333@2", "packet:sum0", ""]


def test_repeats_that_are_answered_are_no_loss() -> None:
    worker = WorkerInfo(
        rank=0, age_s=0.1, frames_sent=1600, frames_received=1580, waiting_slots=20, rounds=400, repeats=1180
    )
    counters = rpc.MemberCounters(job="a", rank=0, contributions=1664, contribution_bytes=1, results=400)
    assert lost_frames(worker, counters) == (0, 0)
    lossy = replace(worker, frames_received=1380)
    assert lost_frames(lossy, replace(counters, contributions=1500)) == (100, 100)
    assert lost_frames(lossy, counters) == (0, 200)
    [found] = links_of(replace(facts(lossy), counters={0: counters}))
    assert (found.kind, found.ranks) == ("link", [0])
    assert found.text == "The link of rank 0 loses 12 %; no rank waits for long."
    assert "200 of 1600 contributions or their answers were lost: about 0 on the way to the switch" in found.details


def test_the_way_of_a_loss_is_not_told_where_repeats_since_the_report_hide_it() -> None:
    worker = WorkerInfo(rank=0, age_s=0.9, frames_sent=2844, frames_received=2642, waiting_slots=79, rounds=474)
    counters = rpc.MemberCounters(job="a", rank=0, contributions=3015, contribution_bytes=1, results=474)
    [found] = links_of(replace(facts(worker), counters={0: counters}))
    assert "123 of 2844 contributions or their answers were lost." in found.details
    assert "on the way" not in found.details


def test_recalls_that_a_leaf_sends_up_are_no_loss() -> None:
    worker = WorkerInfo(
        rank=0,
        age_s=0.1,
        frames_sent=1600,
        frames_received=1280,
        waiting_slots=20,
        rounds=400,
        repeats=1180,
        recalled=300,
    )
    counters = rpc.MemberCounters(job="a", rank=0, contributions=1664, contribution_bytes=1, results=400)
    alone = replace(facts(worker), counters={0: counters})
    assert [found.ranks for found in links_of(alone)] == [[0]]  # a single switch answers them, and it did not
    assert links_of(replace(alone, job=in_tree())) == []


def made_up(name: str) -> Facts:
    return MADE_UP[name]()


STUCK = [replace(one, waiting_s=12.0, operation="allreduce (sum) of float32[5000]") for one in BUSY]
STRAGGLES = replace(BUSY[1], begun=6, waiting_s=0.0, idle_s=12.0)
LOSSY = WorkerInfo(rank=2, age_s=0.1, frames_sent=16600, frames_received=15770, rounds=8300)
SENT = rpc.MemberCounters(job="a", rank=2, contributions=16600, contribution_bytes=1, results=8300)
LATE = Calls(3)
for _rank in range(3):
    LATE.take(_rank, [[step, 0, 10**8 * step + 2 * 10**7 * (_rank == 1), 3 * 10**7 - 2 * 10**7 * (_rank == 1), 1]
                      for step in range(100)], ["allreduce (sum) of float32[5000]"], 5.0)  # fmt: skip
CASES = {
    "all but one rank wait": replace(facts(STUCK[0], STRAGGLES, STUCK[2]), slots=[cell(0, 1, 0b101)]),
    "steps take longer than they did": replace(facts(*BUSY[:2], LOSSY), counters={2: SENT}),
    "nothing begins yet": replace(
        facts(members=("seen", "expected")), job=replace(facts(members=("seen", "expected")).job, starting_s=4.0)
    ),
    "each rank pauses now and then": made_up("pauses that wander"),
    "one rank pauses now and then": made_up("pauses of one rank"),
    "a rank is in the collective, and nothing comes through": made_up("a dead link"),
    "one link holds up all ranks": made_up("a slow link"),
    "a queue is long": made_up("a congested port"),
    "nothing begins": facts(members=("seen", "expected")),
    "a rank has ended, the others raise or wait": facts(*BUSY, members=("admitted", "lost", "admitted")),
    "a rank has joined, but may not add yet": facts(members=("seen", "joined")),
    "all ranks have raised `OperationMismatch` and ended": made_up("other size"),
    "the job has ended with lost ranks": ended(broken="lost", broken_ranks=[2]),
    "a job with shared slots stands still": made_up("the aggregator is stopped"),
    "a rank does not report": facts(*BUSY[:2], replace(BUSY[2], age_s=9.0)),
    "the switch is gone, and all ranks wait": facts(*BUSY, state="stalled"),
    "all ranks wait, and nobody is missing": facts(*(replace(one, waiting_s=4.0) for one in BUSY)),
    "each step takes a little too long": replace(facts(*BUSY), calls=LATE.report(5.0)),
    "a job with shared slots is slow": sharing(),
    "the job is slow, and nobody waits": facts(*BUSY),
}


def lines() -> dict[str, tuple[list[str], list[str]]]:
    """Return what the page quotes and the kinds that it names, by symptom."""
    found = {}
    for line in PAGE.read_text().partition("| symptom |")[2].splitlines()[2:]:
        if not line.startswith("| "):
            break
        symptom, says, *_ = [one.strip() for one in line.strip("|").split("|")]
        quoted = [one for one in re.findall(r"`([^`]+)`", says) if " " in one]
        found[symptom] = quoted, re.findall(r"\(`(\w+)`\)", says)
    return found


def test_every_line_of_the_page_has_a_case() -> None:
    assert {*lines()} - {*CASES} == {"`there is no job`"}  # said by the command, not by what it concludes
    kinds = {kind for _, named in lines().values() for kind in named}
    text = Path(findings.__file__).read_text().partition("    kind: str\n")[2].partition("text: str")[0]
    assert kinds == set(re.findall(r"`(\w+)`", text))


@pytest.mark.parametrize("symptom", CASES)
def test_what_the_page_quotes_is_what_is_said(symptom: str) -> None:
    quoted, kinds = lines()[symptom]
    found = explain(CASES[symptom])
    if symptom == "a queue is long":
        found += explain(made_up("a congested way that all share"))
    if symptom == "nothing begins":
        found += explain(facts(members=("expected", "expected")))
    assert {one.kind for one in found} & {*kinds} == {*kinds}
    said = plain(" ".join(f"{one.text} {one.details}" for one in found if one.kind in kinds))
    for sentence in quoted:
        assert plain(sentence) in said


def plain(text: str) -> str:
    """Return a text without numbers and what stands in brackets, which are those of another job."""
    text = re.sub(r" ?(\([^)]*\)|\[[^]]*\])", "", text).replace("ranks", "rank")
    return re.sub(r"\d+(([-, ]+| and )\d+)*", "#", text)


def test_each_finding_says_what_to_do() -> None:
    for symptom, case in CASES.items():
        assert all(one.advice for one in explain(case) if one.kind != "fine"), symptom
