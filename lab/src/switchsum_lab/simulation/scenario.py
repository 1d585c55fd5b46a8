"""A question to the simulator: a network, a job, what links are like; and the answer, in numbers.

`simulate` runs the job with switches that add, and then each peer that was asked for on a fresh copy of the same
network.  Everything in the answer is simulated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum import topologies
from switchsum.planning.runs import places
from switchsum_controller.plan import windows
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, FRAME_BYTES, LaneFormat, payload_bytes
from switchsum_switch.wires.headers import ETHERNET_BYTES

from . import jobs, peers
from .conditions import CableConditions, HostCost, HostTiming
from .network import LinkView, Network
from .placement import host_address, place_all, rails_of, rates_bps
from .streams import Receiver, Sender

IDEAL: Final = "ideal-ring"
PEERS: Final = (*peers.ALGORITHMS, IDEAL)
BEST: Final = "best"
"""Stands for all collectives of hosts, of which the fastest one counts."""
MOST_JOBS: Final = 16
"""Most jobs beside one another. Each needs slots of the switches, of which there are 1,024."""
OWN_ARRAYS_BYTES: Final = 1 << 29
"""Most bytes of all ranks' arrays together with which each rank has an array of its own. Beyond it, all have the same
one.
"""
_WORKER_BYTES: Final = 400_000
"""Bytes of an engine, without its rows."""
_SWITCH_BYTES: Final = 16_000_000
_FRAMES_A_SECOND: Final = 400_000
"""Frames that a slow core simulates in a second with a thousand workers, for the estimate of a run's time."""
_LONGEST_BESIDE_STREAMS_S: Final = 5.0
_MOST_RINGS: Final = 100
"""A job beside streams is given up after as many times of an ideal ring, and so many seconds."""
LONGEST_S: Final = 3600.0
"""A run that would take longer is refused unless the caller allows it."""


