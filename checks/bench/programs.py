"""Packets a second of v1model programs: native code, interpreter and real BMv2, from pcap files to pcap files.

The programs are those of `program_cases.py`, and with `--public FOLDER` those of `public_programs.py`.  BMv2 reads and
writes its files itself (`--use-files`), our switch through `pcap_files.py`.  Files lie in memory (/dev/shm) where there
is such a place.  What leaves BMv2 is counted, so that a packet that it drops is not one that it has forwarded.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from checks.bench.bmv2 import build
from checks.bench.choice import Choice
from checks.bench.pcap_files import FILE_HEAD, RECORD_HEAD, run_files, write_pcap
from checks.bench.program_cases import ENTERS, FORWARD, FRAME_BYTES, PORTS, PROGRAMS, Program
from checks.bench.public_programs import public_programs
from checks.bench.records import Record, Samples, beside, record
from switchsum_switch.bmv2.simple_switch import SimpleSwitch
from switchsum_switch.bmv2.simple_switch.process import PcapFiles
from switchsum_switch.execution.pipeline import EngineName
from switchsum_switch.process.start_limit import start_limit

TAKES: Final = ("runs", "public")
REPEATS: Final[dict[str, int]] = {"native": 50, "interpreter": 1, "bmv2": 5}
"""How often the frames stand in the file of each switch: packets for a second or so."""
BMV2_RUNS: Final = 2
"""A run takes ten seconds, most of it its start."""
INTERPRETED: Final = 1_000
"""Frames that the interpreter gets."""
STALLED_S: Final = 1.0
"""BMv2's files are complete when they have not grown for so long; it writes them in pieces."""
READ_BYTES: Final = 4096
"""What BMv2 reads of a file at once."""
ENGINES: Final[tuple[EngineName, ...]] = ("native", "interpreter")


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder, in memory if there is one."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-", dir=place) as folder:
        yield Path(folder)


def own_rate(program: Program, engine: EngineName, runs: int) -> Samples:
    """Return packets a second of our switch."""
    pipeline = program.load(engine)
    frames = program.frames(random.Random(3))[: INTERPRETED if engine == "interpreter" else None]
    with scratch() as folder:
        repeats = REPEATS[engine]
        write_pcap(folder / "in", frames, repeats)

        def measure() -> float:
            started = time.perf_counter()
            run_files(pipeline, ENTERS, folder / "in", folder / "out", PORTS)
            return len(frames) * repeats / (time.perf_counter() - started)

        if engine == "native":
            measure()  # the kernels that read and write files are compiled
        return Samples.of(measure, runs)


def bmv2_rate(program: Program, runs: int) -> Samples:
    """Return packets a second of real BMv2."""
    frames = program.frames(random.Random(3))
    expected = _bytes_out(program, frames) * REPEATS["bmv2"]
    return Samples.of(lambda: _bmv2_run(program, frames, expected), runs)


def _bmv2_run(program: Program, frames: list[bytes], expected: int) -> float:
    """Run a file through BMv2; return packets a second, from its first read to its last write.

    `expected` is how many bytes it will have written.
    """
    with scratch() as folder:
        for port in range(1, PORTS + 1):
            write_pcap(folder / f"{port}_in.pcap", frames if port == ENTERS else [], REPEATS["bmv2"])
        files = PcapFiles(folder, tuple(range(1, PORTS + 1)), round(start_limit(program.fill_s)))
        with SimpleSwitch(program.text, files=files) as bmv2:
            pid = bmv2.child.process.pid
            before = _read_bytes(pid)
            bmv2.lengthen_queues(len(frames) * REPEATS["bmv2"])
            program.fill(bmv2)
            paths = [folder / f"{port}_out.pcap" for port in range(1, PORTS + 1)]
            started = _begins_to_read(program, pid, before)
            head = PORTS * FILE_HEAD.size
            last = (started, head)
            while last[1] < expected + head:
                now, size = time.perf_counter(), sum(path.stat().st_size for path in paths)
                if size > last[1]:
                    last = now, size
                elif now - last[0] > STALLED_S:
                    break
                time.sleep(0.002)
    # Its last bytes stay in a buffer until it ends; a share of the traffic shall not be missing without being seen.
    share = (last[1] - head) / expected
    if share < 0.98:
        raise RuntimeError(f"BMv2 has written {last[1]} bytes of {expected}")
    return len(frames) * REPEATS["bmv2"] * share / (last[0] - started)


def _read_bytes(pid: int) -> int:
    """Return how much a process has read of files."""
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def _begins_to_read(program: Program, pid: int, before: int) -> float:
    """Wait until a process that had read so many bytes reads its files; return when that was.

    Frames that leave tell it too late: they may come in a burst after all have entered.
    """
    if _read_bytes(pid) - before >= 2 * READ_BYTES:
        raise RuntimeError(f"BMv2 read its files before it had its entries, for which it waits {program.fill_s} s")
    while _read_bytes(pid) - before < 2 * READ_BYTES:
        time.sleep(0.001)
    return time.perf_counter()


def _bytes_out(program: Program, frames: list[bytes]) -> int:
    """Return the bytes of the records that leave, as our switch has them."""
    pipeline = program.load("native")
    left = [len(made) for one in frames for _, made in pipeline.process(ENTERS, one)]
    return sum(left) + RECORD_HEAD.size * len(left)


def run(choice: Choice) -> list[Record]:
    """Measure every program."""
    with_bmv2 = shutil.which("simple_switch_grpc") is not None
    records, allowed = [], 0.0
    for program in (FORWARD, *PROGRAMS, *public_programs(choice.public)):
        bmv2_runs = min(choice.runs, BMV2_RUNS)
        runs_of_each = f"runs: native {choice.runs}, interpreter 1, BMv2 {bmv2_runs}"
        conditions = f"{program.what}, frames of {FRAME_BYTES} bytes, pcap files to pcap files, {runs_of_each}"
        conditions += f"; {build()}" if with_bmv2 else ""
        bmv2 = bmv2_rate(program, bmv2_runs) if with_bmv2 else None
        for engine in ENGINES:
            runs = choice.runs if engine == "native" else 1
            ours = own_rate(program, engine, runs)
            alone = record(f"programs.{program.name}.{engine}", ours, "packets/s", conditions)
            if engine == "native":
                allowed = allowed or ours.median
                alone.more["of forwarding alone"] = ours.median / allowed
            records.append(alone if bmv2 is None else beside(alone, "bmv2", bmv2))
    return records
