"""What others say of the same tests, from their own published lists; nothing of theirs was run for it.

`python -m checks.conformance.published FOURWARD P4C` reads the lists of clones of 4ward and p4c again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

LISTS: Final = Path(__file__).with_name("published.json")
FOURWARD_LIST: Final = "e2e_tests/corpus/BUILD.bazel"
BMV2_LIST: Final = "backends/bmv2/CMakeLists.txt"
FOLDER: Final = "p4_16_samples"


def fourward_passes(text: str) -> list[str]:
    """Return the tests for v1model of which 4ward's list says that all must pass."""
    suite = text.partition('name = "v1model_stf_corpus_test"')[2].partition("corpus_test_suite(")[0]
    tests = suite.partition(" tests = [")[2].partition("],")[0]
    return [f"{FOLDER}/{name}" for name in re.findall(r'^\s*"([^"/]+)",', tests, re.MULTILINE)]


def bmv2_fails(text: str) -> list[str]:
    """Return the programs that p4c's list expects to fail on BMv2."""
    return re.findall(r"^\s*testdata/(p4_1[46]_samples/\S+)\.p4", text, re.MULTILINE)


def verdict(lists: Mapping[str, Any], who: str, name: str) -> str:
    """Return what a list says of a test: passed, fails, or that it is not listed."""
    program = name.partition(" ")[0]
    if who == "4ward":
        return "passed" if name in lists[who]["passes"] else "not listed"
    return "expected to fail" if program in lists[who]["fails"] else "passed"


def main() -> None:
    """Read the lists of two clones and keep them."""
    parser = argparse.ArgumentParser(prog="python -m checks.conformance.published", description=__doc__)
    parser.add_argument("fourward", type=Path, help="a clone of 4ward, with or without a work tree")
    parser.add_argument("p4c", type=Path, help="the sources of p4c")
    options = parser.parse_args()
    show = ["git", "-C", str(options.fourward)]
    text = _output([*show, "show", f"HEAD:{FOURWARD_LIST}"])
    commit, date = _output([*show, "log", "-1", "--format=%h %as"]).split()
    lists = {
        "4ward": {"list": FOURWARD_LIST, "commit": commit, "date": date, "passes": fourward_passes(text)},
        "bmv2": {
            "list": BMV2_LIST,
            "p4c": (options.p4c / "Version.txt").read_text().strip(),
            "fails": bmv2_fails((options.p4c / BMV2_LIST).read_text()),
        },
    }
    LISTS.write_text(json.dumps(lists, indent=1) + "\n")


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
