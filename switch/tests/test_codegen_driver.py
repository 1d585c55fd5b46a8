"""The native engine around the program: batches, memory bounds, tables that change, the code cache, debug builds."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from support.ir_programs import Draft, Pair, numbered, straight
from support.timing import eventually
from switchsum_switch.codegen import compile_program, machine
from switchsum_switch.codegen.cache import MAX_FILES, keep, key_of
from switchsum_switch.codegen.cache import load as load_kept
from switchsum_switch.execution.pipeline import Pipeline, make_state
from switchsum_switch.kernels.cache import Store, open_directory
from switchsum_switch.messages.matches import Exact, Lpm, Match, MatchKind, Range, Ternary
from switchsum_switch.program import ir
from switchsum_switch.program.lower import lower
from switchsum_switch.program.reader import read_program
from switchsum_switch.queues.batch import Output
from switchsum_switch.state.tables import ActionSpec, Entry, KeySpec, ParamSpec, TableSpec

from .conftest import PROGRAMS

ANSWER = 200


def flood(width: int) -> tuple[Draft, ir.Program]:
    """Return a program that sends each frame, with a copy of its first field in front, to group 1."""
    draft = Draft()
    given, front = draft.header("given", [width]), draft.header("front", [width])
    copy = ir.Assign(draft.headers[front].slots[0], draft.field(draft.headers[given].slots[0]))
    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=straight([ir.SetValid(front), copy, ir.Assign(draft.intrinsics.mcast_grp, ir.Const(16, 1))]),
        deparser=[front, given],
    )
    return draft, program


def columns(frames: list[bytes]) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    memory = [np.frombuffer(frame or b"\0", np.uint8) for frame in frames]
    addresses = np.array([frame.ctypes.data for frame in memory], np.uint64)
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    return memory, (addresses, lengths, np.arange(len(frames), dtype=np.uint32))


@pytest.mark.parametrize(("rows", "arena"), [(4, 1 << 20), (7, 1 << 20), (1000, 2000), (1000, 6000), (5, 3000)])
def test_a_batch_stops_before_the_frame_that_might_not_fit(rows: int, arena: int) -> None:
    _, program = flood(512)
    pair = Pair(program)
    for state in (pair.state, pair.expected_state):
        state.multicast.set(1, [(1, 0), (2, 0), (3, 0)])
    frames = [bytes([index]) * (64 + 37 * (index % 5)) for index in range(20)]
    memory, (addresses, lengths, ports) = columns(frames)
    expected = [answer for frame in frames for answer in pair.interpreter.process(0, frame, 0)]
    output, got, first, calls = Output(rows, arena), [], 0, 0
    while first < len(frames):
        done = pair.native.process_batch(
            addresses[first:], lengths[first:], ports[first:], len(frames) - first, output, 0
        )
        size, copies = len(frames[first + done]) if first + done < len(frames) else None, 3
        used = sum(-(-int(length) // 64) * 64 for length in output.lengths[: output.count])
        if size is not None:
            assert output.count + copies > rows or used + copies * (size + 128 + 64) > arena
        got += output.frames()
        first, calls = first + done, calls + 1
    assert got == expected
    assert calls > 1
    assert all(int(address) % 64 == output.arena.ctypes.data % 64 for address in output.addresses[: output.count])
    assert memory


class GuardedPage:
    """A page with nothing readable or writable behind it."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self._view = ctypes.c_char.from_buffer(self._map)
        self.start = ctypes.addressof(self._view)
        libc = ctypes.CDLL(None, use_errno=True)
        guard = ctypes.c_void_p(self.start + mmap.PAGESIZE)
        assert libc.mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), 0) == 0

    def end_with(self, frame: bytes) -> int:
        """Put a frame at the page's end and return its address."""
        address = self.start + mmap.PAGESIZE - len(frame)
        ctypes.memmove(address, frame, len(frame))
        return address


