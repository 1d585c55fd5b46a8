"""Other systems' protocols in virtual time: their P4 program and their hosts on a simulated star.

The loop of the simulation calls a host by the addresses of four functions, which lead back into Python here.  A host's
own computation takes no virtual time.
"""

from __future__ import annotations

import ctypes
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import CableConditions, HostCost
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.python_switch import Plane
from switchsum_lab.simulation.records import Stop
from switchsum_lab.simulation.scenario import Drawing, LinkResult, Result, Scenario, arrays_of
from switchsum_lab.simulation.sums import error_of
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.api.switch import Switch
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.wires.rows import row_stride

from .seam import HEADERS_BYTES, Array, Baseline, Driver, Peer, Steps, World, load, statistics_of

SWITCH: Final = "switch"
PATIENCE_S: Final = 600.0
"""Virtual time after which a call has failed: a protocol that repeats for ever must not run for ever."""
_MOST_FRAMES: Final = 256
"""Most frames that a host sends in one turn."""
_HEADER_BYTES: Final = 64
"""Room for the protocol's own header, behind Ethernet, IPv4 and UDP."""
_WORDS: Final = ("queued", "consumed", "blocked", "finished", "failure")
_RECEIVE: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7, ctypes.c_double)
_POLL: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_double)
_TWO: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


