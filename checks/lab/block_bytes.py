"""What sums in small blocks bring up and down, beside OmniReduce's bytes: `python -m checks.lab.block_bytes`.

*Modelled*: all ranks call the communicator's own code, in threads, on a network that adds, and only counts the frames
that each allreduce would take.  *At the switch's ports*: the same calls, of whole communicators, through the embedded
switch.  *OmniReduce*: a rank sends its own blocks and the union comes down, each block with an index of four bytes, in
packets as large as ours with nothing but Ethernet, IPv4 and UDP in front: the least that it could do.

`--publish` writes the tables into docs/results/sparse-blocks.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from checks.bench import ages
from checks.lab.counting import WAIT_S, WINDOW, Counting, Model, on_all
from switchsum.testing import rig
from switchsum.testing.embedded import Embedded
from switchsum.testing.local import LocalMembership, LocalNetwork, LocalTransport
from switchsum_host.api import owners, sparse
from switchsum_host.api.collectives import Options
from switchsum_host.api.communicator import Communicator
from switchsum_host.engine.engine import Engine, EngineConfig
from switchsum_host.engine.loop import Driver
from switchsum_protocol.frame import AT, FRAME_BYTES, LANE_BYTES, Flag
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.wires.headers import LOWER_BYTES
from switchsum_switch.wires.rows import LEAD_BYTES

Array = npt.NDArray[Any]
Owners = npt.NDArray[np.bool_]
"""Who has which block: `[ranks, blocks]`."""

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "results" / "sparse-blocks.md"
BEGIN, END = "<!-- block bytes: python -m checks.lab.block_bytes --publish -->", "<!-- end of block bytes -->"
OVERLAPS: Final = ("all", "random", "none")
"""All ranks have the same blocks; each has its own at random; no two have the same, as far as there are enough."""
BLOCKS: Final = (32, 256, 2048)
DENSITIES: Final = (0.01, 0.1, 0.3, 0.6)
RANKS: Final = (4, 8, 16, 32)
FRAMES: Final = (256, 2048)
"""Lanes: of an MTU of 1,500, and of one of 9,000."""
VALUES: Final = 2_500_000
"""10 MB of float32."""
COUNTED_VALUES: Final = 1 << 19
NEAR: Final = 1.2
"""Times OmniReduce's bytes."""
ANSWERS, BLOCKS_OF_OTHERS, SUPPORTS = (
    "answers to rounds in which the rank has nothing",
    "blocks of other ranks and filled-up ends in its frames",
    "who has which block",
)
"""What a rank sends beyond its own blocks."""
_INDEX_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes of one sum, Ethernet headers included."""

    up: int
    """Of the rank that sends most."""
    down: int
    """To each rank."""

    answers: int = field(default=0, compare=False)
    """Bytes up of frames without values, for rounds in which that rank has nothing."""
    supports: int = field(default=0, compare=False)
    """Bytes up of frames with integers: which blocks there are, and who has which."""

    def over(self, other: Moved) -> str:
        """Return both as multiples of another's."""
        return f"{self.up / other.up:.2f} / {self.down / other.down:.2f}"

    def is_near(self, other: Moved) -> bool:
        """Return whether both are at most 1.2 times another's, as the tables round them."""
        return round(self.up / other.up, 2) <= NEAR and round(self.down / other.down, 2) <= NEAR

    def reason(self, least: Moved) -> str:
        """Return the largest part of what goes up beyond the least."""
        blocks = self.up - least.up - self.answers - self.supports
        parts = {ANSWERS: self.answers, SUPPORTS: self.supports, BLOCKS_OF_OTHERS: blocks}
        return max(parts, key=lambda part: parts[part])


def drawn(overlap: str, ranks: int, blocks: int, density: float, seed: int = 0) -> Owners:
    """Draw who has which block."""
    random = np.random.default_rng([seed, ranks, blocks])
    own = round(density * blocks)
    has = np.zeros((ranks, blocks), np.bool_)
    order = random.permutation(blocks)
    for rank in range(ranks):
        if overlap == "random":
            order = random.permutation(blocks)
        first = rank * own if overlap == "none" else 0
        has[rank, order[np.arange(first, first + own) % blocks]] = True
    return has


