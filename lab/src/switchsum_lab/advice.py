"""Estimates what a step's communication takes on given machines, what bounds it, and what to change first.

Closed formulas, as in lab/docs/scale.md: bytes of the busiest link over its rate, all headers counted, and the steps
that wait for one another times the delay between two machines.  Processors are left out, so that each time is a least
one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, FRAME_BYTES, MOST_WORKERS, payload_bytes
from switchsum_switch.wires.headers import ETHERNET_BYTES

_OVERHEAD: Final = 24
"""Bytes that each Ethernet frame takes in addition: preamble, checksum and gap."""
_TCP_BYTES: Final = 40
_BITS: Final = {name: (one.value_bits, one.bits) for name, one in FLOAT_FORMATS.items()}
"""Bits of each value on its way to the switch and back."""
_COMPRESSED: Final = {"int10": (32 / 3, 32 / 3, 16 / 32), "thc": (8, 8, 32 / 1024), "thc:4": (4, 8, 32 / 1024)}
"""The same of values that `switchsum.torch.compress` packs, and bits of scales for each value, which go first."""
_MOST_RANKS: Final = {"int10": 270, "thc": 16, "thc:4": 16}
"""Most ranks whose values these add."""
_TOPK: Final = "topk:"
_SUM_TRIPS: Final = 2
"""Round trips of a sum of floats: exponents, in headers, and values."""
_SLOTS: Final = 256
_MOST_SLOTS: Final = 1024
"""Frames of a rank in flight: a job's slots if nobody says, and all that the switch's program has."""
_BUCKET_BYTES: Final = 25 << 20
"""DistributedDataParallel's buckets."""
_FORWARD: Final = 1 / 3
"""Share of a step's computing that passes before the first gradients are there."""
_RING: Final = "gloo's ring"
_OWN: Final = "every machine's link"
_LEAF: Final = "the links of a leaf switch to the others"
_WORTH_IT: Final = 1.05
"""Least gain in speed that is worth an advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Machines, and what they have to add in each step."""

    machines: int
    ranks: int = 1
    """Ranks on each machine."""
    rate_bps: float
    """Rate of each machine's link, in bit/s."""
    mtu: int = 1500
    has_switch: bool = False
    """Whether the network has a programmable switch that adds at the links' rate."""
    size: int
    """Bytes of the gradients in float32."""
    lanes: str = "int32"
    """Lane format of the sums."""
    density: float = 1.0
    """Share of the blocks in which any rank has values. Switches add these alone; a ring sends all."""
    ring_bits: int = 32
    """Bits of a value on a ring: 32, or 16 for bfloat16."""
    rack: int | None = None
    """Machines at one leaf switch; None: all of them."""
    oversubscription: float = 1.0
    """How many times the links of a leaf's machines hold more than the leaf's links to the others."""
    compress: str = ""
    """How sums of switches are compressed: `int10`, `thc`, `thc:4`, or `topk:0.01`."""
    every: int = 1
    """Steps between two synchronisations (DiLoCo): then ranks add the model's changes in place of gradients."""
    delay_s: float = 0.0
    """From a machine to another one, one way."""
    slots: int = _SLOTS
    """Frames that each rank has in flight to a switch."""
    compute_s: float = 0.0
    """Computing of a step, behind which communication may be hidden; 0: only communication counts."""

    @property
    def total(self) -> int:
        """Ranks of the job."""
        return self.machines * self.ranks

    @property
    def kept(self) -> float:
        """Share of its values that each rank sends with top-k, else 0."""
        return float(self.compress.removeprefix(_TOPK)) if self.compress.startswith(_TOPK) else 0.0

    def __post_init__(self) -> None:
        """Raise UsageError for what cannot be."""
        _check_compression(self)
        if self.every < 1 or self.slots < 1:
            raise UsageError("slots, and steps between two synchronisations, are at least 1")
        if self.slots > _MOST_SLOTS:
            raise UsageError(f"a switch has {_MOST_SLOTS:,} slots, not {self.slots:,}")
        if self.delay_s < 0 or self.compute_s < 0:
            raise UsageError("times are not negative")
        if self.ring_bits not in (16, 32):
            raise UsageError(f"a ring carries values of 32 or 16 bits (bfloat16), not {self.ring_bits}")
        if self.rack is not None and not 1 <= self.rack <= self.machines:
            raise UsageError(f"a leaf switch has 1 to {self.machines} of {self.machines} machines, not {self.rack}")
        if self.oversubscription < 1 or (self.oversubscription > 1 and self.rack is None):
            raise UsageError("over-subscription is 1 or more, and needs the number of machines at a leaf switch")
        if self.machines < 1 or self.ranks < 1 or self.machines * self.ranks < 2:
            raise UsageError("a job has at least two ranks, on one machine or more")
        if self.mtu < 1200:
            raise UsageError(f"an MTU of {self.mtu} is too small for frames of 256 lanes")
        if self.lanes not in _BITS:
            raise UsageError(f"lanes must be {', '.join(_BITS)}, not {self.lanes}")
        if self.size < 4:
            raise UsageError(f"gradients have at least 4 bytes, not {self.size}")
        if not 0 < self.density <= 1:
            raise UsageError(f"a density must be above 0 and at most 1, not {self.density:g}")


