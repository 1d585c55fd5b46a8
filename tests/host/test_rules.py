"""A slot does what the table of its rules says (`switchsum_host.engine.rules`): an event at a time, in each phase.

What is expected is written here once more, so that a change of the table alone makes a test fail.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from switchsum.testing.cluster import Cluster, ClusterConfig
from switchsum.testing.network import LinkConditions
from switchsum_host.engine import rules
from switchsum_host.engine.rules import RULES, Event
from switchsum_host.engine.state import NEVER, Count, Failure, Outstanding, Phase
from switchsum_protocol.frame import AT, FRAME_BYTES, NO_BLOCK, Flag, Header, Kind
from switchsum_switch.wires.headers import LOWER_BYTES
from switchsum_switch.wires.rows import LEAD_BYTES, allocate_rows

from .known import Known

LANES = 8
PHASES = list(Phase)


class Bench:
    """The only slot of a worker, in a phase; it has contributed to two rounds before that."""

    def __init__(self, phase: Phase) -> None:
        reading_s = 1e3 if phase is Phase.BLOCKED else 0.0
        self.cluster = Cluster(ClusterConfig(workers=2, window_slots=1, lanes_per_frame=LANES, reading_s=reading_s))
        self.engine = self.cluster.workers[0].engine
        self.results: list[bytes] = []
        first = self.cluster.workers[0]

        def take(frame: bytes) -> None:
            self.results.append(frame)
            first.take(frame)

        self.cluster.network.connect(first.port, LinkConditions(), take)
        self.cluster.allreduce([self.values(), self.values()])
        self.engine.events().clear()
        if phase is not Phase.IDLE:
            count = len(self.results)
            self.cluster.network.connect(first.port, LinkConditions(), self.results.append)
            for rank in range(2 if phase is Phase.WAITING else 1):
                self.cluster.submit(rank, self.values())
            self.cluster.run(lambda: phase is Phase.BLOCKED or len(self.results) > count, limit_s=1e-3)
        assert self.phase == phase
        self._rows = allocate_rows(1, FRAME_BYTES + 4 * LANES)

    @staticmethod
    def values() -> npt.NDArray[np.float32]:
        return np.ones(LANES, np.float32)

    @property
    def now(self) -> float:
        return self.cluster.clock.now_s

    @property
    def slot(self) -> np.void:
        return np.asarray(self.engine.state.slots)[0]  # type: ignore[no-any-return]

    @property
    def phase(self) -> int:
        return int(self.slot["phase"])

    @property
    def waiting(self) -> int:
        return int(np.asarray(self.engine.state.core)[0]["progress"]["waiting"])

    @property
    def blocked(self) -> int:
        return int(np.asarray(self.engine.state.core)[0]["progress"]["blocked"])

    @property
    def outstanding(self) -> int:
        return int(self.slot["outstanding"])

    def count(self, count: Count) -> int:
        return int(self.engine.counts[count])

    def frame(self, *, age: int = 0, **fields: int) -> bytes:
        """Return the last result with other fields, about the slot's round or one that is older by `age`."""
        header = Header.unpack(self.results[-1][LOWER_BYTES:])
        assert header is not None
        values = {name: getattr(header, name) for name in Header.__dataclass_fields__} | fields
        values["number"] = (int(self.slot["number"]) - age) & 0xFFFF_FFFF
        has_lanes = values["kind"] == Kind.RESULT and values["flags"] & Flag.PAYLOAD
        body = Header(**values).pack() + bytes(4 * LANES if has_lanes else 0)
        return self.results[-1][: LOWER_BYTES - 4] + (8 + len(body)).to_bytes(2) + bytes(2) + body

    def feed(self, frame: bytes, now: float | None = None) -> Count:
        """Hand the engine a frame; return how it was counted."""
        before = self.engine.counts.copy()
        self._rows[0, LEAD_BYTES : LEAD_BYTES + len(frame)] = np.frombuffer(frame, np.uint8)
        self.engine.receive(
            self._rows, np.zeros(1, np.int32), np.full(1, len(frame), np.int32), self.now if now is None else now
        )
        (changed,) = np.flatnonzero(self.engine.counts[:9] != before[:9]).tolist()
        return Count(changed)

    @property
    def failure(self) -> int:
        return int(np.asarray(self.engine.state.core)[0]["progress"]["failure"])