def arrays_of(has: Owners, block: int, values: int) -> list[Array]:
    """Return each rank's array: ones in its blocks."""
    return [np.repeat(row, block)[:values].astype(np.float32) for row in has]


def omnireduce(has: Owners, block: int, lanes: int) -> Moved:
    """Return the least that OmniReduce would move."""

    def bytes_of(blocks: int) -> int:
        payload = blocks * (block * LANE_BYTES + _INDEX_BYTES)
        return payload + -(-payload // (lanes * LANE_BYTES)) * LOWER_BYTES

    return Moved(up=bytes_of(int(has.sum(axis=1).max())), down=bytes_of(int(has.any(axis=0).sum())))


def modelled(has: Owners, block: int, lanes: int, values: int, *, ordered: bool = True) -> Moved:
    """Return what a sum would move; without ordering each rank sends the whole union, side by side."""
    network = Counting(len(has), lanes)
    arrays = arrays_of(has, block, values)
    how = Options(operator="sum")

    def call(rank: int) -> None:
        try:
            sparse.allreduce_blocks(
                cast("Any", Model(network, rank)), arrays[rank], block, how, background=False
            ).result()
        except BaseException:
            network.meeting.abort()
            raise

    with patch.object(owners, "MOST_RANKS", owners.MOST_RANKS if ordered else 0):
        on_all(len(has), call)
    expected = np.repeat(has.sum(axis=0), block)[:values]
    for array in arrays:
        np.testing.assert_array_equal(array, expected)
    most = int(network.up.argmax())
    return Moved(
        up=int(network.up[most]),
        down=network.down,
        answers=int(network.answers[most]),
        supports=int(network.supports[most]),
    )


class Ports:
    """The embedded switch, and the bytes that pass its ports, but for repeats, which a busy machine causes."""

    def __init__(self, ranks: int, lanes: int, engine: EngineName) -> None:
        self.switch = Embedded(lanes, engine)
        rig.Rig(self.switch, workers=ranks, lanes_per_frame=lanes, slots=WINDOW)
        self.received = np.zeros(ranks + 1, np.int64)
        self.sent = np.zeros(ranks + 1, np.int64)

    def process(self, port: int, frame: bytes) -> Sequence[tuple[int, bytes]]:
        """Process one frame."""
        answers = self.switch.process(port, frame)
        if not frame[AT.flags] & Flag.REPEAT:
            self.received[port] += len(frame)
            for out, answer in answers:
                self.sent[out] += len(answer)
        return answers


def communicators(ports: Ports, ranks: int, lanes: int) -> list[Communicator]:
    """Return one communicator for each rank, all at that switch."""
    network = LocalNetwork(ports)
    made = []
    for rank in range(ranks):
        own = rig.worker(rank)
        transport = LocalTransport(
            network, rank + 1, own, rows=2 * WINDOW, frame_bytes=FRAME_BYTES + lanes * LANE_BYTES
        )
        config = EngineConfig(
            rank=rank,
            world_size=ranks,
            job=rig.JOB,
            epoch=rig.EPOCH,
            lanes_per_frame=lanes,
            cookie=rig.cookie(rank),
            switch=rig.SWITCH,
            own=own,
            window_slots=WINDOW,
            first_slot=rig.FIRST_SLOT,
            timeout_s=WAIT_S,
        )
        engine = Engine(config, transport.tx_frames, LEAD_BYTES)
        made.append(Communicator(Driver(engine, transport), LocalMembership(), rank=rank, world_size=ranks))
    return made


def counted(has: Owners, block: int, lanes: int, values: int, engine: EngineName = "native") -> Moved:
    """Return what a sum moves through the ports of the embedded switch."""
    ranks = len(has)
    ports = Ports(ranks, lanes, engine)
    made = communicators(ports, ranks, lanes)
    arrays = arrays_of(has, block, values)
    on_all(ranks, lambda rank: made[rank].allreduce(arrays[rank], block=block))
    expected = np.repeat(has.sum(axis=0), block)[:values]
    for communicator, array in zip(made, arrays, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6)
        np.testing.assert_array_equal(array, arrays[0])
        communicator.close()
    return Moved(up=int(ports.received.max()), down=int(ports.sent.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What one sum moves."""

    ours: Moved
    plain: Moved
    """With the whole union sent by every rank."""
    least: Moved
    """By OmniReduce."""

    def __str__(self) -> str:
        """Return times OmniReduce's bytes: up / down, and, in brackets, up of the plain union."""
        return f"{self.ours.over(self.least)} ({self.plain.up / self.least.up:.2f})"


def cell(has: Owners, block: int, lanes: int, values: int) -> Cell:
    """Model a sum."""
    return Cell(
        ours=modelled(has, block, lanes, values),
        plain=modelled(has, block, lanes, values, ordered=False),
        least=omnireduce(has, block, lanes),
    )


def cells(block: int, density: float, overlap: str, lanes: int, *, values: int = VALUES) -> list[Cell]:
    """Return a cell for each number of workers."""
    return [cell(drawn(overlap, ranks, -(-values // block), density), block, lanes, values) for ranks in RANKS]


def misses(lanes: int, made: Sequence[Cell]) -> Iterator[str]:
    """Yield rows that say how many cells are not near, by what most of the rest is."""
    far = [one for one in made if not one.ours.is_near(one.least)]
    yield f"| within {NEAR:g} both ways | {lanes:,} | {len(made) - len(far)} of {len(made)} | |"
    for reason in (ANSWERS, BLOCKS_OF_OTHERS, SUPPORTS):
        own = [one.ours.up / one.least.up for one in far if one.ours.reason(one.least) == reason]
        if own:
            yield f"| above it most for {reason} | {lanes:,} | {len(own)} | {min(own):.2f} to {max(own):.2f} |"


def counted_row(block: int, density: float, ranks: int, lanes: int, *, values: int = COUNTED_VALUES) -> str:
    """Return a row of kilobytes up / down, blocks at random: OmniReduce's, the model's, and what the ports count."""
    has = drawn("random", ranks, -(-values // block), density)
    moves = omnireduce(has, block, lanes), modelled(has, block, lanes, values), counted(has, block, lanes, values)
    kilobytes = (f"{one.up / 1000:.1f} / {one.down / 1000:.1f}" for one in moves)
    return f"| {block:,} | {density:.0%} | {ranks} | {lanes:,} | {' | '.join(kilobytes)} |"


def tables() -> Iterator[str]:
    """Return the lines for the page."""
    summary: list[str] = []
    for lanes in FRAMES:
        made: list[Cell] = []
        yield f"Frames of {lanes:,} lanes, 10 MB of float32: up / down (up of the plain union), times OmniReduce's"
        yield ""
        yield f"| block | density | overlap | {' | '.join(f'{ranks} workers' for ranks in RANKS)} |"
        yield f"|{'---|' * (3 + len(RANKS))}"
        for block, overlap, density in product(BLOCKS, OVERLAPS, DENSITIES):
            made += (row := cells(block, density, overlap, lanes))
            yield f"| {block:,} | {density:.0%} | {overlap} | {' | '.join(map(str, row))} |"
        summary += misses(lanes, made)
        yield ""
    yield "Of these cells:"
    yield ""
    yield "| | lanes | cells | up, times OmniReduce's |"
    yield "|---|---|---|---|"
    yield from summary
    yield ""
    yield "Kilobytes up / down, 2 MB of float32, blocks at random:"
    yield ""
    yield "| block | density | workers | lanes | OmniReduce | modelled | at the switch's ports |"
    yield f"|{'---|' * 7}"
    for block, density, ranks in product((32, 256), (0.01, 0.1, 0.6), (4, 8)):
        yield counted_row(block, density, ranks, FRAMES[0])


def arguments(about: str | None) -> argparse.ArgumentParser:
    """Return what the command line may have."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publish", action="store_true", help="write the tables to their page of docs/results")
    return parser


def print_tables(lines: Iterable[str], begin: str, end: str, *, publish: bool, page: Path = PAGE) -> None:
    """Print lines as they come; to publish, write them into the page, too, between two comments."""
    printed: list[str] = []
    for line in lines:
        print(line, flush=True)
        printed.append(line)
    if publish:
        before, rest = page.read_text().split(begin)
        page.write_text("\n".join([f"{before}{begin}", "", *printed, "", end + rest.split(end)[1]]))
        ages.written(page, begin)


if __name__ == "__main__":
    print_tables(tables(), BEGIN, END, publish=arguments(__doc__).parse_args().publish)
