"""Tables that are older than their code say so, and nothing but a change of what code does makes them older."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checks.bench import ages, code
from checks.bench.ages import Age, Table

NOW = code.digests()

PYTHON = '''"""What the module is for."""

from somewhere import (
    add,
)

LIMIT = 3  # frames
"""What a field is."""


def add(a, b):
    """Add."""
    import os
    text = """# kept
"""
    return a + b, text  # at once
'''
WITHOUT = '''LIMIT = 3
def add(a, b):
    text = """# kept
"""
    return a + b, text'''


def test_pages_and_digests_agree() -> None:
    others = [path.name for path, text in ages.pages(NOW) if text != path.read_text()]
    assert others == [], "python -m checks.bench.ages --mark"


def test_each_page_of_figures_is_known() -> None:
    found = {path.relative_to(code.ROOT).as_posix() for path in (code.ROOT / "docs" / "results").glob("*.md")}
    assert found <= code.table()["pages"].keys()


def test_digests_of_tables_without_records_are_of_tables_that_are_there() -> None:
    assert json.loads(ages.NOTED.read_text()).keys() <= {age.table.name for age in ages.ages(NOW)}


def test_each_group_has_files() -> None:
    for group in code.table()["groups"]:
        assert list(code.files_of(group)), group


def test_comments_docstrings_imports_and_empty_lines_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PYTHON)
    assert code.what_counts(tmp_path / "a.py") == WITHOUT
    (tmp_path / "a.p4").write_text("/* why\n   so */ bit<8> a; // b\n\nbit<8> c;\n")
    assert code.what_counts(tmp_path / "a.p4") == " bit<8> a;\nbit<8> c;"


def test_a_digest_is_of_what_files_do_and_not_of_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "table", lambda: {"groups": {"all": ["{a,b}/**/*.py"]}})
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "one.py").write_text("x = 1\n")
    before = code.digest(code.files_of("all", tmp_path))
    (tmp_path / "a" / "one.py").rename(tmp_path / "b" / "two.py")
    assert code.digest(code.files_of("all", tmp_path)) == before
    (tmp_path / "b" / "two.py").write_text("x = 2\n")
    assert code.digest(code.files_of("all", tmp_path)) != before


def test_ways_are_groups_and_unknown_ones_are_refused() -> None:
    assert {"engine", "torch"} <= set(code.groups(["trained"]))
    with pytest.raises(KeyError, match="no group mill"):
        code.groups(["mill"])


def test_a_record_that_names_no_code_is_older() -> None:
    assert code.changed("", ["engine"], NOW) is None
    assert code.changed(NOW, ["engine"], NOW) == []
    assert code.changed("engine 00000000, links 00000000", ["links"], NOW) == ["links"]


PAGE = """# Page

| a | b |
|---|---|
| 1 | 2 |

```
| no | table |
|---|---|
```

<!-- rows: python -m made -->

| made | so |
|---|---|

<!-- end of rows -->
"""


def of(table: Table, *changed: str, older: int = 1, records: int = 1, groups: int = 3) -> Age:
    return Age(table=table, how="Measured", changed=changed, groups=groups, older=older, records=records)


def test_marks_stand_above_tables_and_above_what_a_command_writes() -> None:
    first, made = ages.tables_of("docs/page.md", PAGE)
    assert (first.heading, first.is_made) == ("Page", False)
    assert (made.heading, made.is_made) == ("Page, 2", True)
    text = ages.marked(PAGE, [of(first, "engine", "links"), of(made, "P4", older=1, records=2)])
    link = "[changes](results/ages.md)"
    assert f"# Page\n\nMeasured before {link} to switchsum's engine and links.\n\n| a | b |\n" in text
    assert f"```\n\nMeasured in part before {link} to switchsum's P4.\n\n<!-- rows" in text
    assert ages.unmarked(text) == PAGE
    assert ages.marked(text, []) == PAGE


def test_a_mark_is_short_where_all_has_changed_and_says_what_is_not_known() -> None:
    first, _ = ages.tables_of("docs/results/page.md", PAGE)
    assert of(first, *"abcd", groups=4).mark.endswith("to all of switchsum's code that it measures.")
    assert of(first).mark == "Measured before [records had digests](ages.md)."
    assert of(first, older=0).mark == ""
    assert ages.unmarked(f"{of(first).mark}\n\n{PAGE}") == PAGE


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page with one table kept by hand and one of records."""
    page = {"code": ["engine"], "records": "records.json"}
    monkeypatch.setattr(code, "table", lambda: {"groups": {"engine": []}, "ways": {}, "pages": {"page.md": page}})
    for module in (ages, code):
        monkeypatch.setattr(module, "ROOT", tmp_path)
        monkeypatch.setattr(module, "NOTED", tmp_path / "ages.json")
    monkeypatch.setattr(code, "digests", lambda: "engine 2")
    (tmp_path / "ages.json").write_text("{}")
    (tmp_path / "page.md").write_text(PAGE)
    (tmp_path / "records.json").write_text('{"x": [{"commit": "a", "code": "engine 1"}, {"code": "engine 2"}]}')
    return tmp_path


def test_older_tables_are_listed_and_marked(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(ages.lines("engine 2")) == ["page.md, Page: no digests", "page.md, Page, 2, 1 of 2 records: engine"]
    assert ages.mark() == ["page.md"]
    assert "Measured in part before" in (repository / "page.md").read_text()
    assert ages.mark() == []
    monkey = ["ages", "--measured", "page.md, Page"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sys.argv", monkey)
        assert ages.main() == 0
    assert capsys.readouterr().out == "marked anew: page.md\n"
    assert list(ages.lines("engine 2")) == ["page.md, Page, 2, 1 of 2 records: engine"]


def test_what_a_command_has_written_is_new(repository: Path) -> None:
    (repository / "records.json").unlink()
    code.table()["pages"]["page.md"].pop("records")
    ages.written(repository / "page.md", "<!-- rows: python -m made -->")
    assert list(ages.lines("engine 2")) == ["page.md, Page: no digests"]


def test_tables_that_are_gone_are_named(repository: Path) -> None:
    code.table()["pages"]["page.md"]["tables"] = {"Gone": {"code": []}}
    with pytest.raises(KeyError, match=r"not in page\.md: Gone"):
        list(ages.ages("engine 2"))
