"""Compile the programs of `lab/src/switchsum_lab/baselines/` with p4c: BMv2's JSON and the P4Info beside each source.

Run as `python -m tools.compile_baselines` (p4c-bm2-ss must be on PATH).  The digest of each source is written beside
it; a test compares it with the source as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from switchsum_lab import baselines
from switchsum_lab.protocols.seam import digest, load
from switchsum_switch.program.p4c import compile_p4


def small(document: Any) -> Any:
    """Return a program without the places in its source, which are most of its length."""
    if isinstance(document, dict):
        return {name: small(value) for name, value in document.items() if name != "source_info"}
    return [small(value) for value in document] if isinstance(document, list) else document


def builds(folder: Path) -> dict[str, int]:
    """Return the builds of a protocol's program by the stem of their files, with the values in a frame of each."""
    host = load(folder).host
    plain = int(getattr(host, "LANES", 256))
    return {"program": plain} | {f"program-{lanes}": lanes for lanes in getattr(host, "OTHER_LANES", ())}


def main(only: str = "*") -> None:
    """Compile all programs, or that of one protocol."""
    for source in sorted(baselines.FOLDER.glob(f"{only}/program.p4")):
        for stem, lanes in builds(source.parent).items():
            sys.stderr.write(f"{source.parent.name}, {lanes} values in a frame\n")
            document, p4info = compile_p4(source, (f"-DLANES={lanes}",))
            text = json.dumps(small(json.loads(document)) | {"program": source.name}, separators=(",", ":"))
            (source.parent / f"{stem}.json").write_text(text + "\n")
            (source.parent / f"{stem}.p4info.txtpb").write_text(p4info)
        source.with_suffix(".sha256").write_text(digest(source) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
