"""Makes the random programs that run in every test run: `python -m checks.random_p4.seeds`, with p4c and BMv2 on PATH.

Each is a small program that p4c has compiled, with an STF test whose frames BMv2 has sent, and both engines as well.  A
program is taken if it is short, if frames leave it, and if nothing in these frames depends on time or chance.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any, Final

from switchsum_protocol.errors import SwitchsumError
from switchsum_switch.differ.case import Insert, Packet, stf_text
from switchsum_switch.differ.search import Differ
from switchsum_switch.differ.sides import TIMES
from switchsum_switch.program.reader import read_program
from switchsum_switch.stf import Names

from .__main__ import compiled
from .generate import generate

SEEDS: Final = Path(__file__).parents[2] / "switch" / "tests" / "random_programs.jsonl.xz"
PACKETS: Final = 16
LONGEST_SOURCE: Final = 8_400
LONGEST: Final = 28_000
"""Characters of a program; native code for a longer one takes longer than all of its packets."""
FRAMES: Final = 6
"""Fewest frames that leave."""


def load() -> list[tuple[int, bytes, str]]:
    """Return each program: its seed, its JSON, and its STF test."""
    lines = lzma.decompress(SEEDS.read_bytes()).decode().splitlines()
    return [(seed, json.dumps(program).encode(), stf) for seed, program, stf in map(json.loads, lines)]


def shortened(text: bytes) -> dict[str, Any]:
    """Return a program without what only readers of it need."""
    document: dict[str, Any] = _without_places(json.loads(text))
    aliases: list[Any] = document["field_aliases"]
    document["field_aliases"] = [one for place, one in enumerate(aliases) if one not in aliases[:place]]
    return {**document, "program": ""}


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(item) for key, item in value.items() if key not in ("source_info", "__meta__")}
    return [_without_places(item) for item in value] if isinstance(value, list) else value


def test_of(text: bytes) -> str | None:
    """Return an STF test of a program that all switches pass; None if it is none for the file."""
    try:
        differ = Differ(text, bmv2=True)
        steps = differ.case(0)
        packets = [step for step in steps if isinstance(step, Packet)][:PACKETS]
        steps = (*(step for step in steps if not isinstance(step, Packet)), *packets)
        if any(isinstance(step, Insert) and step.others for step in steps):
            return None  # STF has no groups
        _, what, seen = differ.compare(steps)
        ports = seen["interpreter"].ports
        if what:
            print(f"a difference, which `python -m checks.random_p4 --small` shows: {what}", flush=True)
        if what or "bmv2" not in seen or seen["bmv2"].ended or sum(map(len, ports.values())) < FRAMES:
            return None
        if any(differ.reference.run(steps, chance).ports != ports for chance in TIMES):
            return None
    except SwitchsumError:
        return None
    expected = [f"expect {port} {frame.hex()} $" for port, frames in sorted(ports.items()) for frame in frames]
    return stf_text(steps, Names(read_program(text))) + "".join(line + "\n" for line in [*expected, "no_packet"])


def chosen(first: int) -> Iterator[str]:
    """Yield the lines of the file."""
    for seed in count(first):
        if len(source := generate(seed, small=True).text()) > LONGEST_SOURCE:
            continue
        text, _ = compiled(source)
        if text is None or len(short := json.dumps(shortened(text), separators=(",", ":"))) > LONGEST:
            continue
        if (test := test_of(short.encode())) is not None:
            print(seed, end=" ", flush=True)
            yield json.dumps([seed, json.loads(short), test], separators=(",", ":"))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m checks.random_p4.seeds", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first program that is tried")
    parser.add_argument("--programs", type=int, default=200, help="how many are kept (200)")
    parser.add_argument("--in-place-of", type=int, metavar="SEED", help="one program goes where that of this seed is")
    options = parser.parse_args()
    if options.in_place_of is not None:
        kept = lzma.decompress(SEEDS.read_bytes()).decode().splitlines()
        place = next(place for place, line in enumerate(kept) if json.loads(line)[0] == options.in_place_of)
        kept[place] = next(chosen(options.first))
        SEEDS.write_bytes(lzma.compress("\n".join(kept).encode(), preset=9 | lzma.PRESET_EXTREME))
        return
    lines = list[str]()
    for line in islice(chosen(options.first), options.programs):
        lines.append(line)
        SEEDS.write_bytes(lzma.compress("\n".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines)} programs in {SEEDS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