class VirtualHost:
    """A host of a protocol in the simulation's loop; it is the `HostLink` that the protocol sees."""

    most_frames = _MOST_FRAMES

    def __init__(self, host: int, frame_bytes: int) -> None:
        self.host = host
        self.driver = Driver()
        self.error: BaseException | None = None
        """Exception that a step of the host raised."""
        self.frames = self.bytes = 0
        """Number of frames that it has sent."""
        self.whole: Callable[[int, int, int], bytes] = ctypes.string_at  # type: ignore[assignment]
        self._now = 0.0
        self._outgoing: deque[bytes] = deque()
        self._words = np.zeros(len(_WORDS), np.int64)
        self._rows = np.zeros((_MOST_FRAMES, row_stride(frame_bytes)), np.uint8)
        self._start, self._frame_bytes = address_of(self._rows), frame_bytes
        self._queue_rows = np.arange(_MOST_FRAMES, dtype=np.uint32)
        self._lengths = np.zeros(_MOST_FRAMES, np.uint32)
        self._calls = (_RECEIVE(self._receive), _POLL(self._poll), _TWO(self._sent), _TWO(self._tell_wake_at))

    def facts(self) -> Mapping[str, int]:
        """Return fields of its `NodeRecord`."""
        receive, poll, sent, wake = (ctypes.cast(call, ctypes.c_void_p).value or 0 for call in self._calls)
        start = address_of(self._words)
        words = {name: start + 8 * number for number, name in enumerate(_WORDS)}
        return {
            **{"own": 0, "receive": receive, "poll": poll, "sent": sent, "wake": wake, "lead": 0, "head": 0},
            **{"queue_count": words.pop("queued"), "store": self._start, "stride": self._rows.shape[1]},
            **{"queue_rows": address_of(self._queue_rows), "queue_lengths": address_of(self._lengths)},
            **words,
        }

    # What the protocol sees.

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Send a frame."""
        if not 0 < len(frame) <= self._frame_bytes:
            raise UsageError(f"a frame has 1 to {self._frame_bytes} bytes here, not {len(frame)}")
        self._outgoing.append(bytes(frame))

    def now(self) -> float:
        """Return the virtual time."""
        return self._now

    # What happens.

    def begin(self, steps: Steps, now: float) -> None:
        """Begin what the host has to do, between two runs of the loop."""
        self._now = now
        self._word("finished", 0)
        self.driver.begin(steps)

    def _receive(
        self, own: int, start: int, stride: int, rows: int, lengths: int, bodies: int, count: int, now: float
    ) -> int:
        self._now = now
        length = ctypes.c_uint32.from_address(lengths).value
        body = ctypes.c_int64.from_address(bodies).value
        frame = self.whole(start, body, length) if body else ctypes.string_at(start, length)
        self._guard(self.driver.take, frame)
        return 0

    def _poll(self, own: int, now: float) -> int:
        self._now = now
        self._guard(self.driver.tick, now)
        count = min(_MOST_FRAMES, len(self._outgoing))
        for row in range(count):
            frame = self._outgoing.popleft()
            ctypes.memmove(self._start + row * self._rows.shape[1], frame, len(frame))
            self._lengths[row] = len(frame)
            self.bytes += len(frame)
        self.frames += count
        self._word("queued", count)
        if self.driver.is_done:
            self._word("finished", 1)
        return 0

    def _sent(self, own: int, count: int) -> int:
        self._word("queued", 0)
        return 0

    def _tell_wake_at(self, own: int, target: int) -> int:
        until = self.driver.until
        at = self._now if self._outgoing else math.inf if until is None else until
        ctypes.c_double.from_address(target).value = at
        return 0

    def _guard(self, step: Callable[[Any], None], argument: object) -> None:
        """Call a step of the protocol: what it raises ends the run, for no exception passes through native code."""
        if self.error is not None:
            return
        try:
            step(argument)
        except BaseException as error:
            self.error = error
            self._word("failure", 1)

    def _word(self, name: str, value: int) -> None:
        self._words[_WORDS.index(name)] = value


class VirtualRun:
    """A protocol on a star in virtual time."""

    def __init__(
        self,
        baseline: Baseline,
        world: World,
        conditions: CableConditions,
        *,
        rates_bps: Sequence[float] = (),
        cost: HostCost = HostCost(),  # noqa: B008 - frozen
        mtu: int = 1500,
        job_count: int = 1,
        plane: Plane | None = None,
    ) -> None:
        """Lay the star.

        Args:
            baseline: The protocol.
            world: What its hosts are told.
            conditions: What every link is like; hosts have their own queues as it says.
            rates_bps: The rate of each host's link; nothing: that of `conditions`.
            cost: What frames cost the hosts' processors.
            mtu: Of the links.
            job_count: Number of jobs that share the switch; each has hosts of its own, as many as the world says.
            plane: The switch in Python.  None: the protocol's P4 program, or if it has none its `switch.py`.

        Raises:
            UsageError: The protocol's folder has no switch for these lanes.

        """
        world = replace(world, is_lossless=conditions.loses_nothing)
        self.world, self.baseline = world, baseline
        frame_bytes = max(mtu + 14, HEADERS_BYTES + _HEADER_BYTES + 4 * world.lanes)
        self.network = Network(seed=world.seed, frame_bytes=frame_bytes, open_ports=True)
        worlds = [replace(world, job=job) for job in range(job_count)]
        if plane is None and baseline.has_program:
            switch = self.network.switch(SWITCH, Switch(*baseline.program(world.lanes)))
            for own in worlds:
                with baseline.taking(own):
                    for item in baseline.entries(own):
                        jobs.write(switch, item)
        else:
            self.network.python_switch(SWITCH, plane or baseline.plane(world))
        self.hosts: list[VirtualHost] = []
        """Of all jobs, one job after the other."""
        self.workers: list[int] = []
        """Which of the hosts are workers."""
        self.numbers: list[int] = []
        self.peers: list[Peer] = []
        """Of the workers."""
        for own in worlds:
            for host in range(world.hosts):
                number, made = len(self.hosts), VirtualHost(host, frame_bytes)
                self.hosts.append(made)
                made.whole = self.network.world.frame_at
                self.numbers.append(self.network.native_host(f"h{number}", made, cost))
                down = replace(conditions, rate_bps=rates_bps[number]) if rates_bps else conditions
                up = replace(down, queue_bytes=down.host_queue_bytes, queue_frames=down.host_queue_frames)
                self.network.link(f"h{number}", SWITCH, up, port=own.port(host), back=down)
                if host >= world.workers:
                    self.begin(number, baseline.server(own, made))
                    continue
                self.workers.append(number)
                self.peers.append(baseline.peer(own, made))
                made.driver = Driver(self.peers[-1].unasked)

    def begin(self, host: int, steps: Steps) -> None:
        """Begin what a host has to do now; hosts are numbered over all jobs."""
        self.hosts[host].begin(steps, self.network.now)
        self.network.world.wake(self.numbers[host])

    def run(self, ranks: Sequence[int], until_s: float | None = None, *, first: bool = False) -> bool:
        """Let time pass until these hosts have finished, or with `first` one of them; False: the time is over.

        Raises what a host has raised, and LocalError where all wait and nothing comes any more.
        """
        world = self.network.world
        waiting = [rank for rank in ranks if not self.hosts[rank].driver.is_done]
        if not waiting or (first and len(waiting) < len(ranks)):
            return True
        world.wait_for([self.numbers[rank] for rank in waiting], first=first)
        stop = self.network.run(until_s)
        for made in self.hosts:
            if made.error is not None:
                raise made.error
        if stop == Stop.IDLE:
            raise LocalError(
                f"{self.baseline.name} stands still at {self.network.now:.9g} s of virtual time: rank {waiting[0]} "
                "waits for a frame that nobody sends, and has no time-out"
            )
        return stop == Stop.FINISHED

    def together(self, call: Callable[[Peer, int], Steps], until_s: float | None = None) -> float | None:
        """Have every rank begin a call now; return the seconds until the last one had finished.

        Ranks are counted over all jobs.  None: not all had finished at the time `until_s`, or after `PATIENCE_S`.
        """
        began = self.network.now
        for rank, (host, peer) in enumerate(zip(self.workers, self.peers, strict=True)):
            self.begin(host, call(peer, rank))
        if not self.run(self.workers, began + PATIENCE_S if until_s is None else until_s):
            return None
        return max(self.network.world.finished_s([self.numbers[host] for host in self.workers]), began) - began

    def statistics(self) -> dict[str, int]:
        """Return the workers' counters, summed."""
        found: dict[str, int] = {}
        for peer in self.peers:
            for name, value in statistics_of(peer).items():
                found[name] = found.get(name, 0) + value
        return found


