"""Each situation has its sentence first, blames no part that works, and is the same in explain, top and the page."""

from __future__ import annotations

import random
import re
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from checks.situations.drill import draw, drill
from checks.situations.play import judge
from checks.situations.table import SITUATIONS, Situation
from switchsum.cli.top import shown
from switchsum.view.alerts import alerts
from switchsum.view.explain import explain, headline
from switchsum.view.facts import Facts, Overview
from switchsum.view.ranks import rows_of_ranks
from switchsum.view.rules import RULES, Level
from switchsum.view.symptoms import GRACE_S, SYMPTOMS
from switchsum.view.words import percent
from switchsum_protocol import rpc

from .made_up import DIFFER, MADE_UP, calls_of, changed, ended, facts, lossy, state, steady

BY_NAME = {one.name: one for one in SITUATIONS}
PROCESSES = {"other dtype", "the controller is stopped", "a rank dies"}
"""Situations whose sentence is no finding: tests/host/test_join.py and tests/system have these."""


def overview(known: Facts) -> Overview:
    info = rpc.ControllerInfo(
        package_version="1", wire_version=4, program_digest="d", lanes_per_frame=256, switch="s1", free_slots=9
    )
    return Overview(at_s=0.0, info=info, jobs=[known], trouble=known.trouble)


def test_there_are_thirty_and_each_is_made_up_or_needs_processes() -> None:
    assert len(SITUATIONS) == len(BY_NAME) == 30
    assert {*MADE_UP} | PROCESSES == {*BY_NAME}
    assert all(one.system for one in SITUATIONS if one.name in PROCESSES)


@pytest.mark.parametrize("name", MADE_UP)
def test_the_first_sentence_is_right_and_no_part_that_works_is_blamed(name: str) -> None:
    known = MADE_UP[name]()
    found = explain(known)
    outcome = judge(BY_NAME[name], [one.text for one in found])
    assert outcome.is_right, outcome.said
    assert outcome.is_innocent, outcome.said
    for text in (text for one in found for text in (one.text, one.details, one.advice, one.command)):
        assert not re.search(r"[{}]|: \.|  |^ | $|\.\.", text), text
    reported = alerts(overview(known))
    is_fine = found[0].kind == "fine"
    assert (not reported) == is_fine  # the page says "Nothing." where explain says so, and only there
    if not is_fine:
        assert reported[0].text == found[0].text
        assert reported[0].advice


def test_every_rule_has_a_symptom_and_every_symptom_a_rule() -> None:
    assert [one.symptom for one in RULES] == [*SYMPTOMS]
    met = {one.symptom for known in MADE_UP.values() for one in explain(known())}
    beside = {one.symptom for one in RULES if one.level is Level.BESIDE}
    elsewhere = {
        "ranks are lost",  # tests/test_explain.py has these
        *(
            "ranks are lost",
            "the job has ended with lost ranks",
            "the job has ended",
            "nobody has joined",
            "no frame has come",
            "all have come",
            "switch has all and answers nobody",
        ),
        *("ranks are missing in a collective", "ranks are silent", "links of interfaces lose", "a rank sends late"),
    }
    assert {*SYMPTOMS} - met == beside | elsewhere


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_said_only_where_ranks_wait_for_a_small_share(seed: int) -> None:
    """Delays of chance, short and long, of all ranks or of one: above a tenth of the time the sentence is another."""
    chance = random.Random(seed)
    every, late_ms, culprit = chance.randrange(1, 30), chance.uniform(1, 400), chance.choice([None, 0, 3])

    def delay(step: int, rank: int) -> float:
        return late_ms * (chance.randrange(every) == 0 and culprit in (None, rank))

    calls = calls_of(delay)
    [span, *_] = calls.spans
    waits = sum(span.waiting_s) / sum(span.time_s)
    first = explain(facts(calls))[0]
    if abs(waits - 0.1) > 0.01:
        assert (first.kind == "fine") <= (waits < 0.1), (waits, first.text)
        assert (first.kind == "waits") <= (waits > 0.1), (waits, first.text)
    if first.kind == "late":
        assert first.ranks == [culprit] or culprit is None


