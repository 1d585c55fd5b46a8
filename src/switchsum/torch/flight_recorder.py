"""A group's collectives in the format of PyTorch's Flight Recorder, which `torchfrtrace` reads.

torch's own recorder listens in C++ methods that a group written in Python replaces.  So this module keeps the latest
collectives of the process, and reads the same environment variables.  Collectives have the names of NCCL's, because
`torchfrtrace` knows no other backends.  Each rank writes one pickle: when it is asked, when something is written to the
rank's pipe, and when a collective of any rank has failed.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import pickle
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import torch
import torch.distributed as dist

from switchsum.torch.work import SwitchWork
from switchsum_protocol.errors import LocalError, RemoteError, SumOverflow, UsageError

Shapes = list[list[int]]

FORMAT: Final = "2.10"
"""Version of Flight Recorder's format, that of torch 2.13 to 2.15."""
SIZE: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
FILE: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
ON_FAILURE: Final = "TORCH_NCCL_DUMP_ON_TIMEOUT"
PIPE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
MOST: Final = 2000
"""Collectives that are kept, as with NCCL."""
MOST_FRAMES: Final = 24
LOOK_S: Final = 0.5
"""Seconds between two looks at the pipe and at messages of other ranks."""
STOP_S: Final = 5.0
_OURS: Final = "switchsum.torch."
_KEY: Final = "switchsum/flight_recorder_dump"
_log = logging.getLogger(__name__)

