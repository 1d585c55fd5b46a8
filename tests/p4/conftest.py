"""The engines that run the program: interpreter, native code and, where it is on PATH, BMv2."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from switchsum.testing.bmv2 import Bmv2
from switchsum.testing.embedded import Embedded
from switchsum.testing.rig import LIMITED_GROWTH, Rig
from switchsum_protocol.frame import LANE_BUILDS

WORKERS = 4
NO_BMV2 = pytest.mark.skipif(
    shutil.which("simple_switch_grpc") is None or os.geteuid() != 0, reason="needs simple_switch_grpc on PATH, and root"
)


EMBEDDED = [
    pytest.param((engine, lanes), id=f"{engine}-{lanes}")
    for engine in ("interpreter", "native")
    for lanes in LANE_BUILDS
]
BMV2 = [
    pytest.param(("bmv2", lanes), id=f"bmv2-{lanes}", marks=[NO_BMV2, pytest.mark.bmv2, pytest.mark.root])
    for lanes in LANE_BUILDS
]


@pytest.fixture(scope="session")
def bmv2s() -> Iterator[dict[int, Bmv2]]:
    """Yield a dict for one running BMv2 of each build, filled as they are needed: starting one takes a second."""
    running: dict[int, Bmv2] = {}
    yield running
    for bmv2 in running.values():
        bmv2.close()


def make_rig(request: pytest.FixtureRequest, growth_bytes: int) -> Rig:
    """Return a switch with a job of four workers."""
    engine, lanes = request.param
    if engine != "bmv2":
        return Rig(Embedded(lanes, engine), workers=WORKERS, lanes_per_frame=lanes, growth_bytes=growth_bytes)
    running = request.getfixturevalue("bmv2s")
    if lanes in running and running[lanes].child.process.poll() is None:
        running[lanes].reset()
    else:  # the first use, or the test before has seen BMv2 end
        running[lanes] = Bmv2(lanes)
    return Rig(running[lanes], workers=WORKERS, lanes_per_frame=lanes, growth_bytes=LIMITED_GROWTH)


@pytest.fixture(params=EMBEDDED + BMV2)
def rig(request: pytest.FixtureRequest) -> Rig:
    """Return a switch; growth is limited only where it is BMv2."""
    return make_rig(request, growth_bytes=65535)


@pytest.fixture(params=EMBEDDED + BMV2)
def limited_rig(request: pytest.FixtureRequest) -> Rig:
    """Return a switch whose frames may grow as on BMv2."""
    return make_rig(request, growth_bytes=LIMITED_GROWTH)
