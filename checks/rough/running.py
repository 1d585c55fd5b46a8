"""Simulates a cell, within limits: of virtual time, of events, of memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from switchsum.topologies import Cable
from switchsum_host.api.join import SWITCH_TIMEOUT_S
from switchsum_lab.simulation import jobs
from switchsum_lab.simulation.conditions import HostTiming, instant
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.placement import place_all
from switchsum_lab.simulation.records import Stop
from switchsum_protocol.errors import SwitchsumError
from switchsum_protocol.member_rpc import DEFAULT_TIMEOUT_S

from .cells import Cell

TIMES: Final = 20.0
"""A sum that takes so many times its bound has failed."""
LEAST_S: Final = 8.0
"""It may take that long in any case, in virtual time: with 30 % loss, first time-outs follow one another."""
EVENTS_A_FRAME: Final = 100
"""Events for each frame that a sum needs; a storm has more."""
MOST_BYTES: Final = 1 << 29
"""Memory of frames that are on their way."""
_SLICES: Final = 200
_FALLBACK: Final = "spare"
_LOSSY: Final = 0.2
"""Part of a float by which a sum in narrow lanes may be wrong."""

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a cell went."""

    bound_s: float
    took_s: float
    repeats: float
    """Repeats for each contribution."""
    error: str = ""
    """Why it failed; empty: all sums are there and exact."""
    frames: int = 0
    digest: str = ""
    recovery: float = 0.0
    """Time beyond the bound, in time-outs (`Cell.timeout_s`)."""

    @property
    def share(self) -> float:
        """How much of what is possible it reached; 0 if it failed."""
        return 0.0 if self.error else self.bound_s / self.took_s


def run(cell: Cell) -> Outcome:
    """Simulate a cell.  What goes wrong in it is in the outcome; raises what is wrong with the cell itself."""
    network, made = _build(cell)
    error, began, before = "", 0.0, 0
    if cell.spent_blocks:
        first = replace(cell, blocks=cell.spent_blocks)
        error = _add(cell, network, made, [draw_arrays(first, number)[0] for number in range(cell.jobs)])
        began, before = network.now, sum(job.repeats for job in made)
    drawn = [draw_arrays(cell, number) for number in range(cell.jobs)]
    given = [[array.copy() for array in own] for own, _ in drawn]
    error = error or _add(cell, network, made, given)
    took = (network.now if error else max(network.world.finished_s(job.numbers) for job in made)) - began
    if not error:
        error = next(
            (text for own, (_, total) in zip(given, drawn, strict=True) if (text := wrong(cell, own, total))), ""
        )
    return Outcome(
        bound_s=cell.bound_s,
        took_s=took,
        repeats=(sum(job.repeats for job in made) - before) / (cell.blocks * cell.hosts * cell.jobs),
        error=error,
        frames=network.world.frames_moved,
        digest=network.digest,
        recovery=max(0.0, took - cell.bound_s) / cell.timeout_s,
    )


def _build(cell: Cell) -> tuple[Network, list[jobs.Job]]:
    """Return the cell's network, and its jobs, which have not begun."""
    planned, link = cell.network, cell.link
    steps = [one for one in cell.troubles if one.what == "rate"]
    whole = cell.untroubled_s
    if steps:
        changes = [((one.at * whole, one.factor), (one.at * whole + one.lasts_s, 1.0)) for one in steps]
        link = replace(link, steps=tuple(change for pair in changes for change in pair))
    if cell.shared_slots is not None:
        cable = Cable(ends=(planned.switches[0], _FALLBACK), mbit=min(one.mbit for one in planned.cables))
        planned = replace(planned, switches=(*planned.switches, _FALLBACK), cables=(*planned.cables, cable))
    network = jobs.build(planned, link, lanes=cell.lanes, mtu=1500, seed=cell.seed, most_bytes=MOST_BYTES)
    controller = None
    if cell.shared_slots is not None:
        controller = jobs.controlled(
            network,
            planned,
            planned.hosts,
            lanes=cell.lanes,
            seed=cell.seed,
            fallback=_FALLBACK,
            shared_slots=cell.shared_slots,
        )
    hosts = [cell.hosts_of(number) for number in range(cell.jobs)]
    placed = None if controller else place_all(planned, hosts, jobs.SLOTS)  # beside one another, as a controller does
    made: list[jobs.Job] = []
    for number in range(cell.jobs):
        share = jobs.Share(
            number=number,
            first_slot=number * cell.slots,
            first_host=number * cell.hosts,
            most_slots=jobs.SLOTS if controller else jobs.SLOTS // cell.jobs,
            controller=controller,
            shares_slots=controller is not None,
            placed=placed[number] if placed else None,
        )
        made.append(
            jobs.Job(
                network,
                planned,
                hosts[number],
                link,
                lanes=cell.lanes,
                window_slots=min(cell.slots, cell.shared_slots or cell.slots),
                timings=_timings(cell, whole),
                share=share,
                seed=cell.seed,
                timeout_s=DEFAULT_TIMEOUT_S,
                switch_timeout_s=SWITCH_TIMEOUT_S,
            )
        )
    _trouble(cell, network, whole)
    return network, made


