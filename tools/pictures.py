"""Pictures of docs/images that show what commands and the page say, and digests of what they were made from.

A test fails where a picture is older than its sources; `make screenshots` makes the pictures again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from checks.bench import code

ROOT: Final = Path(__file__).resolve().parent.parent
DIGESTS: Final = ROOT / "docs" / "images" / "sources.json"
SOURCES: Final = {
    "explain.svg": (
        "tools/record_explain.py",
        "src/switchsum/cli/explain.py",
        "src/switchsum/view/{explain,late,rules,symptoms,words}.py",
    ),
    "page.png": (
        "src/switchsum/web/static/{page,dom,topology,charts}.*",
        "src/switchsum/web/{picture,looks,topology}.py",
        "src/switchsum/view/{rules,symptoms,words}.py",
    ),
}
"""What decides what is seen on each picture."""


def digest(name: str) -> str:
    """Return the digest of what a picture is made from; comments do not count."""
    return code.digest(code.matching(SOURCES[name], ROOT))


def known() -> dict[str, str]:
    """Return the digests with which the pictures were made."""
    found: dict[str, str] = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    return found


def note(name: str) -> None:
    """Note that a picture was made now."""
    DIGESTS.write_text(json.dumps(known() | {name: digest(name)}, indent=2, sort_keys=True) + "\n")
