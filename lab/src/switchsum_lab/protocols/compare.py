"""A protocol's switch in Python and its P4 program, held to each other packet by packet.

The protocol's own hosts make the frames, on links that lose, repeat and overtake.  Between these frames come others
that were changed at random, and frames that follow the program's parser.  Both switches get every frame at the same
time, and must send the same frames to the same ports.  The first difference is cut down to the fewest and shortest
frames that show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from switchsum_lab.simulation.conditions import CableConditions
from switchsum_lab.simulation.jobs import write
from switchsum_lab.simulation.python_switch import Made, PythonSwitch
from switchsum_lab.simulation.records import NEVER
from switchsum_protocol.errors import UsageError
from switchsum_switch.api.switch import Switch
from switchsum_switch.differ.case import Packet, Step
from switchsum_switch.differ.packets import Packets
from switchsum_switch.differ.shrink import shrink
from switchsum_switch.program.reader import read_program

from .seam import Baseline, World, load
from .virtual import VirtualRun

SLOTS: Final = 4
"""Frames that a worker has in flight: few, so that slots are used again and again."""
ROUGH: Final = CableConditions(rate_bps=1e9, loss=0.02, late=0.02, late_by_s=20e-6, twice=0.02)
_RUN_FRAMES: Final = 1000
"""Frames of one run.  Each run begins with fresh switches, so that a difference is soon cut down."""
_CHANGED: Final = (0.0, 0.02, 0.3)
"""How many changed frames come for each of the hosts': a run draws one of these, for a few can stop a protocol."""
_PARSED: Final = 0.1
"""Share of the changed frames that follow the program's parser."""
_HEAD_BYTES: Final = 64
"""Where most changes are: the lanes behind it are added and nothing else."""
_REMEMBERED: Final = 64
_SHRINKING: Final = 400
"""Runs that cutting down may take."""
_PATIENCE_S: Final = 0.2
"""Virtual time of a call: frames that were changed may keep hosts waiting for ever."""
_MICROSECONDS: Final = 1_000_000
"""In a second: P4's timestamps count them, so that both switches get whole ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPacket(Packet):
    """A frame arrives at a time."""

    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Frames about whose last one the two switches do not agree."""

    seed: int
    frame: int
    """Number of the frame in its run."""
    packets: tuple[Packet, ...]
    """The fewest and shortest that were found to show it."""
    by_python: Made | str
    """What `switch.py` sends at the last one, or the error that it raises."""
    by_program: Made

    def __str__(self) -> str:
        """Return the difference as lines of text."""
        came = [f"port {one.port}: {_hex(one.frame)}" for one in self.packets]
        return "\n".join(
            [
                f"switch.py and the P4 program differ at frame {self.frame} of seed {self.seed}; these frames show it:",
                *came,
                f"at the last of them switch.py {_said(self.by_python)}",
                f"the P4 program {_said(self.by_program)}",
                *([] if isinstance(self.by_python, str) else _first_bytes(self.by_python, self.by_program)),
            ]
        )

    def as_json(self) -> dict[str, object]:
        """Return the difference for programs: ports, and whole frames in hexadecimal."""
        sides = {"by_python": self.by_python, "by_program": self.by_program}
        return {
            "seed": self.seed,
            "frame": self.frame,
            "packets": [[one.port, one.frame.hex()] for one in self.packets],
            **{
                name: sent if isinstance(sent, str) else [[port, frame.hex()] for port, frame in sent]
                for name, sent in sides.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What was compared, and the difference, if there is one."""

    frames: int
    answered: int
    """Frames to which both have sent something."""
    runs: int
    difference: Difference | None


def compare(
    protocol: str | Baseline, *, frames: int = 10_000, workers: int = 3, lanes: int | None = None, seed: int = 1
) -> Compared:
    """Give the same frames to a protocol's switch in Python and to its P4 program.

    Args:
        protocol: The protocol, its folder, or the name of one of ours.
        frames: How many frames at least.
        workers: Workers of the job that make them.
        lanes: Values in a frame; None: as the protocol says.
        seed: Of all chance.

    Returns:
        What was compared.  It ends at the first difference.

    Raises:
        UsageError: The protocol lacks `switch.py`, or a program for these lanes, or its class wants to be called at a
            time.

    Example:
        >>> compare("skeleton", frames=1000).difference is None  # doctest: +SKIP
        True

    """
    baseline = protocol if isinstance(protocol, Baseline) else load(protocol)
    if not baseline.has_program:
        raise UsageError(f"{baseline.name} has no P4 program with which its switch.py could be compared")
    done = answered = runs = 0
    while done < frames:
        run_seed = seed + runs
        world = baseline.world(workers=workers, lanes=lanes or baseline.lanes, slots=SLOTS, seed=run_seed)
        if runs == 0:
            both = _Both(baseline, world)
        both.begin(run_seed)
        runs += 1
        _run(baseline, world, both)
        done, answered = done + len(both.packets), answered + both.answered
        if both.has_found:
            return Compared(frames=done, answered=answered, runs=runs, difference=both.difference(run_seed))
    return Compared(frames=done, answered=answered, runs=runs, difference=None)


class _EnoughError(Exception):
    """A run has had its frames, or a difference was found."""


class _Both:
    """Both switches as one, in the place of a run's switch."""

    def __init__(self, baseline: Baseline, world: World) -> None:
        self._baseline, self._world = baseline, world
        program = baseline.program(world.lanes)
        self._program = Switch(*program)
        with baseline.taking(world):
            for item in baseline.entries(world):
                write(self._program, item)
        self._fresh = self._program.snapshot()
        self._parsed = read_program(program[0])
        self.begin(0)

    def begin(self, seed: int) -> None:
        """Begin anew, with fresh switches."""
        self._random = Random(f"compare {seed}")
        self._share = self._random.choice(_CHANGED)
        self._packets = Packets(self._parsed, self._random)
        self._latest: deque[bytes] = deque(maxlen=_REMEMBERED)
        self.packets: list[TimedPacket] = []
        """All frames of this run."""
        self.answered, self.has_found, self._at_us = 0, False, 0
        self._reset()

    def process(self, port: int, frame: bytes, now: float) -> Made:
        """Give a frame to both, and now and then others before it; return what the program sends."""
        self._at_us = int(now * _MICROSECONDS)
        self._latest.append(frame)
        while self._random.random() < self._share / (1 + self._share):
            self._feed(*self._changed(port))
        return self._feed(port, frame)

    def difference(self, seed: int) -> Difference:
        """Return the difference that was found, cut down."""
        found = shrink(self.packets, self._differs, _SHRINKING)
        packets = tuple(one for one in found if isinstance(one, Packet))
        by_python, by_program = self._replay(packets)
        return Difference(
            seed=seed, frame=len(self.packets), packets=packets, by_python=by_python, by_program=by_program
        )

    def _reset(self) -> None:
        self._program.restore(self._fresh)
        self._plane = PythonSwitch(self._baseline.plane(self._world))
        self._plane.now_s = lambda: self._at_us / _MICROSECONDS

    def _feed(self, port: int, frame: bytes) -> Made:
        self.packets.append(TimedPacket(port=port, frame=frame, at_us=self._at_us))
        by_python, by_program = self._sent(self.packets[-1])
        self.has_found = by_python != by_program
        if self.has_found or len(self.packets) >= _RUN_FRAMES:
            raise _EnoughError
        self.answered += bool(by_program)
        return by_program

    def _sent(self, packet: TimedPacket) -> tuple[Made | str, Made]:
        """Return what each switch makes of a frame; copies have no order."""
        self._at_us = packet.at_us
        self._program.clock.stop(at_s=packet.at_us / _MICROSECONDS)
        by_program = sorted(self._program.process(packet.port, packet.frame))
        try:
            by_python = sorted(self._plane.process(packet.port, packet.frame))
        except Exception as error:
            return f"{type(error).__name__}: {error}", by_program
        if self._plane.due() != NEVER:
            raise UsageError(
                f"{self._baseline.name}'s switch.py sets until, but a P4 program for v1model does nothing without a "
                "frame: look at now when a frame comes, or let a host send one at that time"
            )
        return by_python, by_program

    def _replay(self, packets: Sequence[Step]) -> tuple[Made | str, Made]:
        """Return what fresh switches make of the last of some frames."""
        self._reset()
        sent: tuple[Made | str, Made] = [], []
        for packet in packets:
            assert isinstance(packet, TimedPacket)
            sent = self._sent(packet)
            if isinstance(sent[0], str):
                break
        return sent

    def _differs(self, packets: Sequence[Step]) -> bool:
        by_python, by_program = self._replay(packets)
        return by_python != by_program

    def _changed(self, port: int) -> tuple[int, bytes]:
        """Return a frame that the hosts have not sent, or not here, or not now, and where it comes."""
        random = self._random
        if random.random() < 1 / 8:
            port = random.randrange(self._world.hosts + 2)
        if random.random() < _PARSED:
            return port, self._packets.frame()
        frame = bytearray(random.choice(self._latest))
        for _ in range(random.randrange(3)):
            at = random.randrange(min(len(frame), _HEAD_BYTES) if random.random() < 7 / 8 else len(frame))
            frame[at] = random.choice((0, 1, 0xFF, frame[at] ^ 1 << random.randrange(8)))
        if random.random() < 1 / 8:
            frame = frame[: random.randrange(1, len(frame) + 1)] + random.randbytes(random.choice((0, 0, 8)))
        return port, bytes(frame)


def _run(baseline: Baseline, world: World, both: _Both) -> None:
    """Let the protocol's hosts sum arrays until there are enough frames."""
    run = VirtualRun(baseline, world, ROUGH, plane=both)
    random = np.random.default_rng(world.seed)
    try:
        while True:
            size = int(random.integers(1, 16 * SLOTS * world.lanes))
            arrays = [random.standard_normal(size).astype(np.float32) for _ in range(world.workers)]
            before = len(both.packets)
            is_over = run.together(lambda peer, rank: peer.allreduce(arrays[rank]), run.network.now + _PATIENCE_S)  # noqa: B023 - runs at once
            if is_over is None or len(both.packets) == before:
                return
    except _EnoughError:
        pass


def _said(sent: Made | str) -> str:
    if isinstance(sent, str):
        return f"raises {sent}"
    return "; ".join(f"sends to port {port}: {_hex(frame)}" for port, frame in sent) or "sends nothing"


def _hex(frame: bytes) -> str:
    """Return a frame in hexadecimal, without the zeros at its end."""
    short = frame.rstrip(b"\0")
    return short.hex() + (f" and {len(frame) - len(short)} bytes of zero" if len(short) < len(frame) else "")


def _first_bytes(one: Made, other: Made) -> list[str]:
    """Say at which byte the frames to the same port begin to differ, for the first of such frames."""
    for (port, first), (also, second) in zip(one, other, strict=False):
        if port == also and first != second:
            at = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
            return [
                f"to port {port} they differ from byte {at} on"
                if at is not None
                else f"to port {port} go {len(first)} and {len(second)} bytes"
            ]
    return []