def _timings(cell: Cell, whole: float) -> Mapping[str, HostTiming]:
    """Return when hosts take frames, and what their clocks say."""
    first = cell.network.hosts[0]
    jumps = tuple((one.at * whole, one.lasts_s) for one in cell.troubles if one.what == "clock")
    usual = HostTiming(batch_s=cell.batch_s)
    return {host: replace(usual, jumps=jumps) if host == first else usual for host in cell.network.hosts}


def _trouble(cell: Cell, network: Network, whole: float) -> None:
    """Have nodes stand still and a link go down when they should."""
    spans: dict[str, list[tuple[float, float]]] = {}
    for one in cell.troubles:
        spans.setdefault(one.what, []).append((one.at * whole, one.at * whole + one.lasts_s))
    leaf = cell.network.switches[0]
    if "host" in spans:
        network.pause(cell.network.hosts[0], *spans["host"])
    if "switch" in spans:
        network.pause(leaf, *spans["switch"])
    if "link" in spans:
        for name in (f"{cell.network.hosts[0]}->{leaf}", f"{leaf}->{cell.network.hosts[0]}"):
            network.links[name].interrupt(*spans["link"])


def _add(cell: Cell, network: Network, made: Sequence[jobs.Job], arrays: Sequence[Sequence[Array]]) -> str:
    """Let time pass until all jobs have ended; return why one has not, or nothing."""
    most_s = instant(max(TIMES * cell.bound_s, cell.bound_s + LEAST_S))
    last_s = network.now + most_s
    needed = cell.blocks * cell.hosts * cell.jobs * 2 * cell.hops
    events = EVENTS_A_FRAME * needed
    network.world.wait_for([number for job in made for number in job.numbers])
    lanes = cell.numbers.partition(" in ")[2] or "int32"
    for job, own in zip(made, arrays, strict=True):
        job.begin(own, lanes=lanes)
    left = sum(len(job.workers) for job in made)
    try:
        while left > 0:
            for job in made:
                job.look_after()
            before = network.world.events
            end = min(network.now + most_s / _SLICES, last_s, *(job.due_s for job in made))
            stop = network.run(end, most_events=max(1, events))
            events -= network.world.events - before
            left -= sum(job.note_finished() for job in made)
            if left > 0 and events <= 0:
                return f"storm: {EVENTS_A_FRAME} events for each frame that it needs"
            if left > 0 and network.now >= last_s:
                return f"no end within {most_s / cell.bound_s:.0f} times the bound"
            if left > 0 and stop is Stop.IDLE and made[0].controller is None:
                return "nothing happens any more"
    except SwitchsumError as error:
        return f"{type(error).__name__}: {error}"[:160]
    return ""


# What is added.


def draw_arrays(cell: Cell, job: int) -> tuple[list[Array], Array]:
    """Return each rank's array, and their sum."""
    random = np.random.default_rng([cell.seed, job])
    size, (low, high) = cell.blocks * cell.values, _range(cell)
    arrays = []
    for _ in range(cell.hosts):
        values = random.integers(low, high, size, endpoint=True)
        if cell.numbers == "int10":
            parts = random.integers(low, high, (2, size), endpoint=True)
            values = values | parts[0] << 10 | parts[1] << 20
        array = values.astype(_dtype(cell))
        if cell.density < 1:
            array[np.repeat(random.random(cell.blocks) >= cell.density, cell.values)] = 0
        arrays.append(array)
    total = np.asarray(np.sum(arrays, axis=0, dtype=np.float64 if cell.numbers.startswith("float") else np.int64))
    return arrays, total


def _dtype(cell: Cell) -> npt.DTypeLike:
    if cell.numbers.startswith("float"):
        return np.float32
    return {32: np.int32, 16: np.int16, 8: np.int8}[cell.values and 32 * cell.lanes // cell.values]


def _range(cell: Cell) -> tuple[int, int]:
    """Return between which numbers values are, so that no sum of theirs overflows."""
    most = {"int10": 1023, "int16": 32_767, "int8": 127}.get(cell.numbers, 1_000_000) // cell.hosts
    return (0, most) if cell.numbers == "int10" else (-most, most)


def wrong(cell: Cell, arrays: Sequence[Array], total: Array) -> str:
    """Return what is wrong with the sums that the ranks have; nothing: all are right."""
    if any(array.tobytes() != arrays[0].tobytes() for array in arrays[1:]):
        return "WRONG: ranks have different sums"
    if " in " in cell.numbers:  # rounded to the lanes' steps
        most = float(np.abs(total).max()) * _LOSSY + math.ulp(1.0)
        return "WRONG: a sum in narrow lanes is far off" if np.abs(arrays[0] - total).max() > most else ""
    return "" if np.array_equal(arrays[0], total.astype(arrays[0].dtype)) else "WRONG: a sum is not exact"
