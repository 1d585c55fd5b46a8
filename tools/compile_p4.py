"""Compile p4src/ with p4c into p4src/compiled/, one JSON and one P4Info for each lane build.

The digest of the sources is written beside them; a test compares it with the sources as they are.
Run as `make p4` (p4c-bm2-ss must be on PATH), or with `--check` to compare digests only.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from switchsum.p4src import COMPILED, SOURCES, source_digest
from switchsum.protocol.wire import LANE_BUILDS

COMPILER = "p4c-bm2-ss"
OPTIONS = [
    *("--arch", "v1model", "--std", "p4-16"),
    # p4c would write the wide sum out at each of its uses; BMv2 would then compute it anew each time.
    *("--excludeMidendPasses", "P4::LocalCopyPropagation"),
    # Lanes are touched only where admission has seen them; p4c cannot follow that.
    "--Wdisable=invalid-header",
]


def compile_build(lanes: int) -> None:
    """Compile the build with `lanes` lanes; raises CalledProcessError when p4c refuses the program."""
    with tempfile.TemporaryDirectory() as scratch:
        program, p4info = Path(scratch, "program.json"), Path(scratch, "p4info.txtpb")
        command = [COMPILER, *OPTIONS, f"-DLANES={lanes}", "-o", str(program)]
        command += ["--p4runtime-files", str(p4info), "switchsum.p4"]
        subprocess.run(command, check=True, cwd=SOURCES)
        document = json.loads(program.read_text())
        document["program"] = "switchsum.p4"
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