def test_how_a_job_has_ended_is_said_until_it_begins_anew() -> None:
    for values, kind, text in (
        ({}, "nobody", "All ranks have left, and the job has ended: it waits for ranks 0-3 to be started again."),
        ({"broken": "lost", "broken_ranks": [1]}, "lost", "The job has ended, because rank 1 was lost: "),
        ({"broken": "lost", "broken_ranks": [1, 3]}, "lost", "The job has ended, because ranks 1 and 3 were lost: "),
        ({"broken": "mismatch", "broken_ranks": [2], "broken_text": DIFFER}, "mismatch", f"The ranks .*job: {DIFFER}"),
    ):
        [found] = explain(ended(**values))
        assert found.kind == kind
        assert re.match(text.replace("(", r"\(").replace(")", r"\)").replace("[", r"\["), found.text), found.text
        assert found.ranks == values.get("broken_ranks", [0, 1, 2, 3])
        anew = state(ended(**values), "seen", "expected", "expected", "expected", starting_s=3.0)
        assert [one.kind for one in explain(anew)] == ["starting"]
    [found] = explain(state(facts(), *(["expected"] * 4)))
    assert found.text == "No rank has joined: the job waits for ranks 0-3."


def test_ranks_that_end_by_a_mismatch_are_not_lost_ones() -> None:
    known = state(
        facts(), "lost", "admitted", "lost", "admitted", broken="mismatch", broken_ranks=[2], broken_text=DIFFER
    )
    first, *others = explain(known)
    assert (first.kind, first.ranks) == ("mismatch", [2])
    assert "lost" not in [one.kind for one in others]


def test_a_tree_is_shown_as_one() -> None:
    job = facts().job
    for tree, said in (
        ([], "of the switch"),
        ([["leaf2", "spine1"], ["leaf1", "spine1"]], "of a tree of 3 switches: leaf1 and leaf2 below spine1"),
        ([[f"leaf{one}", "spine1"] for one in range(8)], "of a tree of 9 switches"),
        ([["leaf1", "spine1", "0"], ["leaf1", "spine2", "1"]], "of 2 trees over 3 switches"),
    ):
        assert headline(replace(facts(), job=replace(job, tree=tree))).endswith(f"slots 0 to 255 {said}")


def test_words_fit_one_rank_and_several() -> None:
    for ranks, its in (([1], "its socket has"), ([0, 1, 2, 3], "their sockets have")):
        found = [one for one in explain(lossy(facts(), ranks, 0.03)) if one.kind == "link"]
        assert any(its in one.advice for one in found), found
    wanders = facts(calls_of(lambda step, rank: 500.0 * ((step + 7 * rank) % 25 == 0)))
    [first, *_] = explain(wanders)
    assert ", and 1 more rank now and then." in first.text


def test_ranks_that_start_are_not_missed_within_a_minute() -> None:
    states = ["seen", "joined", "expected", "expected"]
    for starting_s, kinds in ((1.0, ["starting"]), (GRACE_S - 1, ["starting"]), (GRACE_S + 1, ["missing", "missing"])):
        found = explain(state(facts(), *states, starting_s=starting_s))
        assert [one.kind for one in found] == kinds
        assert ("resize" in " ".join(one.command for one in found)) == (kinds[0] == "missing")


def test_no_rank_is_sent_to_job_resize_where_a_launcher_has_chosen_the_size() -> None:
    for is_launched in (False, True):
        known = state(facts(), "seen", "seen", "expected", "expected", ephemeral=is_launched)
        [found] = explain(known)
        assert ("resize" in found.command) is not is_launched
        assert found.advice


def test_a_slow_rank_whose_link_is_memory_is_no_slow_link() -> None:
    known = MADE_UP["a slow link"]()
    in_memory = replace(known, workers=[replace(one, link="shm:x") for one in known.workers])
    assert explain(in_memory)[0].text.startswith("Rank 2 (vm) sends more slowly than the others")
    assert explain(replace(known, arrivals=facts().arrivals))[0].kind == "fine"
    little = replace(known, calls=calls_of(steady, moving_ms=0.5))
    assert explain(little)[0].kind == "fine"


