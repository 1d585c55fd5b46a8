"""Which tables are older than their code: `python -m checks.bench.ages` lists them, by the groups that have changed.

`--mark` writes "Measured before changes to engine and links." above such tables, and removes it where it is no longer
true; a test fails where pages and digests disagree.  `--measured "docs/results/trees.md, One switch and a tree"` notes
that a table that is kept by hand was measured now (or all of a page).  Records of `make bench` and of checks/lab have
digests of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from checks.bench import code
from checks.bench.page import CHOICE, HEADLINES, PAGES
from checks.bench.records import RESULTS

ROOT: Final = code.ROOT
NOTED: Final = code.NOTED
ABOUT: Final = "docs/results/ages.md"
MARK: Final = re.compile(rf"^[A-Z]\w+ (?:in part )?before \[[^]]+\]\(\S*{Path(ABOUT).name}\).*\n\n", re.MULTILINE)
MANY: Final = 4
"""From so many groups on, a mark does not list them where all have changed."""
_BEGINS: Final = re.compile(r"<!-- ([^:\n]+): ")
_LINE_OF_A_TABLE: Final = re.compile(r"\|[ :|-]+\|")
_CHOSEN: Final = {"README.md": HEADLINES, "docs/benchmarks.md": CHOICE}
"""Pages that have a choice of the records of `make bench`, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of a page, or all that a command writes between two comments."""

    page: str
    heading: str
    """That under which it stands, with its number where it is not the first one there."""
    line: int
    """Where it begins, counted from 0."""
    is_made: bool
    """Whether a command writes it between two comments."""

    @property
    def name(self) -> str:
        """What it is called in the list, and in results/ages.json."""
        return f"{self.page}, {self.heading}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """How old a table is."""

    table: Table
    how: str
    """How it was made: Measured, Simulated."""
    changed: tuple[str, ...]
    """Groups that have changed since."""
    groups: int
    """On how many it depends."""
    older: int
    """How many of its records are older than their code."""
    records: int

    @property
    def names(self) -> str:
        """What has changed, in words."""
        *others, last = self.changed
        return f"{', '.join(others)} and {last}" if others else last

    @property
    def mark(self) -> str:
        """What stands above the table; nothing if it is as new as its code."""
        if not self.older:
            return ""
        about = os.path.relpath(ABOUT, Path(self.table.page).parent)
        part = " in part" * (self.older < self.records)
        if not self.changed:
            return f"{self.how}{part} before [records had digests]({about})."
        is_all = len(self.changed) == self.groups >= MANY
        what = "all of switchsum's code that it measures" if is_all else f"switchsum's {self.names}"
        return f"{self.how}{part} before [changes]({about}) to {what}."


def tables_of(page: str, text: str) -> list[Table]:
    """Return the tables of a page in their order."""
    found: list[Table] = []
    heading, end, is_code, counts = "", "", False, dict[str, int]()
    lines = text.split("\n")
    for number, line in enumerate(lines):
        begins = _BEGINS.match(line)
        is_code ^= line.startswith("```")
        if end:
            end = "" if line.startswith(end) else end
            continue
        if is_code:
            continue
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif begins is not None and f"\n<!-- end of {begins[1]}" in text:
            end = f"<!-- end of {begins[1]}"
        if end or (line.startswith("|") and _LINE_OF_A_TABLE.fullmatch("".join(lines[number + 1 : number + 2]))):
            counts[heading] = counts.get(heading, 0) + 1
            title = heading if counts[heading] == 1 else f"{heading}, {counts[heading]}"
            found.append(Table(page=page, heading=title, line=number, is_made=bool(end)))
    return found


def _records(part: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all records of a file that was read: what says of which commit it is, or of what code."""
    if isinstance(part, dict) and {"commit", "code"} & part.keys():
        yield part
    elif isinstance(part, dict | list):
        for one in part.values() if isinstance(part, dict) else part:
            yield from _records(one)


