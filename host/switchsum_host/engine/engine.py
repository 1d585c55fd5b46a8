"""The worker's engine: arrays and frames in, frames and events out; no socket, no clock, no thread.

An operation over `B` blocks (of as many values as a frame has lanes of the operation's format) has `min(window, B)`
columns (at least one): column `c` holds the blocks `c`, `c + columns`, `c + 2 * columns` and so on, and is worked
through in one slot, round after round.  In each round every member names its own next non-zero block of the column and
that block's exponent; the result brings the smallest and the largest exponent there, which is the next round's block.
Members whose block is zero send no lanes.  A column ends when nobody names a block.  A round's number is a serial
counter of the slot that is never reset.

Columns are given to slots in rotation, in the order in which operations were submitted; since all ranks submit the same
operations, all ranks give a slot the same columns in the same order, and operations overlap where slots are free.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import CollectiveTimeout, SwitchLost, SwitchsumError, UsageError
from switchsum_protocol.frame import (
    FRAME_BYTES,
    HEADER_BYTES,
    MAX_WORKERS,
    MOST_WORKERS,
    may_be_narrow,
    narrow_bytes,
    padding_bytes,
    payload_bytes,
)
from switchsum_switch.kernels.loading import address_of
from switchsum_switch.wires.headers import lower_headers

from .by_hand import restore_by_hand
from .config import EngineConfig
from .congestion import share_out
from .failures import held_slots, overdue, refused, timed_out
from .operation import MARKS, Operation
from .policies.round_trips import UNKNOWN
from .policies.window import initial
from .state import ARRAYS, CORE, OPERATIONS, Count, Held, State, allocate, arrays_of

MOST_AT_FIRST: Final = 64
"""Contributions with lanes that members of a large job send at first."""
TRIES: Final = 8.0
"""A call's time-out is at least so many pauses between repeats: with 30 % loss about half of all tries fail."""
LONGEST_STEP_S = 0.5
"""Most seconds between two calls of `poll` that count as silence: the worker itself may have been stopped."""

Array = npt.NDArray[Any]


def _word(name: str) -> int:
    """Return which 64-bit word of a `CORE` a field of its `progress` is: access by word takes a fifth of the time."""
    before: int = CORE.fields["progress"][1]  # type: ignore[index]
    offset: int = CORE["progress"].fields[name][1]  # type: ignore[index]
    return (before + offset) // 8


_SUBMITTED, _OLDEST = _word("submitted"), _word("oldest")
_ROUNDS, _FAILURE = _word("rounds"), _word("failure")
_FINISHED, _FINISHED_COUNT = _word("finished"), _word("finished_count")
_FRAMES_RECEIVED: Final = _word("counts") + Count.FRAMES_RECEIVED


class Finished(NamedTuple):
    """An operation is complete: its array holds the result."""

    operation: int
    """Serial number of the operation, as `adopt` returned it."""
    overflowed: tuple[int, ...] = ()
    """Blocks with integer sums beyond the dtype, replaced by the nearest value; the same ones on every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The engine has given up: operations that have not finished never will."""

    error: SwitchsumError
    """Why the engine has given up."""


Outcome = Finished | Failed


