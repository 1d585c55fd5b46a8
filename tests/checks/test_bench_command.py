"""The command that a record keeps is one that others can type."""

from __future__ import annotations

import pytest

from checks.bench.__main__ import without_folders
from checks.bench.records import RESULTS


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["--only", "links", "--out", "/mine/new.json", "--runs", "3"], ["--only", "links", "--runs", "3"]),
        (["--out=/mine/new.json", "--public=/mine"], ["--public", "FOLDER"]),
        (["--public", "/mine", "--only", "programs"], ["--public", "FOLDER", "--only", "programs"]),
    ],
)
def test_a_records_command_names_no_file_of_a_machine(given: list[str], kept: list[str]) -> None:
    assert without_folders(given) == kept


def test_no_record_names_one() -> None:
    assert "/tmp/" not in (text := RESULTS.read_text())
    assert "python -m checks.bench" in text