NAMES: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "allreduce_coalesced",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "_reduce_scatter_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor_coalesced",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_into_tensor_coalesced",
    "all_gather_single": "_all_gather_base",
    "_allgather_base": "_all_gather_base",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor_coalesced",
    "gather": "gather",
    "scatter": "scatter",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "barrier": "all_reduce_barrier",
}
"""NCCL's names for a group's methods. `alltoall` calls one of these; `send` and `recv` are left out."""
_IN_PLACE: Final = {"all_reduce", "allreduce_coalesced", "reduce", "broadcast"}
DTYPES: Final = {
    torch.float32: "Float", torch.float64: "Double", torch.float16: "Half", torch.bfloat16: "BFloat16",
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


class Record:
    """A collective."""

    __slots__ = ("began_ns", "ended_ns", "frames", "group", "name", "number", "serial", "shapes", "work")

    def __init__(self, number: int, serial: int, group: int, name: str, shapes: tuple[Any, ...], frames: Any) -> None:
        self.number, self.serial, self.group, self.name = number, serial, group, name
        self.shapes, self.frames = shapes, frames
        self.began_ns, self.ended_ns = time.time_ns(), 0
        self.work: dist.Work | None = None
        """gloo's, until it is done: it tells nobody."""

    def look(self) -> bool:
        """Take note of gloo's work having ended; return whether there is nothing more to look at."""
        if self.work is not None and self.work.is_completed():
            self.work, self.ended_ns = None, time.time_ns()
        return self.work is None


class FlightRecorder:
    """Keeps the latest collectives of this process."""

    def __init__(self, most: int) -> None:
        self._records: deque[Record] = deque(maxlen=most)
        self._numbers, self._keys = count(), count()
        self._open: dict[int, tuple[int, count[int], weakref.ref[Any]]] = {}
        """Groups that have begun a collective, by id: their key here, serial numbers of collectives, and the group."""
        self._groups: dict[int, tuple[Any, str, str, list[int]]] = {}
        """Each one with its name, description and global ranks."""
        self._over_gloo: deque[Record] = deque(maxlen=most)

    def begin(self, group: Any, name: str, arguments: tuple[Any, ...]) -> Record:
        """Take note of a call."""
        known = self._open.get(id(group))
        if known is None or known[2]() is not group:
            self.forget(group)
            known = self._open[id(group)] = next(self._keys), count(1), weakref.ref(group)
            self._groups[known[0]] = known[2], *_described(group)
        while self._over_gloo and self._over_gloo[0].look():
            self._over_gloo.popleft()
        key, serials, _ = known
        record = Record(next(self._numbers), next(serials), key, name, shapes_of(name, arguments), _frames())
        self._records.append(record)
        return record

    def record(self, group: Any, name: str, arguments: tuple[Any, ...], begin: Callable[[], dist.Work]) -> dist.Work:
        """Begin a call, and take note of it and of its end; of one without a name among NCCL's nothing is noted."""
        if name not in NAMES:
            return begin()
        record = self.begin(group, NAMES[name], arguments)

        def end(error: BaseException | None) -> None:
            if error is None:
                record.ended_ns = time.time_ns()
            elif group.flight is not None:
                group.flight.failed(error)

        try:
            work = begin()
        except RemoteError as error:
            end(error)
            raise
        if isinstance(work, SwitchWork):
            work.call_at_end(end)
        else:
            self.over_gloo(record, work)
        return work

    def over_gloo(self, record: Record, work: dist.Work) -> None:
        """Take note of a call that gloo serves."""
        record.work = work
        self._over_gloo.append(record)

    def forget(self, group: Any) -> None:
        """Drop a group that is closed: the next one of its name counts from 1 again."""
        if known := self._open.pop(id(group), None):
            self._groups.pop(known[0], None)

    def dump(self) -> dict[str, Any]:
        """Return all as `torchfrtrace` reads it, and under `switchsum` which ranks' bits are missing in which slots."""
        records = [record for record in self._records if record.group in self._groups]
        for record in records:
            record.look()
        groups = list(self._groups.items())
        return {
            "version": FORMAT,
            "comm_lib_version": "switchsum",
            "pg_config": {
                name: {"name": name, "desc": description, "ranks": str(ranks)}
                for _, (_, name, description, ranks) in groups
            },
            "pg_status": {name: _status(records, key) for key, (_, name, _, _) in groups},
            "entries": [self._entry(record) for record in records],
            "switchsum": {name: {"waiting": _waiting(group(), ranks)} for _, (group, name, _, ranks) in groups},
        }

    def _entry(self, record: Record) -> dict[str, Any]:
        _, name, description, _ = self._groups[record.group]
        input_sizes, input_dtypes, output_sizes, output_dtypes = record.shapes
        return {
            "record_id": record.number,
            "pg_id": int(name) if name.isdigit() else 0,
            "process_group": (name, description),
            "collective_seq_id": record.serial,
            "p2p_seq_id": 0,
            "op_id": record.serial,
            "is_p2p": False,
            "profiling_name": f"nccl:{record.name}",
            "input_sizes": input_sizes,
            "input_dtypes": input_dtypes,
            "output_sizes": output_sizes,
            "output_dtypes": output_dtypes,
            "time_created_ns": record.began_ns,
            "time_discovered_started_ns": record.began_ns,
            "time_discovered_completed_ns": record.ended_ns or None,
            "state": "completed" if record.ended_ns else "started",
            "retired": bool(record.ended_ns),
            "frames": [
                {"name": code.co_name, "filename": code.co_filename, "line": line} for code, line in record.frames
            ],
        }


def _waiting(group: Any, ranks: list[int]) -> list[dict[str, Any]]:
    """Return the slots that wait, as the switch has said, and for which ranks (-1: those at other switches)."""
    communicator = None if group is None else group.membership.communicator
    if communicator is None or communicator.queue.closed:
        return []
    return [
        {"slot": slot, "round": number, "missing_ranks": [ranks[one] if one >= 0 else -1 for one in missing]}
        for slot, number, missing in communicator.queue.driver.held_slots()
    ]


def _status(records: Iterable[Record], key: int) -> dict[str, str]:
    of_group = [record for record in records if record.group == key]
    begun = max((record.serial for record in of_group), default=0)
    ended = max((record.serial for record in of_group if record.ended_ns), default=0)
    return {
        "last_enqueued_collective": str(begun),
        "last_started_collective": str(begun),
        "last_completed_collective": str(ended),
    }


def _described(group: dist.ProcessGroup) -> tuple[str, str, list[int]]:
    ranks = list(range(group.size()))
    try:
        name, description = group.group_name, group.group_desc or "undefined"
        ranks = dist.get_process_group_ranks(group)
    except (RuntimeError, ValueError, KeyError):  # one that torch does not know, as tests make it
        name, description = "0", "undefined"
    return name, description, ranks


def _frames() -> list[tuple[Any, int]]:
    """Return code and line of the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    found: list[tuple[Any, int]] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return found


def shapes_of(name: str, arguments: tuple[Any, ...]) -> tuple[Shapes, list[str], Shapes, list[str]]:
    """Return sizes and dtypes of a call's inputs and outputs; a list of tensors is one with one more dimension."""
    if name == "all_reduce_barrier":
        return [[1]], ["Float"], [[1]], ["Float"]
    first = _listed(arguments[0])
    if name in _IN_PLACE:
        sizes, dtypes = _sizes(first), _dtypes(first)
        return sizes, dtypes, sizes, dtypes
    second = _listed(arguments[1])
    return _sizes(second), _dtypes(second), _sizes(first), _dtypes(first)


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _sizes(values: list[Any]) -> Shapes:
    return [list(one.shape) if isinstance(one, torch.Tensor) else _joined(list(one)) for one in values] or [[]]


def _joined(tensors: list[torch.Tensor]) -> list[int]:
    """Return the shape of tensors of a list put together."""
    shapes = {tuple(one.shape) for one in tensors}
    if len(shapes) == 1:
        return [len(tensors), *shapes.pop()]
    return [sum(math.prod(shape) for shape in shapes)]


def _dtypes(values: list[Any]) -> list[str]:
    tensors = [one if isinstance(one, torch.Tensor) else next(iter(one), None) for one in values]
    return [DTYPES.get(one.dtype, str(one.dtype)) for one in tensors if one is not None]


def _setting(names: Iterable[str]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _asked_for() -> int:
    """Return how many collectives are to be kept; none unless asked for: each costs microseconds."""
    text = _setting(SIZE)
    if text.isascii() and text.isdigit():
        return int(text)
    return MOST if _setting((*FILE, PIPE)) else 0


recorder: FlightRecorder | None = None
"""This process's, once a group is made that is to be recorded."""


def wanted() -> FlightRecorder | None:
    """Return what is to record a group that is made now; None: nothing is."""
    global recorder  # noqa: PLW0603 - one for all groups of the process, as torch's own
    most = _asked_for()
    if most and recorder is None:
        recorder = FlightRecorder(most)
    return recorder if most else None


def path_of(rank: int) -> Path:
    """Return where a rank's dump goes."""
    prefix = _setting(FILE)
    if not prefix:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        prefix = f"{cache}/torch/comm_lib_trace_rank_"
    return Path(f"{prefix}{rank}")


def dump_flight_recorder(path: str | os.PathLike[str] | None = None) -> Path:
    """Write this rank's latest collectives for `torchfrtrace`.

    Args:
        path: The file.  None: TORCH_FR_DUMP_TEMP_FILE, by default ~/.cache/torch/comm_lib_trace_rank_, with the rank
            behind it.

    Returns:
        The file's path.

    Raises:
        UsageError: Nothing is recorded.
        LocalError: The file cannot be written.

    Example:
        >>> import switchsum
        >>> import switchsum.torch
        >>> try:  # with TORCH_FR_DUMP_TEMP_FILE set, this writes the file
        ...     path = switchsum.torch.dump_flight_recorder("/tmp/digits/rank_0")
        ... except switchsum.UsageError as error:
        ...     print(error)
        nothing is recorded: set TORCH_FR_DUMP_TEMP_FILE or TORCH_FR_BUFFER_SIZE before the process group is made

    """
    if recorder is None:
        raise UsageError(f"nothing is recorded: set {FILE[0]} or {SIZE[0]} before the process group is made")
    to = Path(path) if path is not None else path_of(dist.get_rank() if dist.is_initialized() else 0)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=to.parent, prefix=".", suffix=".part", delete=False) as file:
            try:
                file.write(pickle.dumps(recorder.dump(), protocol=2))
                file.flush()
                Path(file.name).replace(to)
            finally:  # a full disk leaves no part behind
                Path(file.name).unlink(missing_ok=True)
    except OSError as error:
        raise LocalError(f"cannot write the flight recorder's {to}: {error.strerror}") from error
    return to


class Watch:
    """A thread of the group of all ranks: it writes the dump when this or another rank, or the user, asks for it."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self._store, self._rank = store, rank
        self._stopped = threading.Event()
        self._asked = threading.Event()
        self._has_dumped = False
        self._pipe = _open_pipe(rank)
        self._thread = threading.Thread(target=self._run, name="switchsum flight recorder", daemon=True)
        self._thread.start()

    def failed(self, error: BaseException) -> None:
        """Have all ranks write their dumps, once, for a collective of this one has failed."""
        if not isinstance(error, RemoteError) or isinstance(error, SumOverflow):
            return
        if _dumps_on_failure() and not self._has_dumped:
            self._has_dumped = True
            self._write()  # now: the caller's next line may end the process
            self._asked.set()

    def stop(self) -> None:
        """End the thread; if this rank has failed, not before the others can hear of it."""
        self._stopped.set()
        self._thread.join(STOP_S)
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _run(self) -> None:
        while True:
            is_last = self._stopped.wait(0 if self._asked.is_set() else LOOK_S)
            try:
                if self._asked.is_set():
                    self._asked.clear()
                    self._store.set(_KEY, str(self._rank))
                elif not self._has_dumped and self._store.check([_KEY]):
                    self._has_dumped = True
                    self._write()
            except RuntimeError:  # the store's rank has gone
                return
            if self._pipe is not None and _has_word(self._pipe):
                self._write()
            if is_last:
                return

    def _write(self) -> None:
        try:
            path = dump_flight_recorder(path_of(self._rank))
        except LocalError as error:
            _log.warning("%s", error)
        else:
            _log.warning("the latest collectives are in %s; torchfrtrace reads all ranks' files", path)


def watch(store: dist.Store, rank: int) -> Watch | None:
    """Return what writes dumps for a group of all ranks; None where nothing is recorded or asks for it."""
    wants = _dumps_on_failure() or _setting([PIPE])
    return Watch(store, rank) if wanted() is not None and wants else None


def _dumps_on_failure() -> bool:
    return os.environ.get(ON_FAILURE, "1").lower() not in ("0", "false", "n", "no")


def _open_pipe(rank: int) -> int | None:
    prefix = os.environ.get(PIPE, "")
    if not prefix:
        return None
    path = f"{prefix}{rank}.pipe"
    try:
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise LocalError(f"{PIPE}: cannot open {path}: {error.strerror}") from error


def _has_word(pipe: int) -> bool:
    try:
        return bool(os.read(pipe, 64))
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        return False