def test_every_rule_has_its_test() -> None:
    assert [rule.event for rule in RULES] == list(Event)
    for rule in RULES:
        assert f"test_{rule.test}" in globals()


@pytest.mark.parametrize("phase", PHASES)
def test_results(phase: Phase) -> None:
    bench = Bench(phase)
    number, waits = int(bench.slot["number"]), phase is Phase.WAITING
    assert bench.feed(bench.frame(digest=5)) == (Count.UNEXPECTED if waits else Count.FOREIGN)
    assert (bench.slot["number"], bench.failure) == (number, Failure.NONE)
    assert bench.feed(bench.frame()) == (Count.ROUNDS if waits else Count.FOREIGN)
    assert (bench.slot["number"], bench.failure) == (number + waits, Failure.NONE)
    bench = Bench(phase)
    bench.feed(bench.frame(flags=Flag.MISMATCH))
    assert bench.failure == (Failure.MISMATCH if waits else Failure.NONE)


@pytest.mark.parametrize("phase", PHASES)
def test_held(phase: Phase) -> None:
    bench, waits = Bench(phase), phase is Phase.WAITING
    assert bench.feed(bench.frame(kind=Kind.HELD, flags=0, bitmap=2)) == (Count.HELD if waits else Count.FOREIGN)
    assert (bench.slot["held"], bench.slot["seen"]) == ((1, 2) if waits else (0, 0))
    assert bench.phase == phase


@pytest.mark.parametrize("phase", PHASES)
def test_rejects(phase: Phase) -> None:
    bench, waits = Bench(phase), phase is Phase.WAITING
    broken = bench.frame(kind=Kind.REJECT, flags=0, reason=1, digest=5)
    assert bench.feed(broken) == (Count.UNEXPECTED if waits else Count.FOREIGN)
    assert bench.failure == Failure.NONE
    assert bench.feed(bench.frame(kind=Kind.REJECT, flags=0, reason=1)) == (Count.REJECTED if waits else Count.FOREIGN)
    assert bench.failure == (Failure.REJECTED if waits else Failure.NONE)


@pytest.mark.parametrize("phase", PHASES)
def test_former(phase: Phase) -> None:
    """An answer about the last round acknowledges nothing; a refusal is not even an answer."""
    bench = Bench(phase)
    assert bench.feed(bench.frame(age=1)) == Count.DUPLICATE
    assert bench.outstanding == Outstanding.NOTHING
    bench.engine.restarted(bench.now)
    assert bench.feed(bench.frame(age=1, kind=Kind.REJECT, flags=0)) == Count.DUPLICATE
    assert bench.outstanding == Outstanding.UNANSWERED
    assert bench.feed(bench.frame(age=1)) == Count.DUPLICATE
    assert bench.outstanding == Outstanding.ANSWERED
    bench.engine.restarted(bench.now)
    assert bench.feed(bench.frame(age=1, kind=Kind.HELD, flags=0)) == Count.DUPLICATE
    assert bench.outstanding == Outstanding.ANSWERED


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", [Kind.RESULT, Kind.HELD, Kind.REJECT])
def test_other_rounds(phase: Phase, kind: Kind) -> None:
    bench = Bench(phase)
    before = bench.slot.copy()
    for age, count in {
        2: Count.STALE,
        3: Count.STALE,
        2**31 - 1: Count.STALE,
        2**31: Count.FOREIGN,
        -1: Count.FOREIGN,
    }.items():
        assert bench.feed(bench.frame(age=age, kind=kind, flags=0)) == count
    assert bench.slot == before
    assert bench.failure == Failure.NONE


