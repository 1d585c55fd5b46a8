"""Programs into the loader: BMv2 JSON with parts of it replaced, removed or doubled, as data or as text."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from checks.fuzz.choices import Choices
from checks.fuzz.damage import damaged
from switchsum_switch.errors import ProgramError
from switchsum_switch.execution import pipeline

PROGRAMS: Final = Path(__file__).parents[2] / "switch" / "tests" / "programs"
NAMES: Final = (
    *("arithmetic", "checksums", "hashing", "headers", "lives", "matching", "metering", "parsing"),
    *("queueing", "replication", "sets", "stacks", "stateful", "wide"),
    *("ageing", "digests", "endless", "members", "nothing", "profiles", "unions", "varbit"),
)
MOST_CHANGES: Final = 4
FRAME: Final = bytes(range(96))
LARGE: Final = 1 << 20
"""A program may ask for so large an array; what the fuzzer makes up is asked for no more."""


class Target:
    """Loads damaged programs, and runs a frame through those that are taken."""

    def run(self, data: bytes) -> None:
        """Load one program."""
        choices = Choices(data)
        name = choices.pick(NAMES)
        if choices.below(16) == 0:
            text: str | bytes = choices.rest()
        elif choices.below(8) == 0:
            text = damaged(_source(name).encode(), choices)
        else:
            document = json.loads(_source(name))
            for _ in range(1 + choices.below(MOST_CHANGES)):
                _change(document, choices)
                if choices.is_over:
                    break
            text = json.dumps(document)
        try:
            # Native code is made of every seventh program only: the compiler takes long.
            engine = "native" if len(data) % 7 == 0 else "interpreter"
            # Without a store the code of damaged programs is kept nowhere, and no input waits for another process that
            # compiles, which would look like a hang.
            with patch.object(pipeline, "open_store", return_value=None):
                loaded = pipeline.Pipeline.load(text, engine=engine)  # type: ignore[arg-type]
        except ProgramError:
            return
        loaded.multicast.set(1, [(1, 0), (2, 1)])
        loaded.clones.set(1, [(3, 0)])
        for port in (0, 511):
            loaded.process(port, FRAME)


@functools.cache
def _source(name: str) -> str:
    document = json.loads((PROGRAMS / f"{name}.json").read_text())
    return json.dumps(_without_sources(document))


def _without_sources(value: Any) -> Any:
    """Leave out what only tells of places in the P4 source, or the fuzzer would change little else."""
    if isinstance(value, dict):
        return {key: _without_sources(item) for key, item in value.items() if key != "source_info"}
    return [_without_sources(item) for item in value] if isinstance(value, list) else value


def _change(document: Any, choices: Choices) -> None:
    """Walk down to some item, and change it."""
    place, key = document, choices.pick(list(document))
    while True:
        item = place[key]
        if not isinstance(item, (dict, list)) or not item or choices.below(8) == 0:
            break
        place, key = item, choices.pick(list(item) if isinstance(item, dict) else range(min(len(item), 65536)))
    match choices.below(6):
        case 0:
            del place[key]
        case 1 if isinstance(place, list):
            place.append(copy.deepcopy(item))
        case 2:
            place[key] = choices.pick((None, True, -1, 0, 1, 64, 4096, LARGE, 1.5, "", "0x", "0xff", [], {}, [[]]))
        case 3 if isinstance(item, int):
            place[key] = choices.number(2)
        case 4 if isinstance(item, str):
            place[key] = item[: choices.below(8)]
        case _:
            # Another item of the same kind, from elsewhere in the document.
            place[key] = copy.deepcopy(document[choices.pick(list(document))]) if choices.below(2) else str(item)


def seeds() -> Iterator[bytes]:
    """Return one input for each program, and one that is no program."""
    for index in range(len(NAMES)):
        yield bytes([index, 1, 1, 0, *range(40)])
        yield bytes([index, 1, 1, 3, *range(200, 80, -3)])
    for how in range(5):
        yield bytes([how, 1, 0, 1, 3, how, 40, how, *range(30)])
    yield bytes([0, 0]) + b'{"__meta__": {}}'
