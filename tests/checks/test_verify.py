"""The search of the protocol's models finds what holds and what does not; `make verify` makes all of them.

The rules of the model's workers are the engine's table.  Each search compiles a program.
"""

from __future__ import annotations

import re

import pytest

from checks.verify.configurations import CONFIGURATIONS, Configuration, Outcome
from checks.verify.designs import DESIGNS
from checks.verify.quorums import QUORUMS
from checks.verify.search import MODELS, missing_tool, search
from checks.verify.trees import TREES
from checks.verify.worker_rules import NOT_MODELLED, QUESTIONS, macros
from switchsum_host.engine.rules import Event

pytestmark = pytest.mark.skipif(bool(missing_tool()), reason=f"{missing_tool()} is not on PATH")
SHORT = [configuration for configuration in CONFIGURATIONS if not configuration.is_long]
ONE_OF_EACH = list({configuration.outcomes: configuration for configuration in reversed(SHORT)}.values())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", ONE_OF_EACH, ids=lambda configuration: configuration.name)
def test_search_comes_to_what_is_expected(configuration: Configuration) -> None:
    finding = search(configuration)
    assert finding.is_expected, finding
    assert finding.states > 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["3 rounds", "a final result is not sent up", "old cookies in the new tree"])
def test_search_of_a_tree_comes_to_what_is_expected(name: str) -> None:
    (configuration,) = (c for c in TREES if c.name == f"tree: {name}")
    finding = search(configuration)
    assert finding.is_expected, finding
    assert finding.states > 20


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("configuration", [c for c in (*QUORUMS, *DESIGNS) if not c.is_long], ids=lambda c: c.name)
def test_search_of_a_quorum_or_a_design_comes_to_what_is_expected(configuration: Configuration) -> None:
    finding = search(configuration)
    assert finding.is_expected, finding
    assert finding.states > 20


@pytest.mark.parametrize("model", ["quorum.pml", "shared.pml", "passing.pml"])
def test_every_broken_rule_is_in_its_model(model: str) -> None:
    used = {name for c in (*QUORUMS, *DESIGNS) if c.model == model for name in c.macros}
    text = (MODELS / model).read_text()
    assert all(f"#ifdef {name}" in text or f"#ifndef {name}" in text for name in used)
    assert set(re.findall(r"BREAK_\w+", text)) <= used


def test_trees_are_searched_with_switches_cleared_at_either_level_and_rules_broken() -> None:
    names = [c.name for c in TREES]
    assert len(set(names)) == len(names)
    holding = {name for c in TREES if c.outcomes == (Outcome.HOLDS,) and not c.is_long for name in c.macros}
    assert holding >= {"ROOT_CLEARS", "LEAF_CLEARS", "MOVES", "MOVES_MEMBER"}
    used = {name for c in TREES for name in c.macros}
    text = (MODELS / "tree.pml").read_text()
    assert all(f"#ifdef {name}" in text or f"#ifndef {name}" in text for name in used)
    assert sum(name.startswith("BREAK_") for name in used) >= 7


def test_what_holds_is_searched_with_every_feature() -> None:
    macros = {name for c in SHORT if c.outcomes == (Outcome.HOLDS,) for name in c.macros}
    assert macros >= {"WORKERS", "MIXED", "CLEARS", "HAND_OVER", "WORKERS_AFTER", "KILLS"}
    assert not any(name.startswith("BREAK_") for name in macros)


def test_every_event_of_the_engine_is_in_the_model_or_is_said_not_to_be() -> None:
    events = {event for _, event, _ in QUESTIONS.values()}
    assert events | NOT_MODELLED.keys() == set(Event)
    assert not events & NOT_MODELLED.keys()
    text = (MODELS / "worker.pml").read_text()
    assert all(name in text for name in QUESTIONS)


def test_changing_an_entry_of_the_table_changes_the_model_and_some_search_shows_what_comes_of_it() -> None:
    shown = set()
    for configuration in CONFIGURATIONS:
        changed = macros(configuration.changes)
        shown |= {name for name in QUESTIONS if changed[name] != macros({})[name]}
        assert Outcome.HOLDS not in configuration.outcomes or not configuration.changes
    # A round that stays outstanding for ever is only repeated more often.
    assert shown == QUESTIONS.keys() - {"NEXT_ACKNOWLEDGES"}