class Engine:
    """One member's side of the slot machine."""

    def __init__(
        self,
        config: EngineConfig,
        frames: npt.NDArray[np.uint8],
        lead: int,
        *,
        pushed: int = 0,
        zeros: Callable[..., Array] = np.zeros,
    ) -> None:
        """Use the rows `[n, stride]` of a frame store, where a frame starts at column `lead`.

        `pushed` is how many frames were handed over to the transport before; `zeros` makes the arrays of the state.
        Raises UsageError.
        """
        if not 0 <= config.rank < config.world_size <= MOST_WORKERS:
            raise UsageError(
                f"rank {config.rank} of {config.world_size} cannot be: a job has up to {MOST_WORKERS} "
                "workers, from rank 0"
            )
        if config.window_slots < 1 or len(frames) < 2 * config.window_slots:
            raise UsageError(f"{config.window_slots} slots need two rows each; the frame store has {len(frames)}")
        frame_bytes = FRAME_BYTES + payload_bytes(config.lanes_per_frame)
        if frames.shape[1] < lead + frame_bytes or not frames.flags.c_contiguous:
            raise UsageError(f"a row of {frames.shape[1]} bytes cannot hold a frame of {config.lanes_per_frame} lanes")
        self._config = config
        self._frames = frames
        self.world_size = config.world_size
        """Members of the job."""
        self.lanes_per_frame = config.lanes_per_frame
        """32-bit lanes in a frame."""
        self.timeout_s = config.timeout_s
        """Seconds without progress after which an operation fails."""
        self.pushed_before = pushed
        """How many frames the transport was handed before the engine's first."""
        self._arrays = zeros(1, ARRAYS)
        self.state: State = allocate(config.window_slots, config.lanes_per_frame, zeros)
        """The arrays that kernels work on; a driver's loop is a kernel, too, and takes them."""
        self.counts: npt.NDArray[np.int64] = self.state.core["progress"]["counts"][0]
        """What has happened so far, by `Count`."""
        self._words = memoryview(self.state.core.view(np.int64).data)
        arrays_of(self.state, self._arrays)
        self.address = address_of(self._arrays)
        """Address of the arrays, for compiled code."""
        self._limits: dict[int, tuple[float, float]] = {}
        """Operations with a time-out of their own: its seconds, and how long it was silent when they began."""
        self._fill_core(lead)
        self._operations: dict[int, tuple[Operation, Array | None, npt.NDArray[np.uint8] | None]] = {}
        """Operations that have not finished, with the array of each, and a byte for each block of integers."""
        self._events: deque[Outcome] = deque()
        self._silence_s = 0.0
        self._unheard_s = 0.0
        self._received = 0
        self._polled_at = 0.0
        self._error: SwitchsumError | None = None
        self._is_error_out = False

    def _fill_core(self, lead: int) -> None:
        config, core = self._config, self.state.core[0]
        lanes = config.lanes_per_frame
        bodies = (padding_bytes(lanes, config.growth_bytes), payload_bytes(lanes), narrow_bytes(lanes))  # by `Body`
        for row, body in zip(core["member"]["lower"], bodies, strict=True):
            row[:] = np.frombuffer(lower_headers(config.own, config.switch, HEADER_BYTES + body), np.uint8)
        values: dict[str, dict[str, Any]] = {
            "member": {
                "job": config.job,
                "epoch": config.epoch,
                "rank": config.rank,
                "workers": config.world_size,
                "lanes_per_frame": lanes,
                "bodies": bodies,
                "takes_narrow": may_be_narrow(lanes, config.growth_bytes),
                "window": config.window_slots,
                "first_slot": config.first_slot,
                **config.sharing,
                "bit": 1 << (config.places.index(config.rank) if config.places else config.rank) % MAX_WORKERS,
                "cookie": (config.cookie >> 32, config.cookie & 0xFFFF_FFFF),
                "switch_mac": config.switch.mac,
                "switch_ip": config.switch.ip,
                "switch_port": config.switch.port,
                "own_ip": config.own.ip,
                "own_port": config.own.port,
                "in_tree": config.in_tree,
                "asks_later": bool(config.places) and config.rank in config.places[1:],
                "seed": zlib.crc32(f"{config.seed} {config.rank}".encode()),
            },
            "sending": {
                "lead": lead,
                "store": address_of(self._frames),
                "kept": address_of(self.state.kept),
                "stride": self._frames.shape[1],
                "checksum": config.checksum,
            },
            "recovery": {
                "threshold": config.reorder_threshold,
                "common": -1,
                "reordered_at": np.inf,
                "look_at": np.inf,
                "paced_at": np.inf,
            },
            "progress": {"turn": config.turn},
        }
        for part, facts in values.items():
            for name, value in facts.items():
                core[part][name] = value
        timer = {
            "timeout_s": min(config.probe_initial_s, self._longest_pause_s()),
            "initial_s": min(config.probe_initial_s, self._longest_pause_s()),
            "timeout_max_s": config.probe_max_s,
            "timeout_min_s": config.probe_min_s,
            "pause_max_s": self._longest_pause_s(),
            "granularity_s": config.granularity_s,
        }
        for name, value in timer.items():
            core["recovery"]["timer"][name] = value
        self.state.slots["number"] = config.first_number
        trees = np.zeros(config.window_slots, np.uint8)
        for tree, first in enumerate(np.cumsum(config.trees)[:-1].tolist(), 1):
            trees[first:] = tree
        paths = self.state.paths
        for part, known in (("window", initial(config.mark_gain, config.loss_cut)), ("trips", UNKNOWN)):
            for name, value in known.items():
                paths[part][name] = value
        # With many members nearly each round meets a loss somewhere: more of them are needed to see that one got by.
        paths["window"]["first"] = max(config.first_window, min(config.world_size // 8, MOST_AT_FIRST))
        self.share_out(trees)

    @property
    def under_way(self) -> int:
        """How many operations have not finished."""
        return len(self._operations)

    @property
    def submitted(self) -> int:
        """Operations that were ever begun, which is the serial number of the next one."""
        return self._words[_SUBMITTED]

    @property
    def progress(self) -> tuple[int, int]:
        """Serial numbers of the next operation and of the oldest that is not complete; any thread may ask."""
        return self._words[_SUBMITTED], self._words[_OLDEST]

    @property
    def slots_waiting(self) -> int:
        """Slots whose result is to come; any thread may ask."""
        return int(self.state.core["progress"]["waiting"][0])

    def held_slots(self, *, earlier: bool = True) -> list[tuple[int, int, list[int]]]:
        """Return slot, round's number and missing ranks of what the switch has said to wait for; any thread may ask.

        Without `earlier`, only what it has said since `rank_left` was called last.
        """
        return held_slots(self._config, self.state, earlier=earlier)

    def rank_left(self) -> None:
        """Take note that what the switch has said so far may be older than the news that a rank has left."""
        held = self.state.slots["held"]
        held[held == Held.NOW] = Held.EARLIER

    def name_of(self, serial: int) -> str:
        """Return what an operation under way is called; empty where it has not been taken note of."""
        known = self._operations.get(serial)
        return str(known[0]) if known is not None else ""

    @property
    def is_full(self) -> bool:
        """Whether another operation must wait until the oldest has finished."""
        return self._words[_SUBMITTED] - self._words[_OLDEST] >= OPERATIONS

    def adopt(self, operation: Operation, values: npt.NDArray[Any] | None, now: float) -> int:
        """Take note of an operation whose record the loop submits next; return its serial number.

        `values`, which are reduced in place, are one-dimensional, contiguous, aligned, native and writable, or None
        where there are none.  If a signal interrupts the submission, `submitted` says whether the operation was
        begun; if not, it is adopted again.
        """
        if self._error is not None:
            raise UsageError(f"the engine has given up: {self._error}")
        words = self._words
        serial = words[_SUBMITTED]
        if serial - words[_OLDEST] >= OPERATIONS:
            raise UsageError(f"{OPERATIONS} operations are under way already")
        if not self._operations:
            self._silence_s = self._unheard_s = 0.0
            self._polled_at = now
        marks = np.zeros(operation.blocks, np.uint8) if operation.has_marks else None
        operation.addresses[0] = 0 if values is None else address_of(values)
        operation.addresses[MARKS] = 0 if marks is None else address_of(marks)
        self._operations[serial] = operation, values, marks
        return serial

    def limit(self, serial: int, timeout_s: float) -> None:
        """Give an operation under way a time-out of its own in place of the member's; infinity: it has none."""
        if serial in self._operations:
            self._limits[serial] = timeout_s, self._silence_s
            self._set_pauses()

    def _set_pauses(self) -> None:
        """Have repeats follow one another so soon that each call has several tries before its time-out."""
        self.state.core["recovery"]["timer"]["pause_max_s"] = self._longest_pause_s()

    def _longest_pause_s(self) -> float:
        config = self._config
        known = (config.timeout_s, config.switch_timeout_s, *(timeout_s for timeout_s, _ in self._limits.values()))
        return min(one for one in known if one is not None) / TRIES

    def note(self, now: float) -> None:
        """Look at what the loop has noted, and give up if there was no progress, no answer or a refusal."""
        words = self._words
        if words[_ROUNDS]:
            words[_ROUNDS] = 0
            self._silence_s = 0.0
            if self._limits:
                self._limits = {serial: (timeout_s, 0.0) for serial, (timeout_s, _) in self._limits.items()}
        elif self._operations:
            self._silence_s += min(now - self._polled_at, LONGEST_STEP_S)
            if self._limits:
                self._check_limits()
            elif self._silence_s >= self._config.timeout_s and self._error is None:
                self._error = timed_out(self._config, self.state)
        self._listen(now)
        self._polled_at = now
        if words[_FAILURE] and self._error is None:
            operation = self._operations[int(self.state.core[0]["progress"]["failed"])][0]
            self._error = refused(self._config, self.state, operation)

    def _check_limits(self) -> None:
        """Give up if nothing has moved for the time-out of any operation under way."""
        member_s = self._config.timeout_s
        if self._error is not None:
            return
        for serial in self._operations:
            timeout_s, silent_before_s = self._limits.get(serial, (member_s, 0.0))
            if self._silence_s - silent_before_s >= timeout_s:
                own_s = timeout_s if serial in self._limits else None
                self._error = timed_out(self._config, self.state, own_s)
                return

    def overdue(self, timeout_s: float) -> CollectiveTimeout:
        """Say whom the slots wait for, for a caller that waits no longer; any thread may ask."""
        return overdue(self._config, self.state, timeout_s)

    def _listen(self, now: float) -> None:
        """Give the switch up when it answers nothing: even while it waits for others, it answers repeats with HELD."""
        limit_s, received = self._config.switch_timeout_s, self._words[_FRAMES_RECEIVED]
        self._unheard_s += min(now - self._polled_at, LONGEST_STEP_S)
        if received != self._received or not self._operations:
            self._received, self._unheard_s = received, 0.0
        elif limit_s is not None and self._unheard_s >= limit_s and self._error is None:
            self._error = SwitchLost(
                f"no answer from the switch for {limit_s:g} s (connect(switch_timeout_s=...) changes how long)"
            )

    def share_out(self, trees: npt.NDArray[np.integer[Any]]) -> None:
        """Tell over which tree, or which of the worker's links, each slot goes from now on."""
        share_out(self.state, trees)

    def restarted(self, now: float) -> None:
        """Take note that the switch was restarted: it is told again what other members may still need."""
        restore_by_hand(self.address, now)

    def relink(self, frames: npt.NDArray[np.uint8], pushed: int) -> None:
        """Go on with a frame store that has moved with all its rows, on a link of which nobody reads the old store.

        `pushed` is how many frames were handed over to the new link before.
        """
        core = self.state.core[0]
        self._frames = frames
        core["sending"]["store"] = address_of(frames)
        core["sending"]["consumed"] = core["sending"]["sequence"] - core["sending"]["queued"]
        self.pushed_before = pushed - int(core["sending"]["consumed"])

    @property
    def awaits_switch(self) -> bool:
        """Whether a restarted switch has yet to answer about rounds that are over here."""
        return bool(self.state.core[0]["recovery"]["unanswered"])

    def is_due(self, now: float) -> bool:
        """Whether a restarted switch is to be told again of rounds that are over here, though an answer came."""
        core = self.state.core[0]
        return bool(core["recovery"]["answered"] and now >= core["recovery"]["resend_at"])

    def events(self) -> deque[Outcome]:
        """Return what has happened, in order; the caller takes each event away once it is done with it.

        So none is lost where a signal handler raises in between; one may then come twice.
        """
        words = self._words
        for serial in words[_FINISHED : _FINISHED + words[_FINISHED_COUNT]]:
            known = self._operations.get(serial)
            if known is not None:
                _, _, marks = known
                overflowed = () if marks is None or not marks.any() else tuple(np.flatnonzero(marks).tolist())
                self._events.append(Finished(serial, overflowed))
                del self._operations[serial]
                if self._limits:
                    self._limits.pop(serial, None)
                    self._set_pauses()
        words[_FINISHED_COUNT] = 0
        if self._error is not None and not self._is_error_out:
            self._events.append(Failed(error=self._error))
            self._is_error_out = True
        return self._events


__all__ = ["Count", "Engine", "EngineConfig", "Failed", "Finished", "Outcome"]
