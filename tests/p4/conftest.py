"""The engines that run the program: interpreter, native code and, where it is on PATH, BMv2."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from switchsum import p4src
from switchsum.protocol.wire import LANE_BUILDS, Reason
from switchsum.switch.pipeline import Pipeline
from switchsum.switch.tables import Entry, Exact

from .rig import LIMITED_GROWTH, Engine, Rig

WORKERS = 4


class Embedded:
    """The embedded switch, driven in memory."""

    def __init__(self, lanes: int, engine: str) -> None:
        self._pipeline = Pipeline.load(p4src.load(lanes).device_config, engine=engine)

    def insert(self, table: str, match: Sequence[int], action: str, params: Sequence[int]) -> None:
        entry = Entry(match=tuple(Exact(value) for value in match), action=action, params=tuple(params))
        self._pipeline.tables[table].insert(entry)

    def set_default(self, table: str, action: str, params: Sequence[int]) -> None:
        self._pipeline.tables[table].set_default(action, tuple(params))

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        self._pipeline.multicast.set(group, replicas)

    def events(self, counter: str, reason: Reason) -> int:
        return self._pipeline.counters[counter].read(reason)[0]

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        return self._pipeline.process(port, frame)


ENGINES: dict[str, Callable[[int], Engine]] = {
    "interpreter": lambda lanes: Embedded(lanes, "interpreter"),
    "native": lambda lanes: Embedded(lanes, "native"),
}
BUILDS = [pytest.param((engine, lanes), id=f"{engine}-{lanes}") for engine in ENGINES for lanes in LANE_BUILDS]


@pytest.fixture(params=BUILDS)
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Yield a switch with unlimited growth and a job of four workers."""
    engine, lanes = request.param
    return Rig(ENGINES[engine](lanes), workers=WORKERS, lanes=lanes)


@pytest.fixture(params=BUILDS)
def limited_rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    """Yield the same with growth limited as on BMv2."""
    engine, lanes = request.param
    return Rig(ENGINES[engine](lanes), workers=WORKERS, lanes=lanes, growth_bytes=LIMITED_GROWTH)