@pytest.mark.parametrize("phase", PHASES)
def test_submitted(phase: Phase) -> None:
    bench = Bench(phase)
    sent, number, operation = bench.count(Count.FRAMES_SENT), bench.slot["number"], bench.slot["operation"]
    bench.cluster.submit(0, bench.values())
    assert bench.count(Count.FRAMES_SENT) == sent + (phase is Phase.IDLE)
    assert bench.slot["number"] == number
    assert bench.slot["operation"] == operation + (phase is Phase.IDLE)
    assert bench.phase == (Phase.WAITING if phase is Phase.IDLE else phase)


@pytest.mark.parametrize("phase", PHASES)
def test_row_free(phase: Phase) -> None:
    bench = Bench(phase)
    sent = bench.count(Count.FRAMES_SENT)
    bench.engine.poll(bench.now)
    assert (bench.phase, bench.count(Count.FRAMES_SENT)) == (phase, sent)
    bench.engine.consumed(sent)
    bench.engine.poll(bench.now)
    assert bench.count(Count.FRAMES_SENT) == sent + (phase is Phase.BLOCKED)
    assert bench.phase == (Phase.IDLE if phase is Phase.IDLE else Phase.WAITING)


def test_contributed() -> None:
    for phase in PHASES:  # a slot that is idle begins a column, one that waits the next round, a blocked one goes on
        bench = Bench(phase)
        bench.engine.restarted(bench.now)
        bench.engine.sent(len(bench.engine.outgoing()[0]))
        bench.engine.consumed(bench.count(Count.FRAMES_SENT))
        if phase is Phase.IDLE:
            bench.cluster.submit(0, bench.values())
        elif phase is Phase.WAITING:
            bench.feed(bench.frame())
        else:
            bench.engine.poll(bench.now)
        assert (bench.phase, bench.outstanding) == (Phase.WAITING, Outstanding.NOTHING)
        assert (bench.waiting, bench.blocked) == (1, 0)
    bench = Bench(Phase.IDLE)
    for _ in range(2):
        bench.engine.restarted(bench.now)
        assert bench.outstanding == Outstanding.UNANSWERED
    bench.cluster.submit(0, bench.values())
    assert bench.outstanding == Outstanding.NOTHING
    assert not bench.engine.awaits_switch
    bench = Bench(Phase.IDLE)
    bench.engine.restarted(bench.now)
    bench.feed(bench.frame(age=1))
    assert bench.engine.is_due(np.inf)
    bench.cluster.submit(0, bench.values())
    assert not bench.engine.is_due(np.inf), "a worker without anything outstanding goes on to repeat it"


def test_row_held() -> None:
    for phase in PHASES:
        bench = Bench(phase)
        bench.engine.consumed(0)  # the transport reads all that was ever sent
        blocked = bench.count(Count.BLOCKED)
        if phase is Phase.IDLE:
            bench.cluster.submit(0, bench.values())
        elif phase is Phase.WAITING:
            bench.feed(bench.frame())
        else:
            bench.engine.poll(bench.now)
        assert bench.phase == Phase.BLOCKED
        assert (bench.waiting, bench.blocked) == (0, 1)
        assert bench.count(Count.BLOCKED) == blocked + (phase is not Phase.BLOCKED)


def test_columns_over() -> None:
    bench = Bench(Phase.WAITING)
    bench.feed(bench.frame())
    assert bench.phase == Phase.WAITING
    last = {"block": 0, "exponent": 127, "next_block": NO_BLOCK, "next_exponent": 0}
    bench.feed(bench.frame(flags=Flag.PAYLOAD, **last))
    assert bench.phase == Phase.IDLE
    assert (bench.waiting, bench.blocked) == (0, 0)


def test_a_phase_changes_with_three_events_alone() -> None:
    changes = {rule.event: rule.then for rule in RULES if rule.then is not None}
    assert changes == {Event.CONTRIBUTED: Phase.WAITING, Event.ROW_HELD: Phase.BLOCKED, Event.COLUMNS_OVER: Phase.IDLE}
    for phase, event in itertools.product(Phase, Event):
        assert rules.PHASES[phase, event] == changes.get(event, phase)
        assert rules.ACTIONS[phase, event] == getattr(RULES[event], phase.name.lower())