def test_no_byte_behind_a_frame_is_read() -> None:
    """Neither by extraction of odd widths, nor peeks, checksums, wide operations or the payload's copy."""
    draft = Draft()
    given = draft.header("given", [3, 13, 8, 136, 24, 512])
    answer = draft.header("answer", [16, 13, 512, 1])
    slots, out = draft.headers[given].slots, draft.headers[answer].slots
    wide = draft.field(slots[5])
    everything = tuple(ir.HashInput(draft.field(slot), given) for slot in slots)
    program = draft.program(
        parser=straight([ir.Require(ir.Const(16, 13)), ir.Assign(out[1], ir.Peek(13, 0)), ir.Extract(given)]),
        ingress=straight(
            [
                ir.SetValid(answer),
                ir.Assign(out[0], ir.Hash(16, "csum16", everything, payload=True)),
                ir.Assign(out[2], ir.Binary(512, ir.Op.ADD, wide, ir.Binary(512, ir.Op.XOR, wide, ir.Const(512, 5)))),
                ir.Assign(out[3], ir.Compare(ir.Relation.NE, wide, ir.Const(512, 0))),
            ]
        ),
        deparser=[answer, given],
    )
    pair, page = Pair(program), GuardedPage()
    rng, output = np.random.default_rng(0), Output(4, 1 << 14)
    for length in range(200):
        frame = rng.bytes(length)
        address = np.array([page.end_with(frame)], np.uint64)
        pair.native.process_batch(address, np.array([length], np.uint32), np.zeros(1, np.uint32), 1, output, 0)
        assert output.frames() == pair.interpreter.process(0, frame, 0)


KEYS = {
    "exact": [(9, MatchKind.EXACT), (48, MatchKind.EXACT), (7, MatchKind.EXACT)],
    "one exact": [(64, MatchKind.EXACT)],
    "wide exact": [(300, MatchKind.EXACT), (16, MatchKind.EXACT)],
    "lpm": [(16, MatchKind.EXACT), (32, MatchKind.LPM)],
    "ternary": [(128, MatchKind.TERNARY), (5, MatchKind.LPM), (16, MatchKind.EXACT)],
    "range": [(16, MatchKind.RANGE), (8, MatchKind.TERNARY), (70, MatchKind.RANGE)],
    "only ranges": [(130, MatchKind.RANGE)],
}


def table_program(keys: list[tuple[int, MatchKind]]) -> tuple[Draft, int, ir.Program]:
    """Return a program that answers with what its table chose: the action, its parameters, and whether it hit."""
    draft = Draft()
    given = draft.header("given", [width for width, _ in keys])
    answer = draft.header("answer", [8, 88, 200, 16])
    specs = tuple(KeySpec(name=f"k{i}", width=width, kind=kind) for i, (width, kind) in enumerate(keys))
    params = ((88, 200), (), (16,))
    actions = tuple(
        ActionSpec(name=f"a{i}", params=tuple(ParamSpec(name=f"p{width}", width=width) for width in widths))
        for i, widths in enumerate(params)
    )
    spec = TableSpec(name="table", keys=specs, actions=actions, size=60, has_counters=True)
    fields = tuple(draft.field(slot) for slot in draft.headers[given].slots[: len(keys)])
    draft.tables.append(ir.TableInfo(spec=spec, keys=fields, default=("a2", (7,)), entries=()))
    mark, small, large, word = draft.headers[answer].slots

    def chosen(action: int, hit: bool) -> list[ir.Statement]:
        made: list[ir.Statement] = [ir.Assign(mark, ir.Const(8, 2 * action + hit))]
        places = {88: small, 200: large, 16: word}
        made += [ir.Assign(places[w], ir.Param(w, 0, action, i)) for i, w in enumerate(params[action])]
        return made

    program = draft.program(
        parser=straight([ir.Extract(given)]),
        ingress=numbered(
            [
                ([ir.SetValid(answer)], ir.Apply(0, (1, 2, 3), (4, 5, 6))),
                *((chosen(action, hit), ir.Jump(7)) for hit in (True, False) for action in range(3)),
                ([], ir.End()),
            ]
        ),
        deparser=[answer],
    )
    return draft, given, program


