"""Pictures of docs/images that show what commands and the page say, and digests of what they were made from.

A test fails where a picture is older than its sources; `make screenshots` makes the pictures again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
DIGESTS: Final = ROOT / "docs" / "images" / "sources.json"
SOURCES: Final = {
    "explain.svg": ("tools/record_explain.py", "src/switchsum/cli/explain.py", "src/switchsum/view/{rules,late}.py"),
    "page.png": ("src/switchsum/web/static/{page,dom,topology,charts}.*", "src/switchsum/view/rules.py"),
}
"""What decides what is seen on each picture."""


def files_of(name: str) -> list[Path]:
    """Return the files that a picture is made from."""
    found: list[Path] = []
    for pattern in SOURCES[name]:
        before, _, rest = pattern.partition("{")
        inner, _, after = rest.partition("}")
        for one in inner.split(",") if rest else [""]:
            found += sorted(ROOT.glob(f"{before}{one}{after}"))
    return found


def digest(name: str) -> str:
    """Return the digest of what a picture is made from."""
    whole = hashlib.sha256()
    for path in files_of(name):
        whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()[:16]


def known() -> dict[str, str]:
    """Return the digests with which the pictures were made."""
    found: dict[str, str] = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    return found


def note(name: str) -> None:
    """Note that a picture was made now."""
    DIGESTS.write_text(json.dumps(known() | {name: digest(name)}, indent=2, sort_keys=True) + "\n")