@pytest.mark.parametrize("slots", [16, 64])
def test_overtaken(slots: int) -> None:
    """Also where many slots wait, which are not searched for each result."""
    cluster = Cluster(ClusterConfig(workers=2, window_slots=slots, lanes_per_frame=LANES))
    size = LANES * max(200, 6 * slots)
    cluster.allreduce([np.ones(size, np.int32) for _ in range(2)])  # round-trip times are known now
    send, core = cluster.network.send, np.asarray(cluster.workers[0].engine.state.core)[0]
    lost: list[bytes] = []
    waiting: list[int] = []

    def lose_one(port: int, frame: bytes) -> None:
        if port == 1 and not lost:
            lost.append(frame)
            return
        if port == 1 and frame[AT.flags] & Flag.REPEAT:
            waiting.append(int(core["progress"]["waiting"]))
        send(port, frame)

    cluster.network.send = lose_one  # type: ignore[method-assign]
    cluster.allreduce([np.ones(size, np.int32) for _ in range(2)])
    assert len(lost) == 1
    counts = cluster.workers[0].engine.counts
    assert (counts[Count.OVERTAKEN], counts[Count.PROBES]) == (1, 0)
    assert waiting[0] > slots // 2, "the loss is noticed only when most of the operation is over"


def test_timed_out() -> None:
    bench = Bench(Phase.WAITING)
    sent = bench.count(Count.FRAMES_SENT)
    bench.engine.poll(bench.now)
    assert bench.count(Count.PROBES) == 0
    bench.engine.poll(bench.engine.wake_at)
    assert bench.count(Count.PROBES) == 1
    assert bench.count(Count.FRAMES_SENT) == sent + 1
    assert bench.count(Count.RECALLED) == 0
    bench = Bench(Phase.IDLE)
    bench.cluster.clock.advance_to(bench.now + 10)
    bench.cluster.submit(0, bench.values())
    assert bench.engine.wake_at > bench.now, "a pause before an operation counts as the switch's silence"


def test_time_outs_double_up_to_the_longest() -> None:
    bench = Bench(Phase.WAITING)
    known = Known(bench.engine)
    now = bench.engine.wake_at
    assert now - known["moved_at"] == pytest.approx(known["timeout_s"])
    for doublings in range(1, 10):
        bench.engine.poll(now)
        after, now = now, bench.engine.wake_at
        assert now - after == pytest.approx(min(known["timeout_s"] * min(2**doublings, 64), known["timeout_max_s"]))
    # An answer that says whom the switch waits for ends the silence, and a result all that was learnt from it.
    bench.feed(bench.frame(kind=Kind.HELD, flags=0, bitmap=2))
    assert known["silent"] == 0, "the error will say that the switch is lost, and not for whom it waits"
    bench.engine.poll(now)
    assert bench.engine.wake_at - now == pytest.approx(min(known["timeout_s"] * 16, known["timeout_max_s"]))
    bench.feed(bench.frame(), now + 1.0)
    assert (known["silent"], known["backoffs"]) == (0, 0), "the next frame that is lost is repeated late"


def test_a_slot_that_does_not_wait_is_not_looked_at_by_loss_recovery() -> None:
    """Else it is taken for the oldest one that waits, and others never have their turn."""
    for phase in PHASES:
        waits = Bench(phase).engine.state.last_sent[0] != NEVER
        assert waits == (phase is Phase.WAITING)


def test_repeated() -> None:
    """From the second time on the round before goes along."""
    bench = Bench(Phase.WAITING)
    for probes in (1, 2, 3):
        bench.engine.poll(bench.engine.wake_at)
        bench.engine.sent(len(bench.engine.outgoing()[0]))
        bench.engine.consumed(bench.count(Count.FRAMES_SENT))
        assert (bench.count(Count.PROBES), bench.count(Count.RECALLED)) == (probes, probes - 1)


