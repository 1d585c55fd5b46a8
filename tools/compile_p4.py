"""Compile p4src/ with p4c into p4src/compiled/, one JSON and one P4Info for each lane build.

The digest of the sources is written beside them; a test compares it with the sources as they are.
Run as `make p4` (p4c-bm2-ss must be on PATH), or with `--check` to compare digests only.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from switchsum.p4src import COMPILED, SOURCES, source_digest
from switchsum.protocol.frame import LANE_BUILDS

COMPILER = "p4c-bm2-ss"
EXTERNS = ("register_read", "register_write", "count")
OPTIONS = [
    *("--arch", "v1model", "--std", "p4-16"),
    # Lanes are touched only where admission has seen them; p4c cannot follow that.
    "--Wdisable=invalid-header",
]


def inline_arguments(document: dict[str, Any]) -> None:
    """Put expressions back where p4c has taken them from: the arguments of register reads and writes, and of counters.

    p4c gives each of them a variable of its own. BMv2 does not need that, resets all variables for every packet, copies
    them for every replica, and takes longer to write one of 2,048 bits than to compute what it is given.
    """
    uses = Counter(re.findall(r'\["scalars", "(tmp(?:_\d+)?)"\]', json.dumps(document)))
    gone: set[str] = set()
    for action in document["actions"]:
        values: dict[str, Any] = {}
        kept: list[dict[str, Any]] = []
        places: list[int] = []  # where each primitive is now, for jumps
        for primitive in action["primitives"]:
            places.append(len(kept))
            parameters = primitive["parameters"]
            target = parameters[0]["value"][-1] if parameters and parameters[0]["type"] == "field" else ""
            if primitive["op"] == "assign" and uses[target] == 2:  # written here, read once
                values[target] = parameters[1]
                continue
            if primitive["op"] in EXTERNS:
                for place, parameter in enumerate(parameters):
                    if parameter["type"] == "field" and parameter["value"][-1] in values:
                        gone.add(parameter["value"][-1])
                        parameters[place] = values.pop(parameter["value"][-1])
            if values:
                raise ValueError(f"{action['name']}: {sorted(values)} are not for an extern")
            kept.append(primitive)
        places.append(len(kept))
        for primitive in kept:
            if primitive["op"] in ("_jump", "_jump_if_zero"):
                offset = primitive["parameters"][-1]
                offset["value"] = hex(places[int(offset["value"], 16)])
        action["primitives"] = kept
    [scalars] = [kind for kind in document["header_types"] if kind["name"] == "scalars_0"]
    fields = [field for field in scalars["fields"] if field[0] not in gone and not field[0].startswith("_padding")]
    missing = -sum(width for _, width, *_ in fields) % 8
    scalars["fields"] = fields + ([["_padding", missing, False]] if missing else [])


def compile_build(lanes: int) -> None:
    """Compile the build with `lanes` lanes; raises CalledProcessError when p4c refuses the program."""
    with tempfile.TemporaryDirectory() as scratch:
        program, p4info = Path(scratch, "program.json"), Path(scratch, "p4info.txtpb")
        command = [COMPILER, *OPTIONS, f"-DLANES={lanes}", "-o", str(program)]
        command += ["--p4runtime-files", str(p4info), "switchsum.p4"]
        subprocess.run(command, check=True, cwd=SOURCES)
        document = json.loads(program.read_text())
        document["program"] = "switchsum.p4"
        inline_arguments(document)
        name = f"switchsum_{lanes}"
        (COMPILED / f"{name}.json").write_text(json.dumps(document, separators=(",", ":")) + "\n")
        shutil.copyfile(p4info, COMPILED / f"{name}.p4info.txtpb")


def main(arguments: list[str]) -> int:
    """Compile every build, or only say whether that is needed; returns the exit code."""
    recorded = COMPILED / "sources.sha256"
    if arguments == ["--check"]:
        current = recorded.exists() and recorded.read_text().strip() == source_digest()
        print("p4src/compiled is current" if current else "p4src/compiled is older than p4src: run make p4")
        return 0 if current else 1
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not on PATH: install p4c (https://github.com/p4lang/p4c)", file=sys.stderr)
        return 1
    COMPILED.mkdir(exist_ok=True)
    for lanes in LANE_BUILDS:
        compile_build(lanes)
        print(f"compiled the build with {lanes} lanes")
    recorded.write_text(source_digest() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