def _check_compression(question: Question) -> None:
    """Raise UsageError for a compression that does not exist, or does not go with the rest."""
    name = question.compress
    if not name:
        return
    is_topk = name.startswith(_TOPK)
    try:
        known = 0 < question.kept < 1 if is_topk else name in _COMPRESSED
    except ValueError:
        known = False
    if not known:
        raise UsageError(
            f"a compression is {', '.join(_COMPRESSED)} or topk:0.01, not {name!r}; int16 and int8 are lanes"
        )
    if question.lanes != "int32" or (is_topk and question.density < 1):
        raise UsageError(f"{name} chooses its lanes itself, and top-k its values: leave lanes and density out")
    if question.total > (most := _MOST_RANKS.get(name, MOST_WORKERS)):
        raise UsageError(f"{name} adds at most {most:,} ranks, not {question.total:,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a rank sends to a switch and gets back for one sum, headers included."""

    up: float
    down: float
    frames: float
    """In the direction that has more."""
    trips: int
    """Round trips that wait for one another."""
    what: str
    """How the larger of the two was counted."""
    both: str
    """How both together were counted."""


def traffic_of(question: Question) -> Traffic:
    """Return what a rank sends to switches and gets back."""
    octets = payload_bytes(_lanes(question))
    head = FRAME_BYTES + _OVERHEAD
    if question.kept:
        return _topk_traffic(question, octets, head)
    bits_up, bits_down, *scales = _COMPRESSED.get(question.compress, ()) or _BITS[question.lanes]
    values = question.size / 4 * question.density
    per_frame = 8 * octets / bits_down
    frames, first = values / per_frame, sum(scales) * values / 8 * (head + octets) / octets
    up, down = (first + frames * (head + per_frame * bits / 8) for bits in (bits_up, bits_down))
    name = question.compress or question.lanes
    return Traffic(
        up=up,
        down=down,
        frames=frames,
        trips=_SUM_TRIPS * (1 + bool(scales)),
        what=f"{max(up, down):,.0f} (an array with headers, in {name})",
        both=f"{up + down:,.0f} (both ways of an array with headers, in {name})",
    )


def _topk_traffic(question: Question, octets: int, head: int) -> Traffic:
    """Return what a sum of each rank's largest values takes, if they are at random places: the worst case."""
    from switchsum_host.api import ways as sparse_ways  # noqa: PLC0415 - takes a third of a second
    from switchsum_host.api.collectives import Way as SparseWay  # noqa: PLC0415

    rows = question.size // 4
    count = max(1, round(rows * question.kept))
    union = round(rows * (1 - (1 - question.kept) ** question.total))
    facts = sparse_ways.Facts(
        rows=rows,
        counts=[count] * question.total,
        union=union,
        is_same=False,
        pair_bits=32,
        sum_bits=32,
        frame_bits=8 * octets,
    )
    cost = sparse_ways.choose(facts)
    is_pairs = cost.way == SparseWay.PAIRS
    down = cost.frames * (head + octets)
    up = down if not is_pairs else -(-sparse_ways.part_octets(count, rows, 32) // octets) * (head + octets)
    places = f"{question.kept:.3g} of the values of each of {question.total} ranks, at random places"
    way = "pairs" if is_pairs else f"{cost.way.name.lower()} and sums of {union:,} values"
    return Traffic(
        up=up,
        down=down,
        frames=cost.frames,
        trips=1 + cost.trips,
        what=f"{max(up, down):,.0f} ({places}: {way})",
        both=f"{up + down:,.0f} (both ways of {places}: {way})",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a way puts on one kind of links."""

    link: str
    bytes: float
    """In the busier direction, headers included."""
    rate_bps: float
    counted: str
    """How the bytes were counted."""

    @property
    def seconds(self) -> float:
        """How long the link takes."""
        return 8 * self.bytes / self.rate_bps

    @property
    def arithmetic(self) -> str:
        """The whole sum, as text."""
        return f"{self.counted} = {self.bytes:,.0f} bytes on {self.link} of {self.rate_bps / 1e9:g} Gbit/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to add, and what it takes."""

    name: str
    seconds: float
    link_bytes: int
    """Bytes in the busiest direction of the busiest link, headers included."""
    bound: str
    """Name of the busiest link."""
    arithmetic: str = ""
    """How the time of that link was counted."""
    is_ring: bool = False
    """It is the ring of the hosts, which the others are compared with."""
    step_s: float = 0.0
    """Least time of a step: `seconds` if computing is not counted; else both, which pass together where they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What a way's parts wait for, beside its busiest link."""

    delays: int = 0
    """Delays between two machines that follow one another."""
    rounds: float = 0.0
    """Windows of frames, each of which comes back before the next one goes."""
    round_delays: int = 0
    """Delays of such a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A line of advice."""

    text: str
    arithmetic: tuple[str, ...] = field(default=())
    """The sums behind it, a line each."""


def ways(question: Question) -> list[Way]:
    """Return the ways that the machines have, the fastest first."""
    if question.machines == 1:
        name, step_s = "shared memory: one switch on the machine", question.compute_s
        return [Way(name=name, seconds=0.0, link_bytes=0, bound="no link", step_s=step_s)]
    made = []
    for name, loads, steps in _loads(question):
        worst = max(loads, key=lambda load: load.seconds)
        seconds, arithmetic = _timed(question, worst, steps)
        made.append(
            Way(
                name=name,
                seconds=seconds,
                link_bytes=round(worst.bytes),
                bound=worst.link,
                arithmetic=arithmetic,
                is_ring=name.startswith(_RING),
                step_s=_step_s(question, seconds),
            )
        )
    return sorted(made, key=lambda way: way.seconds)


def _timed(question: Question, load: Load, steps: Steps) -> tuple[float, str]:
    """Return a way's seconds in each step, of its busiest link and what waits, and the arithmetic."""
    seconds, text = load.seconds, load.arithmetic
    in_rounds = steps.rounds * steps.round_delays * question.delay_s
    if in_rounds > seconds:
        seconds = in_rounds
        text += (
            f"; longer: {steps.rounds:,.1f} windows of {question.slots} frames, of which each waits for "
            f"{steps.round_delays} x {written_time(question.delay_s)}"
        )
    if question.delay_s:
        seconds += steps.delays * question.delay_s
        text += f"; and {steps.delays} x {written_time(question.delay_s)} of delay"
    if question.every > 1:
        seconds /= question.every
        text += f"; all in one of {question.every} steps"
    if question.compute_s:
        step = written_time(_step_s(question, seconds))
        text += f"; with {written_time(question.compute_s)} of computing a step takes {step}"
    return seconds, text


def _step_s(question: Question, seconds: float) -> float:
    """Return how long a step takes at least: buckets are added while the backward pass goes on."""
    if not question.compute_s:
        return seconds
    if question.every > 1:  # an average may take as long as the steps until the next one
        return max(question.compute_s, seconds)
    buckets = max(1, math.ceil(question.size / _BUCKET_BYTES))
    first_s = question.compute_s * (_FORWARD + (1 - _FORWARD) / buckets)
    return max(question.compute_s + seconds / buckets, first_s + seconds)


def written_time(seconds: float) -> str:
    """Write a time so that a small one is not 0."""
    return f"{1e3 * seconds:,.1f} ms" if seconds >= 1e-4 or not seconds else f"{1e6 * seconds:,.3g} us"


def _loads(question: Question) -> Iterator[tuple[str, list[Load], Steps]]:
    """Yield the ways: what each puts on the machines' links and on those between leaf switches, and its steps."""
    machines, ranks, rack = question.machines, question.ranks, question.rack or question.machines
    total, others, far = question.total, machines - 1, machines - rack
    traffic = traffic_of(question)
    most, size = max(traffic.up, traffic.down), question.size * question.ring_bits / 32
    headers = (question.mtu + ETHERNET_BYTES + _OVERHEAD) / (question.mtu - _TCP_BYTES)
    kind = "float32" if question.ring_bits == 32 else "bfloat16"
    tcp = f"x {size:,.0f} bytes x {headers:.4f} (headers)"
    sums = traffic.what
    ring = Steps(delays=2 * others)
    direct = Steps(delays=traffic.trips, rounds=traffic.frames / question.slots, round_delays=1)
    by_hosts = Steps(delays=2 * traffic.trips, rounds=traffic.frames / question.slots, round_delays=2)
    parted = Steps(delays=by_hosts.delays, rounds=by_hosts.rounds / machines, round_delays=2)
    leaf_bps = rack * question.rate_bps / question.oversubscription

    def own(carried: float, counted: str, link: str = _OWN) -> Load:
        return Load(link=link, bytes=carried, rate_bps=question.rate_bps, counted=counted)

    def between(carried: float, counted: str) -> list[Load]:
        return [Load(link=_LEAF, bytes=carried, rate_bps=leaf_bps, counted=counted)] if far else []

    flat = 2 * (total - 1) / total * size * headers
    counted = f"2 x {total - 1}/{total} {tcp}"
    yield f"{_RING}, {kind}", [own(flat, counted), *between(flat, counted)], ring
    if ranks > 1:
        two_level = 2 * others / machines * size * headers
        counted = f"2 x {others}/{machines} {tcp}"
        yield (
            f"a two-level ring, {kind}: in each machine, then between them",
            [
                own(two_level, counted),
                *between(two_level, counted),
            ],
            ring,
        )
    if question.has_switch:
        counted = f"{ranks} x {sums}"
        yield "the network's switch adds", [own(ranks * most, counted), *between(most, sums)], direct
        if ranks > 1:
            yield "a switch on each machine, the network's above", [own(most, sums), *between(most, sums)], direct
    within = "" if ranks == 1 else ", below it one on each machine"
    yield (
        f"a switch on one of the machines{within}",
        [
            own(others * most, f"{others} x {sums}", "the link of the machine with the switch"),
            *between(far * most, f"{far} x {sums}"),
        ],
        by_hosts,
    )
    up, down, both = traffic.up, traffic.down, traffic.both
    yield (
        f"a switch on each machine, for a part of the values{within and ' of all'}",
        [
            own(others / machines * (up + down), f"{others}/{machines} x {both}"),
            *between(rack * far / machines * (up + down), f"{rack} x {far}/{machines} x {both}"),
        ],
        parted,
    )


def advice(question: Question) -> list[Advice]:
    """Return what to know first, then what would help, most first."""
    if question.machines == 1:
        text = "All ranks are on one machine: no link bounds them, and shared memory moves the values."
        return [Advice(text=text)]
    found = []
    best, *_ = all_ways = ways(question)
    ring = next(way for way in all_ways if way.is_ring)
    sums = tuple(dict.fromkeys(f"{way.name}: {way.arithmetic}" for way in (best, ring)))
    is_dense = (question.lanes, question.density, question.compress) == ("int32", 1.0, "")
    if not question.has_switch and question.ranks == 1 and is_dense and best.is_ring:
        why = "one rank a machine, and no programmable switch in the network."
        found.append(Advice(text=f"Dense float32 gains nothing over a ring here: {why}", arithmetic=sums[:1]))
    elif best.step_s * _WORTH_IT < ring.step_s:
        text = f"{best.name}: {ring.step_s / best.step_s:.2f} times as fast as gloo's ring."
        found.append(Advice(text=text, arithmetic=sums))
    else:
        found.append(Advice(text="No way is faster than gloo's ring by 5 %.", arithmetic=sums))
    if question.compute_s and best.step_s < question.compute_s * _WORTH_IT:
        text = "Computing takes nearly all of a step: other links or fewer bytes save less than 5 %."
        found.append(Advice(text=text, arithmetic=sums[:1]))
    if (total := question.total) > MOST_WORKERS:
        text = f"A job of switchsum has {MOST_WORKERS:,} ranks at most: of these {total:,} it adds none."
        found.append(Advice(text=text, arithmetic=(f"{question.machines:,} x {question.ranks:,} = {total:,}",)))
    return found + [line for _, line in sorted(_changes(question, best), key=lambda item: -item[0])]


def _changes(question: Question, now: Way) -> Iterator[tuple[float, Advice]]:
    """Yield by what factor each change would help, and how it is called."""
    values = {name: getattr(question, name) for name in Question.__slots__}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"lanes": "int16"}, 'send 16 bits a value: compress(model, "int16")'),
        ({"lanes": "int8"}, 'send 8 bits a value: compress(model, "int8")'),
        ({"compress": "int10"}, 'send 10 bits a value: compress(model, "int10")'),
        ({"compress": "thc"}, 'send 8 bits a value, each way: compress(model, "thc"), up to 16 ranks'),
        ({"compress": "topk:0.01"}, 'send the largest 1 % of each rank\'s values: compress(model, "topk:0.01")'),
        ({"every": 50}, "synchronise every 50 steps (switchsum.torch.DiLoCo, also over gloo): it changes the training"),
        ({"slots": _MOST_SLOTS}, f"give the job more frames in flight: --slots {_MOST_SLOTS}"),
        ({"ring_bits": 16}, "send bfloat16 over the ring (DDP's bf16_compress_hook)"),
        ({"mtu": 9000}, "set jumbo frames (MTU 9000) on machines and switches"),
        ({"has_switch": True}, "get a programmable switch"),
        ({"oversubscription": 1.0}, "get links between the leaf switches that hold what their machines send"),
        ({"rate_bps": 10 * question.rate_bps}, "get links of ten times the rate"),
    ]
    finer = 1.0
    """What lanes of more bits would do.  Sums of `int8` come down in 16 bits: unless the way up is the limit, they only
    add error."""
    for change, text in changes:
        if any(values[name] == value for name, value in change.items()) or not _may(question, change):
            continue
        then = min(ways(Question(**(values | change))), key=lambda way: way.step_s)
        factor = now.step_s / then.step_s
        if factor > _WORTH_IT * (finer if "lanes" in change else 1.0):
            finer = factor if "lanes" in change else finer
            sums = f"now {now.name}: {now.arithmetic}", f"then {then.name}: {then.arithmetic}"
            yield factor, Advice(text=f"{factor:.2f} times as fast: {text}", arithmetic=sums)


def _may(question: Question, change: dict[str, Any]) -> bool:
    """Whether a change goes with what is chosen already: one compression takes the place of another by hand only."""
    if {"lanes", "compress"} & change.keys():
        if question.compress or (question.density < 1 and "topk:0.01" in change.values()):
            return False
        if question.lanes != "int32" and change != {"lanes": "int8"}:
            return False
        return question.total <= _MOST_RANKS.get(change.get("compress", ""), MOST_WORKERS)
    return "every" not in change or question.every == 1


def _lanes(question: Question) -> int:
    """Return the lanes of a frame."""
    return 2048 if question.mtu >= FRAME_BYTES - ETHERNET_BYTES + payload_bytes(2048) else 256