def fitting_slots(
    baseline: Baseline, conditions: CableConditions, rate_bps: float, lanes: int, *, servers: int = 0
) -> int:
    """Return how many frames a worker has in flight on such links, if nobody says."""
    fitting = jobs.fitting_window(conditions, rate_bps, lanes, baseline.levels, least=1)
    return baseline.window(lanes, fitting, servers)


def simulate(
    scenario: Scenario,
    directory: str | Path,
    *,
    draw: Drawing = arrays_of,
    servers: int | None = None,
    block: int | None = None,
) -> Result:
    """Simulate one allreduce of a scenario by another system's protocol.

    Args:
        scenario: Jobs on one switch.  Its kind of lanes, density and failures say nothing to other protocols, and must
            be as they are by default.
        directory: The protocol's folder, or the name of one of ours.
        draw: Makes each rank's array and their sum for a job; None: as our own workers get them in this scenario.
        servers: Hosts that serve the workers of a job; None: as many as the protocol says.
        block: Values in a block, several of which share a frame; None: a frame is a block.

    Raises:
        UsageError: The scenario has what the protocol or the laboratory does not take.
        LocalError: The protocol stands still.

    """
    baseline = load(directory)
    if len(scenario.planned.switches) > 1 or scenario.failures or scenario.lanes != "int32":
        raise UsageError(f"{baseline.name} runs on one switch, in int32 lanes, without failures")
    rates = scenario.rates_bps
    lanes = scenario.lanes_per_frame
    world = baseline.world(
        workers=scenario.workers,
        lanes=lanes,
        slots=scenario.window_slots or 1,
        seed=scenario.seed,
        servers=servers,
        jobs=scenario.jobs,
        block=block,
    )
    if scenario.window_slots is None:
        slots = fitting_slots(baseline, scenario.conditions, rates[0], lanes, servers=world.servers)
        world = replace(world, slots=slots)
    conditions = replace(scenario.conditions, rate_bps=min(rates))
    run = VirtualRun(baseline, world, conditions, cost=scenario.cost, mtu=scenario.mtu, job_count=scenario.jobs)
    for name, since_s, until_s in scenario.pauses:
        run.network.pause(f"h{run.workers[scenario.hosts.index(name)]}", (since_s, until_s))
    drawn = [draw(replace(scenario, seed=scenario.seed + number)) for number in range(scenario.jobs)]
    given = [array.copy() for own, _ in drawn for array in own]
    seconds = None
    with suppress(KeyboardInterrupt):  # what there is of it is a result, too
        seconds = run.together(lambda peer, rank: peer.allreduce(given[rank]), scenario.until_s)
    totals = [total for own, total in drawn for _ in own]
    return _result(run, baseline, given, totals, seconds)


def _result(
    run: VirtualRun, baseline: Baseline, arrays: Sequence[Array], totals: Sequence[Array], seconds: float | None
) -> Result:
    network, right, error = run.network, None, None
    if seconds is not None:
        pairs = [*zip(arrays, totals, strict=True)]
        right = all(np.allclose(one, total, rtol=1e-5, atol=1e-3) for one, total in pairs)
        right = right or (None if baseline.is_inexact else False)
        error = max(error_of(one, total) for one, total in pairs)
    counted = [statistics_of(peer).get("left_out") for peer in run.peers]
    return Result(
        sum_error=error,
        left_out=() if None in counted else tuple(one or 0 for one in counted),
        way=baseline.name,
        simulated_s=network.now if seconds is None else seconds,
        is_complete=seconds is not None,
        finished=sum(run.hosts[host].driver.is_done for host in run.workers),
        is_right=right,
        repeats=run.statistics().get("repeats", 0),
        frames=network.world.frames_moved,
        digest=network.digest,
        links=tuple(
            LinkResult(
                name=link.name,
                bytes=link.bytes,
                most_queued_bytes=link.most_queued_bytes,
                dropped=link.dropped,
                lost=link.lost,
                marked=link.marked,
            )
            for link in network.busiest()
        ),
    )