@pytest.mark.parametrize("name", KEYS)
def test_tables_of_every_kind_follow_the_control_plane(name: str) -> None:
    keys = KEYS[name]
    draft, given, program = table_program(keys)
    pair, rng = Pair(program), np.random.default_rng(len(name))
    tables = [state.tables["table"] for state in (pair.state, pair.expected_state)]
    prioritised = tables[0].spec.prioritised

    def number(width: int) -> int:
        few = int(rng.integers(4)) << (width - 2) if width > 2 else 0
        return few | int(rng.integers(4)) if rng.integers(3) else int.from_bytes(rng.bytes(width // 8), "big")

    def match(width: int, kind: MatchKind) -> Match:
        value, full = number(width), (1 << width) - 1
        match kind:
            case MatchKind.LPM:
                length = int(rng.integers(width + 1))
                return Lpm(value & ~(full >> length), length)
            case MatchKind.TERNARY:
                mask = full << width // 2 & full if rng.integers(2) else (number(width) | number(width)) & full
                return Ternary(value & mask, mask)
            case MatchKind.RANGE:
                low, high = sorted((value, number(width)))
                return Range(low, high)
        return Exact(value)

    def action() -> tuple[str, tuple[int, ...]]:
        params = (number(88), number(200)), (), (number(16),)
        choice = int(rng.integers(3))
        return f"a{choice}", params[choice]

    def frame() -> bytes:
        entries = tables[0].entries()
        value = 0
        for index, (width, _) in enumerate(keys):
            part = number(width)
            if entries and rng.integers(4):
                chosen = entries[int(rng.integers(len(entries)))].match[index]
                part = chosen.low if isinstance(chosen, Range) else chosen.value
            value = value << width | part
        header = draft.headers[given]
        return (value << (header.width - sum(width for width, _ in keys))).to_bytes(header.width // 8)

    for _ in range(300):
        entries = tables[0].entries()
        name_of, params = action()
        move = rng.integers(8)
        if move < 4 and len(entries) < 60:
            entry = Entry(
                match=tuple(match(*key) for key in keys),
                priority=int(rng.integers(1, 5)) if prioritised else 0,
                action=name_of,
                params=params,
            )
            if any((entry.match, entry.priority) == (old.match, old.priority) for old in entries):
                continue
            for table in tables:
                table.insert(entry)
        elif move < 6 and entries:
            entry = entries[int(rng.integers(len(entries)))]
            for table in tables:
                table.delete(entry.match, entry.priority)
        elif move == 6 and entries:
            old = entries[int(rng.integers(len(entries)))]
            for table in tables:
                table.modify(Entry(match=old.match, priority=old.priority, action=name_of, params=params))
        else:
            for table in tables:
                table.set_default(name_of, params)
        for _ in range(4):
            pair.process(0, frame())
    pair.check_state()


def test_a_table_without_key_has_its_default_action() -> None:
    draft = Draft()
    answer = draft.header("answer", [32])
    slot = draft.headers[answer].slots[0]
    action = ActionSpec(name="set", params=(ParamSpec(name="value", width=32),))
    spec = TableSpec(name="table", keys=(), actions=(action,), size=1, has_counters=True)
    draft.tables.append(ir.TableInfo(spec=spec, keys=(), default=("set", (5,)), entries=()))
    blocks = numbered(
        [
            ([ir.SetValid(answer)], ir.Apply(0, (1,), (1,))),
            ([ir.Assign(slot, ir.Param(32, 0, 0, 0))], ir.End()),
        ]
    )
    pair = Pair(draft.program(ingress=blocks, deparser=[answer]))
    assert pair.process(0, b"x") == [(0, bytes([0, 0, 0, 5]) + b"x")]
    for state in (pair.state, pair.expected_state):
        state.tables["table"].set_default("set", (9,))
    assert pair.process(0, b"x") == [(0, bytes([0, 0, 0, 9]) + b"x")]
    pair.check_state()


def count_at(index: int) -> None:
    """Count a packet at an index of a counter of four cells, in a debug build."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    draft = Draft()
    given = draft.header("given", [8])
    counts = ir.Count(draft.counter(4), draft.field(draft.headers[given].slots[0]))
    program = draft.program(parser=straight([ir.Extract(given)]), ingress=straight([counts]))
    state = make_state(program)
    pipeline = Pipeline(program, state, compile_program(program, state, cache=None, debug=True))
    pipeline.process(0, bytes([index]))
    assert state.counters["counter0"].read(index)[0] == 1


@pytest.mark.parametrize(("index", "code"), [(3, 0), (4, -signal.SIGILL)])
def test_a_debug_build_stops_the_process_at_an_index_beyond_an_array(index: int, code: int) -> None:
    script = f"from switch.tests.test_codegen_driver import count_at; count_at({index})"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr


def some_program() -> ir.Program:
    draft = Draft()
    answer = draft.header("answer", [32])
    set_it = ir.Assign(draft.headers[answer].slots[0], ir.Const(32, 0xABCD))
    return draft.program(ingress=straight([ir.SetValid(answer), set_it]), deparser=[answer])


def load(program: ir.Program, cache: Store | None) -> list[tuple[int, bytes]]:
    state = make_state(program)
    return Pipeline(program, state, compile_program(program, state, cache=cache)).process(0, b"")


def kept_in(folder: Path) -> list[Path]:
    return list(folder.glob("*.object"))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with each compilation."""
    made, real = list[int](), machine.compile_object

    def compile_object(source: str, level: int) -> bytes:
        made.append(len(source))
        return real(source, level)

    monkeypatch.setattr(machine, "compile_object", compile_object)
    return made


@pytest.mark.parametrize(("most", "expected"), [(11, machine.OPTIMISATION), (10, machine.QUICK)])
def test_a_program_of_many_tables_goes_through_fewer_passes(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: int
) -> None:
    text, levels, real = (PROGRAMS / "matching.json").read_bytes(), list[int](), machine.compile_object

    def compile_object(source: str, level: int) -> bytes:
        levels.append(level)
        return real(source, level)

    monkeypatch.setattr(machine, "compile_object", compile_object)
    monkeypatch.setattr(machine, "MOST_TABLES", most)
    program = lower(read_program(text))
    assert len(program.tables) == 11
    state = make_state(program)
    native = Pipeline(program, state, compile_program(program, state, cache=None))
    assert levels == [expected]
    interpreted = Pipeline.load(text, engine="interpreter")
    for number in range(64):
        frame = bytes([number] * 12)
        assert native.process(number % 4, frame) == interpreted.process(number % 4, frame)


def test_code_is_compiled_once_and_kept(tmp_path: Path, compilations: list[int]) -> None:
    expected = [(0, bytes([0, 0, 0xAB, 0xCD]))]
    for _ in range(3):
        assert load(some_program(), open_directory(tmp_path)) == expected
    assert len(compilations) == 1
    _, other = flood(128)
    load(other, open_directory(tmp_path))
    assert len(compilations) == 2
    assert len(kept_in(tmp_path)) == 2


@pytest.mark.parametrize("damage", [b"", b"\0", b"x" * 40, b"x" * 4000])
def test_damaged_code_is_compiled_again(tmp_path: Path, compilations: list[int], damage: bytes) -> None:
    load(some_program(), open_directory(tmp_path))
    [path] = kept_in(tmp_path)
    whole = path.read_bytes()
    for broken in (damage, damage + whole[len(damage) :], whole[: len(whole) // 2] + damage):
        path.write_bytes(broken)
        assert load(some_program(), open_directory(tmp_path)) == [(0, bytes([0, 0, 0xAB, 0xCD]))]
        assert path.read_bytes() == whole
    assert len(compilations) == 4 - (not damage)


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, compilations: list[int]) -> None:
    gone = open_directory(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for nowhere in (gone, gone, None):
        assert load(some_program(), nowhere) == [(0, bytes([0, 0, 0xAB, 0xCD]))]
    assert len(compilations) == 3


def test_the_cache_keeps_what_was_used_last(tmp_path: Path) -> None:
    store = open_directory(tmp_path)
    for number in range(MAX_FILES + 5):
        keep(store, f"{number:03}", bytes([number]))
        os.utime(tmp_path / f"{number:03}.object", (number, number))
    keep(store, "last", b"code")
    assert load_kept(store, "000") is None
    assert load_kept(store, f"{MAX_FILES + 4:03}") == bytes([MAX_FILES + 4])
    assert load_kept(store, "last") == b"code"
    assert len(kept_in(tmp_path)) == MAX_FILES


def test_debug_builds_and_others_are_kept_apart() -> None:
    program = some_program()
    assert key_of(program, debug=True) != key_of(program, debug=False)
    assert key_of(program, debug=True) == key_of(some_program(), debug=True)


def test_other_threads_run_while_a_batch_runs() -> None:
    _, program = flood(2048)
    state = make_state(program)
    native = compile_program(program, state, cache=None)
    state.multicast.set(1, list(itertools.product(range(1, 9), range(4))))
    frames = [bytes(9000)] * 400
    memory, (addresses, lengths, ports) = columns(frames)
    output = Output(32 * len(frames), 32 * len(frames) * 9600)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())

    def has_ticked_meanwhile() -> bool:
        ticks.clear()
        started = time.perf_counter()
        assert native.process_batch(addresses, lengths, ports, len(frames), output, 0) == len(frames)
        ended = time.perf_counter()
        return sum(started + (ended - started) * 0.2 < at < started + (ended - started) * 0.8 for at in ticks) > 10

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assert eventually(has_ticked_meanwhile)  # it may take several: others may have the cores
    finally:
        stop.set()
        thread.join()
    assert memory
