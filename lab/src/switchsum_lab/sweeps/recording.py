"""The communication of a training, written down call by call, and read again.

A recording is a file of lines of JSON for each rank, `NAME.rank0.jsonl` and so on.  lab/docs/recordings.md has the
format.  No value is in it unless that is asked for: bitmaps, places of the largest values and norms are enough to
replay it.
"""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import numpy.typing as npt

from switchsum_protocol.errors import LocalError, UsageError

VERSION: Final = 1
BLOCK: Final = 256
"""Values in a block: as many as a frame of Ethernet has."""
TOP: Final = 0.01
"""Share of the values whose places are noted: those of largest magnitude."""
_HEAD: Final = ("recording", "version", "rank", "world_size", "block", "top", "about")
_CALL: Final = ("at_s", "step", "bucket", "values", "norm", "blocks", "top")


class RecordingError(UsageError):
    """A recording cannot be replayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective of one rank."""

    at_s: float
    """When it began, in seconds since the first one."""
    step: int
    """Step of the training. A bucket is in each step once."""
    bucket: str
    values: int
    norm: float
    """Euclidean norm of the values."""
    blocks: npt.NDArray[np.bool_]
    """Which blocks have a value that is not zero."""
    top: npt.NDArray[np.int64]
    """Places of the largest values, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The calls of one rank."""

    rank: int
    world_size: int
    block: int
    """Values in a block."""
    top: float
    about: str
    calls: Sequence[Call]

    def steps(self) -> dict[int, list[Call]]:
        """Return the calls of each step, in their order."""
        found: dict[int, list[Call]] = {}
        for call in self.calls:
            found.setdefault(call.step, []).append(call)
        return found


