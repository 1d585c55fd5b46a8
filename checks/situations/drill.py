"""A drill for operators: situations in an order drawn at random, without their names."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack

from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE

from .play import Played
from .table import SITUATIONS, Situation


def draw(count: int, seed: int) -> list[Situation]:
    """Return so many different situations, or all that there are."""
    found = [one for one in SITUATIONS if one.system]
    random.Random(seed).shuffle(found)
    return found[:count]


def drill(situations: list[Situation]) -> None:
    """Play situations; of each, ask what is wrong, and say then what it was, and how long the answer took."""
    rows = []
    for number, one in enumerate(situations, 1):
        with ExitStack() as stack:
            played = Played(stack, one)
            played.begin()
            played.spoil()
            time.sleep(one.wait_s)
            print(
                f"\nSituation {number} of {len(situations)}: a job of four ranks at one switch, or of eight in a tree."
            )
            print(f"In another terminal: export {RUNTIME_VARIABLE}={played.folder}; switchsum explain; switchsum top")
            print(f"What its parts print is in {played.folder}/*.txt.  They go on for two minutes.")
            began = time.monotonic()
            answer = input("What is wrong? ")
            seconds = time.monotonic() - began
        print(f"It was: {one.what} ({one.name}).")
        rows.append((one, answer, seconds))
    print("\n| situation | what was wrong | answer | seconds |\n|---|---|---|---|")
    for one, answer, seconds in rows:
        print(f"| {one.name} | {one.what} | {answer} | {seconds:.0f} |")
