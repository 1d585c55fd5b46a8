"""Play the situations with real processes, and print the table: python -m checks.situations [--only NAME].

`--drill 10` asks you instead: it plays ten situations without their names, and you say what is wrong.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time

from .drill import draw, drill
from .play import play
from .table import SITUATIONS

LEAST_RIGHT = 28


def main() -> int:
    """Play all situations that have a real system; return 1 where too few are right, or a part is blamed wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="play only situations whose names match this regular expression")
    parser.add_argument("--drill", type=int, metavar="COUNT", help="play so many without their names, and ask for them")
    parser.add_argument("--seed", type=int, default=time.localtime().tm_yday, help="of the drill's order; the day's")
    options = parser.parse_args()
    if options.drill:
        print(f"seed {options.seed}")
        drill(draw(options.drill, options.seed))
        return 0
    chosen = [one for one in SITUATIONS if one.system and re.search(options.only or "", one.name)]
    right = innocent = 0
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores: above 1, ranks do wait for processors\n")
    print("| situation | first sentence | right | wrong part blamed |\n|---|---|---|---|", flush=True)
    for one in chosen:
        try:
            found = play(one)
        except Exception as error:  # the others are played all the same
            print(f"| {one.name} | could not be played: {type(error).__name__}: {error} | no | no |", flush=True)
            continue
        right, innocent = right + found.is_right, innocent + found.is_innocent
        first = found.said[0] if found.said else "nothing"
        print(
            f"| {one.name} | {first} | {'yes' if found.is_right else 'NO'} | {'no' if found.is_innocent else 'YES'} |",
            flush=True,
        )
        for text in () if found.is_right and found.is_innocent else found.said[1:]:
            print(f"|  | {text} |  |  |", flush=True)
    made_up = len(SITUATIONS) - sum(bool(one.system) for one in SITUATIONS)
    print(
        f"{right} of {len(chosen)} right, {len(chosen) - innocent} blame a part that works; {made_up} more are made up"
    )
    return int(len(chosen) - right > len(SITUATIONS) - LEAST_RIGHT or innocent < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