@pytest.mark.parametrize("phase", PHASES)
def test_restarted(phase: Phase) -> None:
    bench = Bench(phase)
    bench.feed(bench.frame(kind=Kind.HELD, flags=0, bitmap=2))
    bench.engine.restarted(bench.now)
    assert not bench.slot["held"], "what the switch held is lost, and the worker goes on to ask less and less often"
    assert bench.outstanding == Outstanding.UNANSWERED
    assert bench.count(Count.PROBES) == (phase is Phase.WAITING)
    assert bench.phase == phase


@pytest.mark.parametrize("phase", PHASES)
def test_resend_due(phase: Phase) -> None:
    """A slot that waits repeats both rounds when it is told, and later as its time-outs say."""
    bench = Bench(phase)
    if phase is Phase.BLOCKED:
        # The row that it wants to write was repeated after the other one, which is free again.
        rows, number = np.asarray(bench.engine.state.rows), int(bench.slot["number"])
        rows["sequence"][number & 1], rows["sequence"][~number & 1] = 2, 1
        bench.engine.consumed(1)
    bench.engine.restarted(bench.now)
    assert bench.count(Count.RECALLED) == (phase is Phase.WAITING)
    if phase is Phase.WAITING:
        bench.engine.sent(len(bench.engine.outgoing()[0]))
        bench.engine.consumed(bench.count(Count.FRAMES_SENT))
    bench.engine.poll(bench.now)
    assert bench.count(Count.RECALLED) == 1


def test_a_restarted_switch_that_does_not_answer_is_told_again_and_again() -> None:
    bench = Bench(Phase.IDLE)
    longest_s = float(Known(bench.engine)["timeout_max_s"])
    bench.engine.restarted(bench.now)
    for _ in range(12):
        now = bench.engine.wake_at
        bench.engine.poll(now)
        assert bench.engine.wake_at - now <= longest_s * 1.001, "a member that needs the round may wait for minutes"


def test_a_second_restart_is_told_of_at_once() -> None:
    bench = Bench(Phase.IDLE)
    bench.engine.restarted(bench.now)
    bench.feed(bench.frame(age=1))
    for _ in range(10):
        now = bench.engine.wake_at
        bench.engine.poll(now)
        bench.engine.sent(len(bench.engine.outgoing()[0]))
        bench.engine.consumed(bench.count(Count.FRAMES_SENT))
    assert bench.engine.wake_at > now + 0.4  # answers make the pauses longer and longer
    repeated = bench.count(Count.RECALLED)
    bench.engine.restarted(now)
    bench.engine.poll(now)
    assert bench.count(Count.RECALLED) == repeated + 1, "who has lost a round again is told when the long pause ends"


def asked(bench: Bench, age: int) -> bytes:
    """Return HELD of another member's repeat, which misses this one's contribution."""
    np.asarray(bench.engine.state.core)[0]["member"]["shared_tree"] = 0
    return bench.frame(age=age, kind=Kind.HELD, flags=0, bitmap=2)


@pytest.mark.parametrize("phase", PHASES)
def test_asked(phase: Phase) -> None:
    bench = Bench(phase)
    frame, waits = asked(bench, 0), phase is Phase.WAITING
    bench.cluster.clock.advance_to(bench.now + 1.0)
    assert bench.feed(frame) == (Count.HELD if waits else Count.FOREIGN)
    assert bench.count(Count.PROBES) == waits
    assert bench.slot["held"] == 0
    assert bench.feed(frame) == (Count.HELD if waits else Count.FOREIGN)
    assert bench.count(Count.PROBES) == waits, "the repeat may be on its way"


@pytest.mark.parametrize("phase", PHASES)
def test_former_asked(phase: Phase) -> None:
    bench = Bench(phase)
    assert bench.feed(asked(bench, 1)) == Count.DUPLICATE
    assert bench.count(Count.RECALLED) == (phase is not Phase.BLOCKED), "a row that is being read is left alone"
    bench = Bench(phase)
    np.asarray(bench.engine.state.core)[0]["member"]["shared_tree"] = -1
    assert bench.feed(bench.frame(age=1, kind=Kind.HELD, flags=0, bitmap=2)) == Count.DUPLICATE
    assert bench.count(Count.RECALLED) == 0, "slots of its own do not change hands"
