"""Calls p4c, the P4 compiler, if it is on PATH."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from ..errors import ProgramError

COMPILERS: Final = ("p4c-bm2-ss", "p4c")
"""The compiler for BMv2 itself, and the driver that calls it."""
WHERE: Final = "https://github.com/p4lang/p4c#getting-started"


def compile_p4(source: Path, options: tuple[str, ...] = ()) -> tuple[str, str]:
    """Compile a P4 program for v1model; return BMv2's JSON and the P4Info in text format.

    Raises ProgramError with the compiler's messages, and if there is no compiler.
    """
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise ProgramError(f"neither {' nor '.join(COMPILERS)} is on PATH; {WHERE} says how p4c is installed")
    if not source.is_file():
        raise ProgramError(f"there is no file {source}")
    with tempfile.TemporaryDirectory() as folder:
        program, p4info = Path(folder) / f"{source.stem}.json", Path(folder) / f"{source.stem}.p4info.txtpb"
        # The driver has other options than the compiler, and writes the JSON to a folder.
        if Path(found).name == "p4c":
            command = [found, "--target", "bmv2", "--arch", "v1model", "-o", folder]
        else:
            command = [found, "--arch", "v1model", "-o", str(program)]
        command += ["--p4runtime-files", str(p4info), *options, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not program.is_file():
            raise ProgramError(f"{Path(found).name} does not compile {source}:\n{done.stderr.strip()}")
        return program.read_text(), p4info.read_text()