def _codes(table: Table, file: str, noted: Mapping[str, str]) -> list[str]:
    """Return the digests of each record of a table; empty ones where they are not known."""
    if not file:
        return [noted.get(table.name, "")]
    rows = list(_records(json.loads((ROOT / file).read_text())))
    if ROOT / file == RESULTS:
        if table.page in _CHOSEN:
            rows = [row for row in rows if row["name"] in _CHOSEN[table.page]]
        else:
            titles = PAGES[Path(table.page).stem][1]
            prefixes = [prefix for prefix, title in titles.items() if title == table.heading]
            rows = [row for row in rows if row["name"].startswith(tuple(prefixes))]
    return [row.get("code", "") for row in rows] or [""]


def ages(now: str) -> Iterator[Age]:
    """Yield the age of each table that depends on code; raises KeyError for a table that code.toml does not know."""
    noted = json.loads(NOTED.read_text())
    for page, facts in code.table()["pages"].items():
        found = tables_of(page, unmarked((ROOT / page).read_text()))
        of_its_own = facts.get("tables", {})
        if gone := of_its_own.keys() - {table.heading for table in found}:
            raise KeyError(f"code.toml has tables that are not in {page}: {', '.join(sorted(gone))}")
        for table in found:
            said = {"how": "Measured", **facts, **of_its_own.get(table.heading, {})}
            if not said["code"]:
                continue
            made = any(one.is_made for one in found)
            file = said.get("records", "") if table.is_made or not made else ""
            yield _age(table, said["how"], code.groups(said["code"]), _codes(table, file, noted), now)


def _age(table: Table, how: str, groups: list[str], codes: Iterable[str], now: str) -> Age:
    found = [code.changed(one, groups, now) for one in codes]
    different = {group for one in found for group in one or ()}
    return Age(
        table=table,
        how=how,
        changed=tuple(group for group in groups if group in different),
        groups=len(groups),
        older=sum(one != [] for one in found),
        records=len(found),
    )


def unmarked(text: str) -> str:
    """Return a page without its marks."""
    return MARK.sub("", text)


def marked(text: str, ages_of_it: Iterable[Age]) -> str:
    """Return a page with the marks that its tables need, and no others; lines of the ages are those without marks."""
    lines = unmarked(text).split("\n")
    for age in sorted(ages_of_it, key=lambda age: -age.table.line):
        if age.mark:
            lines[age.table.line : age.table.line] = [age.mark, ""]
    return "\n".join(lines)


def pages(now: str) -> Iterator[tuple[Path, str]]:
    """Yield each page, and its text with the marks that it needs."""
    by_page: dict[str, list[Age]] = {page: [] for page in code.table()["pages"]}
    for age in ages(now):
        by_page[age.table.page].append(age)
    for page, found in by_page.items():
        yield ROOT / page, marked((ROOT / page).read_text(), found)


def mark() -> list[str]:
    """Write the marks; return the pages that had others."""
    changed = []
    for path, text in pages(code.digests()):
        if text != path.read_text():
            path.write_text(text)
            changed.append(path.relative_to(ROOT).as_posix())
    return changed


def written(page: Path, begin: str) -> None:
    """Note that what a command has just written into a page behind a comment is of the code of now; write the marks."""
    text = unmarked(page.read_text())
    [table] = [one for one in tables_of(page.relative_to(ROOT).as_posix(), text) if text.split("\n")[one.line] == begin]
    code.note(table.name)
    mark()


def lines(now: str) -> Iterator[str]:
    """Yield a line for each table that is older than its code."""
    for age in ages(now):
        if age.older:
            many = f", {age.older} of {age.records} records" if age.records > 1 else ""
            yield f"{age.table.name}{many}: {age.names if age.changed else 'no digests'}"


def main() -> int:
    """List, mark, or note."""
    parser = argparse.ArgumentParser(prog="python -m checks.bench.ages", description=__doc__)
    parser.add_argument("--mark", action="store_true", help="write what is older above the tables of pages")
    parser.add_argument("--measured", metavar="TABLE", help='"PAGE, HEADING": note that it was measured now')
    options = parser.parse_args()
    if options.measured:
        known = [age.table.name for age in ages(code.digests())]
        named = [name for name in known if name == options.measured or name.startswith(f"{options.measured}, ")]
        if not named:
            parser.error("\n  ".join([f"no such table: {options.measured}; there are", *known]))
        for name in named:
            code.note(name)
    if options.mark or options.measured:
        for page in mark():
            print(f"marked anew: {page}")
        return 0
    for line in lines(code.digests()):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