def test_repeats_are_split_into_what_was_lost_and_what_was_asked_again() -> None:
    known = lossy(facts(), [2], 0.03)
    [found] = [one for one in explain(known) if one.kind == "link"]
    assert "1200 of 20000 contributions or their answers were lost" in found.details
    assert "300 more were asked for again, and nothing was lost" in found.details


def test_a_lossy_card_is_looked_at_with_ip_and_a_socket_with_ss() -> None:
    for link, command in (("packet:eth0", "ip -s link show"), ("udp:10.0.0.1", "ss -uam")):
        [found] = [one for one in explain(lossy(facts(link=link), [1], 0.03)) if one.kind == "link"]
        assert found.command == command


def test_marks_are_seen_in_the_table_of_top() -> None:
    known = MADE_UP["a congested port"]()
    rows = rows_of_ranks(known, 1.0, {})
    assert [row["marked_share"] > 0.25 for row in rows] == [False, False, True, False]
    group = shown("ranks", rows, ["x"])
    console = Console(width=200, file=StringIO())
    console.print(group)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "marked" in printed
    assert percent(rows[2]["marked_share"]) in printed


def test_a_rank_that_is_late_while_another_job_is_lossy_is_told_first_for_what_it_costs() -> None:
    late = facts(calls_of(lambda _, rank: 15.0 * (rank == 1)))
    found = explain(lossy(late, [3], 0.003))
    assert [one.kind for one in found] == ["late", "link"]
    assert explain(changed(late, 1, age_s=8.0))[0].kind == "silent"


def test_the_drawn_order_of_rules_is_that_of_what_outweighs() -> None:
    levels = [one.level for one in RULES]
    assert levels == sorted(levels)


def test_ranks_that_wait_for_a_lossy_link_are_not_told_that_nobody_is_to_blame() -> None:
    wander = MADE_UP["pauses that wander"]()
    assert [one.kind for one in explain(lossy(wander, [2], 0.02))] == ["link"]
    assert re.search(r"; ranks wait [56]\d % of the time", explain(lossy(wander, [2], 0.02))[0].text)
    assert explain(lossy(wander, [2], 0.002))[0].kind == "waits"


def test_a_drill_draws_each_situation_once_and_tells_it_after_the_answer_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = draw(10, 3)
    assert len({one.name for one in drawn}) == 10
    assert drawn == draw(10, 3) != draw(10, 4)
    assert len(draw(99, 3)) == sum(bool(one.system) for one in SITUATIONS)

    class Nothing:
        folder = Path("runs-here")

        def __init__(self, stack: ExitStack, situation: Situation) -> None:
            assert situation is one

        def begin(self) -> None: ...
        def spoil(self) -> None: ...

    def answer(question: str) -> str:
        reported = capsys.readouterr().out
        assert "runs-here" in reported
        assert one.what not in reported
        assert one.name not in reported
        return f"it is this, {question}"

    one = replace(next(one for one in drawn if "rank" in one.what), wait_s=0.0)
    monkeypatch.setattr("checks.situations.drill.Played", Nothing)
    monkeypatch.setattr("builtins.input", answer)
    drill([one])
    reported = capsys.readouterr().out
    assert f"It was: {one.what} ({one.name})." in reported
    assert "| it is this, What is wrong?  |" in reported


@pytest.mark.parametrize(("moving_ms", "said"), [(200.0, r"; sums travel 9\d % of the time\. In"), (2.0, r"\. In")])
def test_where_nobody_is_to_blame_it_is_said_for_how_long_sums_travel(moving_ms: float, said: str) -> None:
    found = explain(facts(calls_of(steady, moving_ms=moving_ms)))
    assert found[0].kind == "fine"
    assert re.match(rf"No rank waits for another for long{said}", found[0].text)
