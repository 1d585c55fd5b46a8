"""The file of `switchsum controller --fleet`: switches, the trees over them, and which port leads where."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_fleet(
    path: Path,
    switches: Mapping[str, Mapping[str, Any]],
    trees: Sequence[tuple[Mapping[str, str], float]],
    ports: Mapping[tuple[str, str], int],
    link_bytes: int = 0,
) -> None:
    """Write the file.

    `switches` are described as in docs/controller-trees.md, but for ports: `ports` has the number of the port of a
    switch towards another one, by both names, and nothing where they reach one another by UDP.  A tree is the switch
    above each one but the root, and its share of a job's slots.
    """
    described = {
        name: {
            **one,
            **({"ports": {far: port for (near, far), port in ports.items() if near == name}} if ports else {}),
        }
        for name, one in switches.items()
    }
    content = {
        "switches": described,
        "trees": [{"above": dict(above), "share": share} for above, share in trees],
        "link_bytes": link_bytes,
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