class ScenarioError(UsageError):
    """A scenario cannot be, because of one of its options."""

    def __init__(self, text: str, option: str) -> None:
        super().__init__(text)
        self.option = option
        """Name of the option, as sweeps call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is to be simulated."""

    planned: topologies.Network
    workers: int
    size: int
    """Bytes of each rank's array of float32."""
    conditions: CableConditions = field(default_factory=CableConditions)
    """Conditions of all links except their rates, which the topology has."""
    lanes_per_frame: int = 256
    lanes: str = "int32"
    """Lane format of the sums."""
    density: float = 1.0
    """Share of each rank's blocks that are not zero; which ones is drawn for each rank."""
    has_common_blocks: bool = False
    """Which blocks are not zero is drawn once for all ranks."""
    window_slots: int | None = None
    """Slots of each job. None: as many as `switchsum run` takes over wires, as far as the switches have them."""
    cost: HostCost = field(default_factory=HostCost)
    seed: int = 0
    against: tuple[str, ...] = ()
    """Names of `PEERS`."""
    until_s: float | None = None
    failures: tuple[tuple[str, float], ...] = ()
    """Switches, or links as `tail->head`, and when they fail for good while the switches add."""
    switch_timeout_s: float | None = None
    """How long ranks wait for a switch that does not answer before they give up, where some switch or link fails; None:
    as in a job."""
    move_after_s: float | None = None
    """How long the controller waits for a switch before it moves jobs to others; None: as in a real network."""
    outages: tuple[tuple[str, float, float], ...] = ()
    """Links as `tail->head`, and between which times they are down, both ways, while the switches add."""
    pauses: tuple[tuple[str, float, float], ...] = ()
    """Switches and hosts, and between which times they stand still while the switches add."""
    batch_s: float = 0.0
    """How long hosts wait for more frames behind the first one (`HostTiming.batch_s`)."""
    background: int | None = None
    """Streams as TCP has them (Reno), which send all the time between hosts of no job.  They obey marks if there are
    some.  A number, and 0 as well, leaves one host of each turn to them; None: jobs take all.
    """
    jobs: int = 1
    """Number of jobs, of that many workers each, that add at the same time. Each host belongs to one."""
    link_mtu: int | None = None
    """MTU of the links; None: `mtu` says it."""

    def __post_init__(self) -> None:
        """Raise UsageError for what is no scenario."""
        if self.size < 4:
            raise UsageError(f"an array has at least 4 bytes, not {self.size}")
        if not 0 <= self.density <= 1:
            raise UsageError(f"a density must be 0 to 1, not {self.density:g}")
        if self.seed < 0:
            raise UsageError(f"a seed is a whole number from 0 on, not {self.seed}")
        if self.window_slots is not None and self.window_slots < 1:
            raise UsageError(f"a window has at least 1 slot, not {self.window_slots}")
        if self.until_s is not None and self.until_s <= 0:
            raise UsageError(f"a simulation ends later than it begins, which is at 0 s, not at {self.until_s:g} s")
        for name in self.against:
            if name not in PEERS:
                raise UsageError(f"a peer must be one of {', '.join((*PEERS, BEST))}, not {name}")
        if (self.outages or self.pauses or self.batch_s) and not {*self.against} <= {IDEAL}:
            raise UsageError("outages, pauses and batches are of switches that add: compare them with ideal-ring alone")
        self._check_failures()
        self._check_workers()
        if not 0 <= (count := self.background or 0) <= len(self.others) // 2:
            raise ScenarioError(
                f"each of {count} streams needs two hosts that belong to no job, and {len(self.others)} are left",
                "background",
            )
        limits = self.conditions.queue_bytes, self.conditions.queue_frames, self.conditions.mark_bytes
        if self.background and all(limit is None for limit in limits):
            raise ScenarioError(
                "streams fill queues that have no limit: give a queue such as 64f, or marks such as 24KiB", "background"
            )
        for name in self.against:
            peers.check_hosts(name, self.workers)

    def _check_workers(self) -> None:
        if not 1 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"a network has room for 1 to {MOST_JOBS} jobs, not {self.jobs}")
        hosts = len(self.planned.hosts)
        if self.workers < 2:
            raise UsageError(f"an allreduce has 2 workers or more, not {self.workers}")
        if not 2 <= self.workers <= hosts // self._turn:
            of_each = f" of each of {self.jobs} jobs" if self.jobs > 1 else ""
            of_each += " beside streams" if self.background is not None else ""
            raise UsageError(
                f"a topology of {hosts} hosts has room for 2 to {hosts // self._turn} workers{of_each}, "
                f"not {self.workers}"
            )

    def _check_failures(self) -> None:
        """Raise UsageError for switches and links that are not there, before a network is built."""
        if self.switch_timeout_s is not None and not self.failures:
            raise UsageError("ranks wait for a switch that has failed: --switch-timeout needs --fail")
        if self.move_after_s is not None and not self.failures:
            raise UsageError("jobs move away from a switch that has failed: --move-after needs --fail")
        linked = {frozenset(cable.ends) for cable in self.planned.cables}
        for name, _ in self.failures:
            one, arrow, far = name.partition("->")
            if arrow and frozenset((one, far)) not in linked:
                raise ScenarioError(f"there is no link between {one} and {far}", "fail")
            if not arrow and one not in self.planned.switches:
                raise ScenarioError(f"there is no switch {one}: {', '.join(self.planned.switches)}", "fail")

    @property
    def _turn(self) -> int:
        """How many take hosts in turn: the jobs, and the streams beside them."""
        return self.jobs + (self.background is not None)

    @property
    def hosts(self) -> list[str]:
        """The host of each rank, of one job behind the other."""
        return [host for hosts in self.hosts_of_jobs for host in hosts]

    @property
    def hosts_of_jobs(self) -> list[list[str]]:
        """The host of each rank, by job: jobs take hosts in turn, so that they share the links between switches."""
        hosts = self.planned.hosts
        return [places(hosts[number :: self._turn], self.workers) for number in range(self.jobs)]

    @property
    def others(self) -> list[str]:
        """Hosts that belong to no job."""
        own = {*self.hosts}
        return [host for host in self.planned.hosts if host not in own]

    @property
    def mtu(self) -> int:
        """Of the links: as given, else what a frame of so many lanes needs, as Ethernet has it."""
        if self.link_mtu is not None:
            return self.link_mtu
        return 1500 if FRAME_BYTES + payload_bytes(self.lanes_per_frame) - ETHERNET_BYTES <= 1500 else 9000

    @property
    def rates_bps(self) -> list[float]:
        """Of each link of a host: of that of the slowest one.  Hosts have one link, or one for each rail."""
        return rates_bps(rails_of(self.planned, self.hosts, jobs.SLOTS))

    @property
    def window(self) -> int:
        """Slots of each job."""
        return self.window_slots or min(windows.within(), jobs.SLOTS // self.jobs)

    @property
    def ends_s(self) -> float | None:
        """When a simulation ends that has not finished; None: when nothing happens any more.

        Streams of the background never end, so that a job which stands still beside them would not be noticed.
        """
        if self.until_s is not None or not self.background:
            return self.until_s
        ring_s = peers.ideal_ring_s(self.workers, self.size, self.conditions, sum(self.rates_bps), self.mtu)
        stands_s = max((end_s for _, _, end_s in (*self.pauses, *self.outages)), default=0.0)
        return stands_s + _LONGEST_BESIDE_STREAMS_S + _MOST_RINGS * self.jobs * ring_s

    @property
    def shares_array(self) -> bool:
        """Whether all ranks have the same array."""
        return self.size * self.workers * self.jobs > OWN_ARRAYS_BYTES


Drawing = Callable[[Scenario], tuple[list[npt.NDArray[np.float32]], npt.NDArray[np.float32]]]
"""Returns each rank's array of a job, and their sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkResult:
    """One direction of a link."""

    name: str
    bytes: int
    most_queued_bytes: int
    dropped: int
    lost: int
    marked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one way of adding came to; all of it is simulated."""

    way: str
    simulated_s: float
    is_complete: bool
    finished: int
    """Hosts that have finished."""
    is_right: bool | None
    """Whether every rank has the sum; None: nothing is added."""
    repeats: int
    frames: int
    """Number of frames that links have taken."""
    digest: str
    """Equal runs have equal ones."""
    links: tuple[LinkResult, ...]
    """The one with the longest queue first."""
    moved: tuple[str, ...] = ()
    """Changes of the controller after failures."""
    jobs_s: tuple[float, ...] = ()
    """Seconds of each of several jobs; of one that gave up, until then."""
    gave_up: tuple[str | None, ...] = ()
    """Why each of several jobs has given up; None: it has not."""
    sum_error: float | None = None
    """Energy of the sum's error over that of the right sum, where it is largest; None: nobody looked."""
    left_out: tuple[int, ...] = ()
    """How many contributions of each rank sums lack, of a protocol that counts them."""


def named(text: str, workers: int, size: int) -> tuple[str, ...]:
    """Return the peers that a text names, where `best` is all that may be the fastest, and the ideal ring."""
    found: list[str] = []
    for name in filter(None, text.split(",")):
        found += [*peers.possible(workers, size), IDEAL] if name == BEST else [name]
    return tuple(dict.fromkeys(found))


def best_of_hosts(results: Sequence[Result]) -> Result | None:
    """Return the fastest collective of hosts; None: none of them has ended."""
    ended = [one for one in results if one.way in peers.ALGORITHMS and one.is_complete]
    return min(ended, key=lambda one: one.simulated_s, default=None)


def estimate(scenario: Scenario) -> tuple[int, float]:
    """Return about how many bytes of memory a scenario needs, and how many seconds of one core."""
    levels = 3 if len(scenario.planned.switches) > 40 else min(2, len(scenario.planned.switches))
    window = scenario.window
    row = FRAME_BYTES + payload_bytes(scenario.lanes_per_frame)
    workers = scenario.workers * scenario.jobs
    arrays = scenario.size * (scenario.jobs if scenario.shares_array else workers)
    has_peers = not {"ring", "two-level-ring", "tree"}.isdisjoint(scenario.against)
    peer = 2 * scenario.size // (scenario.mtu - 40) * 2 if has_peers else 0
    memory = arrays + workers * (_WORKER_BYTES + 4 * window * row + peer)
    memory += len(scenario.planned.switches) * _SWITCH_BYTES
    blocks = scenario.size / payload_bytes(scenario.lanes_per_frame) + window
    frames = 2 * workers * blocks * 1.1
    per_hop = 2 * workers * scenario.size / (scenario.mtu - 40) * 1.25 * 2 * levels
    frames += per_hop * sum(name != IDEAL for name in scenario.against)
    return int(memory), frames / _FRAMES_A_SECOND


def check_size(scenario: Scenario, *, most_s: float = LONGEST_S) -> None:
    """Raise LocalError if a scenario needs more memory than there is, or more time than allowed: before it runs."""
    memory, seconds = estimate(scenario)
    available = _available_bytes()
    if available is not None and memory > available:
        raise LocalError(
            f"this needs about {memory / 1e9:.3g} GB of memory, and {available / 1e9:.3g} GB are available: fewer "
            "workers, or a smaller window"
        )
    if seconds > most_s:
        raise LocalError(
            f"this takes about {seconds / 3600:.3g} h of one core: fewer workers or bytes, or "
            f"--longest {math.ceil(seconds)}s"
        )


def _available_bytes() -> int | None:
    """Return what the system says is available; None where it does not say."""
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def simulate(
    scenario: Scenario,
    *,
    watch: Callable[[Network, str], object] | None = None,
    ways: Sequence[str] = (),
    draw: Drawing | None = None,
) -> list[Result]:
    """Simulate the job, then its peers, or only these `ways`; return a result for each.

    `watch` is called with each network and what runs on it before anything happens there.  `draw` gives arrays of the
    caller's own in place of `arrays_of`.  On an interrupt the results so far are returned, of which the last one is not
    complete.
    """
    found: list[Result] = []
    for way in ways or ("switches", *(name for name in scenario.against if name != IDEAL)):
        network = jobs.build(
            scenario.planned,
            scenario.conditions,
            lanes=scenario.lanes_per_frame,
            mtu=scenario.mtu,
            seed=scenario.seed,
        )
        if way == "switches":
            found.append(_added_by_switches(network, scenario, watch or _no_watch, draw or arrays_of))
        else:
            found.append(_added_by_hosts(network, scenario, way, watch or _no_watch))
        if not found[-1].is_complete:
            break
    return found


def _no_watch(network: Network, way: str) -> None:
    """Do nothing."""


def _added_by_switches(
    network: Network, scenario: Scenario, watch: Callable[[Network, str], object], draw: Drawing
) -> Result:
    started, way = jobs_of(network, scenario), "switches"
    for name, at_s in scenario.failures:
        started[0].fail(name, at_s)
    watch(network, way)
    drawn = [draw(replace(scenario, seed=scenario.seed + number)) for number in range(scenario.jobs)]
    arrays = [own for own, _ in drawn]
    try:
        ended = jobs.add_together(started, arrays, lanes=scenario.lanes, until_s=scenario.ends_s)
    except KeyboardInterrupt:  # what there is of it is a result, too
        ended = [job.ended(0.0) for job in started]
    rights = [_is_right(scenario, *own) for own, one in zip(drawn, ended, strict=True) if one.is_complete]
    right = all(rights) if rights else None
    result = _result(network, way, ended, sum(job.repeats for job in started), right)
    return replace(result, moved=tuple(f"{name}{move}" for name, move in _moves(started)))


def _moves(started: Sequence[jobs.Job]) -> Iterator[tuple[str, str]]:
    """Yield where jobs have gone, behind the name of each where there are several."""
    for number, job in enumerate(started, 1):
        yield from ((f"job {number}: " if len(started) > 1 else "", move) for move in job.moved)


def jobs_of(network: Network, scenario: Scenario) -> list[jobs.Job]:
    """Place the jobs, each behind the slots and the hosts of those before."""
    started: list[jobs.Job] = []
    patience: dict[str, Any] = {}
    if scenario.switch_timeout_s is not None:
        patience["switch_timeout_s"] = scenario.switch_timeout_s
    controller = None
    if scenario.failures or len(scenario.rates_bps) > 1:
        hosts, lanes = scenario.hosts, scenario.lanes_per_frame
        away_s, seed = scenario.move_after_s, scenario.seed
        controller = jobs.controlled(network, scenario.planned, hosts, lanes=lanes, seed=seed, away_s=away_s)
    placed = place_all(scenario.planned, scenario.hosts_of_jobs, jobs.SLOTS) if controller is None else []
    for number, hosts in enumerate(scenario.hosts_of_jobs):
        share = jobs.Share(
            number=number,
            first_slot=sum(job.window_slots for job in started),
            first_host=sum(len(job.hosts) for job in started),
            most_slots=jobs.SLOTS // scenario.jobs,
            controller=controller,
            placed=placed[number] if placed else None,
        )
        started.append(
            jobs.Job(
                network,
                scenario.planned,
                hosts,
                scenario.conditions,
                lanes=scenario.lanes_per_frame,
                window_slots=scenario.window,
                cost=scenario.cost,
                timings=dict.fromkeys(hosts, HostTiming(batch_s=scenario.batch_s)),
                share=share,
                seed=scenario.seed,
                **patience,
            )
        )
    _lay_beside(network, scenario)
    return started


def _lay_beside(network: Network, scenario: Scenario) -> None:
    """Lay what is beside the jobs, and what goes wrong."""
    _lay_streams(network, scenario)
    _interrupt(network, scenario)


def _lay_streams(network: Network, scenario: Scenario) -> None:
    """Let the streams of the background begin, each between a host of the first half and one of the second."""
    others, first, nodes = scenario.others, len(scenario.hosts), list[str]()
    for number in range(scenario.background or 0):
        near, far = (host_address(first + 2 * number + end) for end in range(2))
        nodes += [others[number], others[len(others) // 2 + number]]
        obeys = scenario.conditions.mark_bytes is not None
        ends = Sender(near, far, length=scenario.mtu + ETHERNET_BYTES, obeys=obeys), Receiver(far, near)
        for host, end in zip(nodes[-2:], ends, strict=True):
            node = network.native_host(host, end)
            cable = next(cable for cable in scenario.planned.cables if host in cable.ends)
            jobs.attach(network, cable, scenario.conditions)
            network.world.wake(node)
    peers.write_routes(network, nodes, first)


def _interrupt(network: Network, scenario: Scenario) -> None:
    """Have nodes stand still, and links be down, when a scenario says so; raises UsageError for one that is none."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for name, since_s, until_s in scenario.pauses:
        spans.setdefault(name, []).append((since_s, until_s))
    for name, of_node in spans.items():
        network.pause(name, *of_node)
    down: dict[frozenset[str], list[tuple[float, float]]] = {}
    for name, since_s, until_s in scenario.outages:
        if name not in network.links:
            some = ", ".join([*network.links][:4])
            raise UsageError(f"there is no link {name!r}: links have names like {some}")
        down.setdefault(frozenset(name.split("->")), []).append((since_s, until_s))
    for ends, of_cable in down.items():
        one, far = ends
        for name in (f"{one}->{far}", f"{far}->{one}"):
            network.links[name].interrupt(*of_cable)


def _is_right(scenario: Scenario, arrays: list[npt.NDArray[np.float32]], total: npt.NDArray[np.float32]) -> bool:
    """Tell whether each rank has the sum."""
    first = arrays[0]
    is_same = all(array.tobytes() == first.tobytes() for array in arrays[1:])
    return is_same and (scenario.lanes != "int32" or bool(np.allclose(first, total, rtol=1e-5, atol=1e-3)))


def _added_by_hosts(network: Network, scenario: Scenario, way: str, watch: Callable[[Network, str], object]) -> Result:
    watch(network, way)
    window = jobs.fitting_window(scenario.conditions, min(scenario.rates_bps), scenario.lanes_per_frame, 3)
    ended, repeats = peers.run(
        network,
        scenario.planned,
        scenario.hosts_of_jobs,
        scenario.conditions,
        algorithm=way,
        size=scenario.size,
        mtu=scenario.mtu,
        window=window,
        cost=scenario.cost,
        until_s=scenario.ends_s,
        laid=partial(_lay_beside, network, scenario),
    )
    return _result(network, way, ended, repeats, None)


def arrays_of(scenario: Scenario) -> tuple[list[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    """Return each rank's array, and their sum."""
    values, per_block = scenario.size // 4, scenario.lanes_per_frame
    blocks = -(-values // per_block)
    random = np.random.default_rng(scenario.seed)
    common = random.random(blocks) < scenario.density

    def draw(array: npt.NDArray[np.float32], value: float) -> npt.NDArray[np.float32]:
        is_drawn = scenario.density < 1 and not scenario.has_common_blocks
        kept = random.random(blocks) < scenario.density if is_drawn else common
        array[:] = np.repeat(np.where(kept, value, 0).astype(np.float32), per_block)[:values]
        return array

    if scenario.shares_array:
        array = draw(np.empty(values, np.float32), 1.0)
        return [array] * scenario.workers, array * scenario.workers
    # One behind the other, so that the system has large pages for them.
    arrays = np.empty((scenario.workers, values), np.float32)
    own = [draw(array, rank % 7 + 1) for rank, array in enumerate(arrays)]
    return own, np.sum(arrays, axis=0, dtype=np.float32)


def _result(network: Network, way: str, ended: Sequence[jobs.Ended], repeats: int, is_right: bool | None) -> Result:
    return Result(
        way=way,
        simulated_s=max(one.seconds for one in ended),
        is_complete=all(one.is_complete for one in ended),
        finished=sum(one.finished for one in ended),
        jobs_s=tuple(one.seconds for one in ended) if len(ended) > 1 else (),
        gave_up=tuple(None if one.error is None else str(one.error) for one in ended) if len(ended) > 1 else (),
        is_right=is_right,
        repeats=repeats,
        frames=network.world.frames_moved,
        digest=network.digest,
        links=tuple(_link_result(link) for link in network.busiest()),
    )


def _link_result(link: LinkView) -> LinkResult:
    return LinkResult(
        name=link.name,
        bytes=link.bytes,
        most_queued_bytes=link.most_queued_bytes,
        dropped=link.dropped,
        lost=link.lost,
        marked=link.marked,
    )


def ideals(scenario: Scenario) -> dict[str, float]:
    """Return closed formulas: what takes at least so long on these links, headers counted and delays not."""
    frame = FRAME_BYTES + payload_bytes(scenario.lanes_per_frame) + scenario.conditions.overhead_bytes
    per_byte = (
        frame / payload_bytes(scenario.lanes_per_frame) * FLOAT_FORMATS[scenario.lanes].bits / LaneFormat.INT32.bits
    )
    rate_bps = sum(scenario.rates_bps)
    ring = peers.ideal_ring_s(scenario.workers, scenario.size, scenario.conditions, rate_bps, scenario.mtu)
    return {"ideal switches": scenario.size * per_byte * 8 / rate_bps, IDEAL: ring}
