"""Pictures of what commands and the page say are as new as what they were made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.bench import code
from tools import pictures


@pytest.mark.parametrize("name", pictures.SOURCES)
def test_a_picture_is_as_new_as_its_sources(name: str) -> None:
    assert (pictures.DIGESTS.parent / name).exists()
    assert len(list(code.matching(pictures.SOURCES[name], pictures.ROOT))) >= 7
    assert pictures.known()[name] == pictures.digest(name), f"{name} is older than its sources: make screenshots"


def test_a_source_that_changes_makes_its_picture_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    monkeypatch.setattr(pictures, "ROOT", tmp_path)
    monkeypatch.setattr(pictures, "DIGESTS", tmp_path / "sources.json")
    monkeypatch.setattr(pictures, "SOURCES", {"a.svg": ("{a,b}.py",)})
    pictures.note("a.svg")
    assert pictures.known() == {"a.svg": pictures.digest("a.svg")}
    (tmp_path / "a.py").write_text("x = 2")
    assert pictures.known()["a.svg"] != pictures.digest("a.svg")
    pictures.note("a.svg")
    (tmp_path / "b.py").write_text("")
    assert pictures.known()["a.svg"] != pictures.digest("a.svg")