class Recorder:
    """Writes down what a rank is about to add.

    It costs a pass over each array, and a line of some kilobytes.

    Example:
        >>> import numpy as np, tempfile
        >>> from switchsum_lab.sweeps.recording import Recorder, load
        >>> name = tempfile.mkdtemp() + "/run"
        >>> with Recorder(name, rank=0, world_size=1) as recorder:
        ...     for step in range(2):
        ...         recorder.note("layer", np.ones(1000, np.float32))
        >>> [(call.step, int(call.blocks.sum())) for call in load(name)[0].calls]
        [(0, 4), (1, 4)]

    """

    def __init__(
        self,
        name: str | Path,
        *,
        rank: int,
        world_size: int,
        block: int = BLOCK,
        top: float = TOP,
        values: bool = False,
        about: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin a recording.

        Args:
            name: Path of the files without `.rank0.jsonl`.
            rank: Of this process.
            world_size: Number of ranks.
            block: Values in a block of the bitmaps.
            top: Share of the values whose places are noted, 0 to 1.
            values: Write all values down as well.
            about: What it is a recording of.
            clock: Returns seconds.

        Raises:
            UsageError: An argument is wrong.
            LocalError: The file cannot be written.

        """
        if block < 1 or not 0 <= top <= 1 or not 0 <= rank < world_size:
            raise UsageError("a recording needs block >= 1, top from 0 to 1, and a rank below world_size")
        self._block, self._top, self._with_values, self._clock = block, top, values, clock
        self._began: float | None = None
        self._step, self._seen = 0, set[str]()
        self._file: TextIO
        path = path_of(name, rank)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", encoding="utf-8")
        except OSError as error:
            raise LocalError(f"{path} cannot be written: {error.strerror}") from error
        values_of_head = ("switchsum", VERSION, rank, world_size, block, top, about)
        self._write(dict(zip(_HEAD, values_of_head, strict=True)))

    def note(self, bucket: str, array: npt.NDArray[Any], *, at_s: float | None = None) -> None:
        """Write down an array that this rank is about to add.

        Args:
            bucket: Which one of a step's arrays it is; when one comes again, a new step has begun.
            array: Of any shape and real dtype.
            at_s: When, in seconds by a clock of the caller's; None: now.

        """
        at_s = self._clock() if at_s is None else at_s
        if self._began is None:
            self._began = at_s
        if bucket in self._seen:
            self._step, self._seen = self._step + 1, set()
        self._seen.add(bucket)
        flat = np.abs(np.asarray(array).reshape(-1).astype(np.float64))
        count = round(self._top * len(flat))
        top = np.sort(np.argpartition(flat, len(flat) - count)[len(flat) - count :]) if count else np.zeros(0, np.int64)
        top = top[flat[top] != 0]
        line = {
            "at_s": round(at_s - self._began, 9),
            "step": self._step,
            "bucket": bucket,
            "values": len(flat),
            "norm": float(np.linalg.norm(flat)),
            "blocks": _packed(np.packbits(_blocks(flat, self._block))),
            "top": _packed(np.diff(top, prepend=0).astype("<u4")),
        }
        if self._with_values:
            line["data"] = _packed(np.asarray(array).reshape(-1).astype("<f4"))
        self._write(line)

    def _write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()

    def close(self) -> None:
        """End the recording."""
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hook(recorder: Recorder, inner: Callable[[Any, Any], Any] | None = None) -> Callable[[Any, Any], Any]:
    """Return a communication hook for PyTorch's `DistributedDataParallel` that notes each bucket.

    Args:
        recorder: This rank's.
        inner: The hook that averages the bucket; None: `allreduce_hook` of PyTorch, as without any hook.

    Returns:
        What `model.register_comm_hook(None, ...)` takes, with any backend.

    Example:
        >>> model.register_comm_hook(None, hook(Recorder("run", rank=rank, world_size=4)))  # doctest: +SKIP

    """

    def note(state: Any, bucket: Any) -> Any:
        recorder.note(str(bucket.index()), bucket.buffer().detach().float().cpu().numpy())
        if inner is not None:
            return inner(state, bucket)
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook  # noqa: PLC0415

        return allreduce_hook(None, bucket)

    note.__annotations__.clear()  # PyTorch refuses all but its own types
    return note


def path_of(name: str | Path, rank: int) -> Path:
    """Return the file of a rank."""
    return Path(f"{name}.rank{rank}.jsonl")


def load(name: str | Path) -> list[Recording]:
    """Read the recordings of all ranks; raises RecordingError, with the line that is wrong."""
    first = read(path_of(name, 0))
    found = [first, *(read(path_of(name, rank)) for rank in range(1, first.world_size))]
    shape = [(call.step, call.bucket, call.values) for call in first.calls]
    for one in found[1:]:
        if one.block != first.block or [(call.step, call.bucket, call.values) for call in one.calls] != shape:
            raise RecordingError(f"{path_of(name, one.rank)} has other calls than {path_of(name, 0)}")
    return found


def travels(name: str | Path, step: int = 0) -> tuple[int, float]:
    """Return the bytes of a step in float32, and the share of its blocks in which any rank has values.

    Raises RecordingError.
    """
    ranks = [one.steps() for one in load(name)]
    if step not in ranks[0]:
        raise RecordingError(f"{name} has no step {step}: its steps are {min(ranks[0])} to {max(ranks[0])}")
    calls = [*zip(*(one[step] for one in ranks), strict=True)]
    blocks = np.concatenate([np.any([call.blocks for call in same], axis=0) for same in calls])
    return 4 * sum(same[0].values for same in calls), float(blocks.mean())


def read(path: Path) -> Recording:
    """Read the recording of one rank; raises RecordingError, with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    if lines[-1] == "":
        lines.pop()
    number = 1
    try:
        head = _head(lines[0] if lines else "")
        calls = []
        for number, line in enumerate(lines[1:], 2):  # noqa: B007 - it is in the error
            calls.append(_call(json.loads(line), head["block"]))
    except (ValueError, KeyError, TypeError, IndexError, zlib.error) as error:
        what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise RecordingError(f"{path}, line {number}: {what}") from error
    names = ("rank", "world_size", "block", "top", "about")
    return Recording(**{name: head[name] for name in names}, calls=calls)


def _head(line: str) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict) or head.get("recording") != "switchsum":
        raise ValueError('this is no recording: its first line has no "recording": "switchsum"')
    if head.get("version") != VERSION:
        raise ValueError(f"its version is {head.get('version')}, and this version of switchsum reads {VERSION}")
    if not (isinstance(head["block"], int) and head["block"] >= 1 and isinstance(head["world_size"], int)):
        raise ValueError("its block and world_size must be whole numbers from 1 on")
    return head


def _call(record: Mapping[str, Any], block: int) -> Call:
    values = int(record["values"])
    count = -(-values // block)
    blocks = np.unpackbits(_unpacked(record["blocks"], np.uint8), count=count).astype(bool)
    top = np.cumsum(_unpacked(record["top"], "<u4").astype(np.int64))
    if len(blocks) != count or (len(top) and top[-1] >= values):
        raise ValueError(f"its bitmap or its places do not fit {values} values")
    return Call(
        at_s=float(record["at_s"]),
        step=int(record["step"]),
        bucket=str(record["bucket"]),
        values=values,
        norm=float(record["norm"]),
        blocks=blocks,
        top=top,
    )


def _blocks(flat: npt.NDArray[np.float64], block: int) -> npt.NDArray[np.bool_]:
    """Return which blocks have a value that is not zero; NaN is none."""
    padded = np.zeros(-(-len(flat) // block) * block, np.bool_)
    padded[: len(flat)] = flat != 0
    return np.asarray(padded.reshape(-1, block).any(axis=1))


def _packed(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes(), 9)).decode()


def _unpacked(text: str, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), dtype)
