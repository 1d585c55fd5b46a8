"""docs/results/conformance.md from what `python -m checks.conformance` has measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from . import generated, minutes, public
from .cases import PASSED, SWITCHES, cell
from .published import LISTS, verdict

NAMES: Final = {"interpreter": "embedded switch, interpreter", "native": "embedded switch, native", "bmv2": "BMv2"}
HEAD: Final = """# How much of v1model the embedded switch runs

Made by `python -m checks.conformance` from its last run; do not edit.

p4c's repository has tests of its back ends in the format STF: a program, table entries, packets, and the frames that
must leave. The tests for v1model were run on both engines of the embedded switch and on real BMv2, by the same
runner ([stf.md](../../switch/docs/stf.md)). None of them is part of this repository. To run them again, with
`p4c-bm2-ss` and `simple_switch_grpc` on PATH:

```console
$ python -m checks.conformance path/of/a/clone/of/p4c
```
"""
DIFFERENCES: Final = Path(__file__).with_name("differences.md")


PUBLISHED: Final = ("4ward", "bmv2")
REPOSITORIES: Final = {"4ward": "4ward-p4/4ward", "bmv2": "p4lang/p4c"}


def page(record: Mapping[str, Any]) -> str:
    """Return the text of the page for a record."""
    lists = json.loads(LISTS.read_text())
    cases = record["cases"]
    others: list[str] = []
    for part in (generated, public, minutes):
        if part.RECORD.exists():
            others += part.section(json.loads(part.RECORD.read_text()))
    return "\n".join(
        [
            *(HEAD, *_summary(record, lists), *_failures(cases, lists), *_excluded(cases), *others),
            *("", DIFFERENCES.read_text()),
        ]
    )


def _list_name(lists: Mapping[str, Any], who: str) -> str:
    if who == "4ward":
        return f"4ward, by its own list of {lists[who]['date']}"
    return f"BMv2, by the list of p4c {lists[who]['p4c']}"


def _summary(record: Mapping[str, Any], lists: Mapping[str, Any]) -> Iterator[str]:
    cases = [case for case in record["cases"] if not case["excluded"]]
    languages = sorted({case["language"] for case in cases}, reverse=True)
    dates = record["dates"]
    each = [f"{language} on {date}" for language, date in sorted(dates.items(), reverse=True)]
    when = " and ".join(each) if len(set(dates.values())) > 1 else f"on {max(dates.values())}"
    yield f"These tests ran with p4c {record['p4c']} and BMv2 {record['bmv2']}, {when}:"
    yield ""
    yield "| switch | " + " | ".join(f"{language} passed" for language in languages) + " | refused | wrong |"
    yield "|---|" + "---|" * (len(languages) + 2)
    total = Counter(case["language"] for case in cases)
    for switch in SWITCHES:
        results = [(case["language"], case["results"].get(switch, "")) for case in cases]
        passed = Counter(language for language, result in results if result == PASSED)
        refused = sum(result.startswith("refused") for _, result in results)
        wrong = sum(result != PASSED and not result.startswith("refused") for _, result in results)
        cells = [f"{passed[language]} of {total[language]}" for language in languages]
        yield f"| {NAMES[switch]} | {' | '.join(cells)} | {refused} | {wrong} |"
    for who in PUBLISHED:
        said = Counter(case["language"] for case in cases if verdict(lists, who, case["name"]) == PASSED)
        cells = [f"{said[one]} of {total[one]}" if said[one] else "none listed" for one in languages]
        yield f"| {_list_name(lists, who)} | {' | '.join(cells)} | | |"
    yield ""
    yield "The last two rows are from lists that others publish of the same tests; nothing was run for them."
    yield ""
    fourward, bmv2 = (f"`{lists[who]['list']}` of github.com/{REPOSITORIES[who]}" for who in PUBLISHED)
    yield f"- 4ward: {fourward} names the tests that must pass there. It has no test of P4_14, and none that"
    yield "  p4c compiles with another option; a test that is not in the list may still pass."
    yield f"- BMv2: {bmv2} names the programs that are expected to fail there."


def _failures(cases: Sequence[Mapping[str, Any]], lists: Mapping[str, Any]) -> Iterator[str]:
    failed = [
        case for case in cases if not case["excluded"] and any(result != PASSED for result in case["results"].values())
    ]
    if not failed:
        return
    yield "\n## Tests that do not pass\n"
    yield "p4c's own runner does not look at `check_counter`; this one does, on BMv2 as well.\n"
    yield "| test | embedded switch | BMv2 | 4ward's list | p4c's list of BMv2 |"
    yield "|---|---|---|---|---|"
    for case in failed:
        interpreted, native, bmv2 = (cell(case["results"].get(switch, "not run")) for switch in SWITCHES)
        ours = native if native == interpreted else f"interpreter: {interpreted}; native: {native}"
        said = " | ".join(verdict(lists, who, case["name"]) for who in PUBLISHED)
        yield f"| {case['name']} | {ours} | {bmv2} | {said} |"


def _excluded(cases: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    reasons = Counter(case["excluded"] for case in cases if case["excluded"])
    yield "\n## Tests that do not apply\n"
    yield "| why | tests |"
    yield "|---|---|"
    for reason, count in reasons.most_common():
        yield f"| {reason} | {count} |"
