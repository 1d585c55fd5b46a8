"""Compile the exercises' solutions in P4 with p4c, with BMv2's JSON and P4Info beside each.

Run as `python tools/compile_exercises.py` (p4c-bm2-ss must be on PATH); a test compares what it makes with what is
committed.
"""

from __future__ import annotations

import sys

from switchsum_exercises import EXERCISES
from switchsum_exercises.p4 import compile_program

if __name__ == "__main__":
    for exercise in EXERCISES:
        if exercise.has_p4:
            sys.stderr.write(f"{exercise.name}\n")
            made = compile_program(exercise.folder / "solution.p4")
            (exercise.folder / "solution.json").write_text(made.document)
            (exercise.folder / "solution.p4info.txtpb").write_text(made.p4info)
