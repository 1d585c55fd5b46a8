"""Compile p4src/ with p4c into p4src/compiled/, one JSON and one P4Info for each lane build.

The digest of the sources is written beside them; a test compares it with the sources as they are.
Run as `make p4` (p4c-bm2-ss must be on PATH), or with `--check` to compare digests only.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from switchsum.p4src import COMPILED, SOURCES, source_digest
from switchsum_protocol.frame import LANE_BUILDS

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


def width_of(value: Any, widths: dict[tuple[str, str], int]) -> float:
    """Return how many bits an expression of the JSON needs at most; infinity where it may be negative or any number."""
    match value:
        case {"type": "expression", "value": inner}:
            return width_of(inner, widths)
        case {"type": "field", "value": [header, field]}:
            return widths.get((header, field), math.inf)
        case {"type": "hexstr", "value": text}:
            return int(text, 16).bit_length() if int(text, 16) >= 0 else math.inf
        case {"op": "&", "left": left, "right": right}:
            return min(width_of(left, widths), width_of(right, widths))
        case {"op": "|" | "^" | "?", "left": left, "right": right}:
            return max(width_of(left, widths), width_of(right, widths))
        case {"op": "<<", "left": left, "right": {"type": "hexstr", "value": text}}:
            return width_of(left, widths) + int(text, 16)
        case {"op": ">>", "left": left}:
            return width_of(left, widths)
    return math.inf


def drop_masks(value: Any, widths: dict[tuple[str, str], int]) -> Any:
    """Leave out masks that change nothing: p4c writes one for each widening cast and shift, and BMv2 computes it."""
    if isinstance(value, list):
        return [drop_masks(item, widths) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: drop_masks(item, widths) for key, item in value.items()}
    while value.get("type") == "expression" and value["value"].get("op") == "&":
        left, right = value["value"]["left"], value["value"]["right"]
        if right["type"] != "hexstr":
            break
        mask = int(right["value"], 16)
        if mask & (mask + 1) or width_of(left, widths) > mask.bit_length():
            break
        value = left
    return value


def field_widths(document: dict[str, Any]) -> dict[tuple[str, str], int]:
    """Return the width of every field of every header that is not signed."""
    kinds = {kind["name"]: kind["fields"] for kind in document["header_types"]}
    return {
        (header["name"], name): width
        for header in document["headers"]
        for name, width, *signed in kinds[header["header_type"]]
        if not any(signed) and isinstance(width, int)
    }


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
        widths = field_widths(document)
        document["actions"] = drop_masks(document["actions"], widths)
        for pipeline in document["pipelines"]:
            pipeline["conditionals"] = drop_masks(pipeline["conditionals"], widths)
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
