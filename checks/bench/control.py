"""What a control plane waits for: entries over P4Runtime, and switches that start; processor time of the switches.

Each run has a new `switchsum-bmv2`, whose caches are warm.  Entries come in writes of `UPDATES`.  Processor time
depends less than seconds on what else the machine does.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from checks.bench.choice import Choice
from checks.bench.interfaces import UPDATES, Controlled, Writes
from checks.bench.program_cases import PROGRAMS, Program, fill_firewall, fill_router
from checks.bench.records import Record, Samples, record
from switchsum_controller.switches.client import P4RuntimeClient, Pipeline
from switchsum_switch.bmv2.process import await_listening
from switchsum_switch.messages.p4runtime import parse_p4info, v1
from switchsum_switch.process.children import Children

TAKES: Final = ("runs",)
COMMAND: Final = (sys.executable, "-c", "from switchsum_switch.__main__ import main; main()")
ROUTES: Final = 50_000
RULES: Final = 10_000
MASKS: Final = 64
SWITCHES: Final = (1, 20)
"""Switches that start at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What switches took until all of them served P4Runtime."""

    seconds: float
    processor_s: float
    """Of the switch that took most."""
    megabytes: float
    """Likewise: the most memory that it had at a time."""


class Client:
    """Writes entries to a switch, and keeps nothing but how it does that."""

    def __init__(self, client: P4RuntimeClient) -> None:
        self._client = client

    def write(self, updates: Sequence[Any]) -> None:
        """Write updates."""
        self._client.write(updates)

    def set_group(self, group: int, replicas: Sequence[tuple[int, int]]) -> None:
        """Raise NotImplementedError: the programs here have no groups."""
        raise NotImplementedError


class Kept:
    """Keeps the writes of a program's entries, so that they can be parsed alone."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    def write(self, updates: Sequence[Any]) -> None:
        """Keep updates as the message that a switch gets."""
        self.requests.append(v1.WriteRequest(updates=updates).SerializeToString())

    set_group = Client.set_group


@contextmanager
def running(program: Program, count: int) -> Iterator[list[tuple[int, str]]]:
    """Start some switches at once; yield the process id and address of each when all serve P4Runtime."""
    with tempfile.TemporaryDirectory(prefix="switchsum-bench-") as folder, ExitStack() as kept:
        children = Children()
        kept.callback(children.stop)
        path, made = program.folder / f"{program.name}.json", []
        for number in range(count):
            address = f"unix:{folder}/{number}"
            command = [*COMMAND, str(path), "--", "--grpc-server-addr", address]
            made.append((children.start(f"switch {number}", command, quiet=True), address))
        for child, address in made:
            await_listening(child, "switchsum-bmv2", address)
        yield [(child.process.pid, address) for child, address in made]


def processor_s(pid: int) -> float:
    """Return how much processor time a process has used, in all of its threads that still run."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had at a time."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def start(program: Program, count: int) -> Started:
    """Start so many switches at once."""
    began = time.perf_counter()
    with running(program, count) as switches:
        seconds = time.perf_counter() - began
        return Started(
            seconds=seconds,
            processor_s=max(processor_s(pid) for pid, _ in switches),
            megabytes=max(peak_mb(pid) for pid, _ in switches),
        )


def entries(program: Program) -> float:
    """Return the processor time that the entries of a program take in a switch."""
    with running(program, 1) as [(pid, address)]:
        client = P4RuntimeClient(address)
        try:
            client.connect()
            config = Pipeline(p4info=parse_p4info(program.p4info), device_config=program.text, cookie=1)
            client.set_pipeline(config)
            before = processor_s(pid)
            fill(program, Client(client))
            return processor_s(pid) - before
        finally:
            client.close()


def parsing(program: Program) -> float:
    """Return the processor time of parsing the same messages with protobuf, and nothing else."""
    kept = Kept()
    fill(program, kept)
    before = time.process_time()
    for request in kept.requests:
        v1.WriteRequest.FromString(request)
    return time.process_time() - before


def fill(program: Program, target: Writes) -> None:
    """Write the entries of a program."""
    controlled = Controlled(target, program.p4info)
    program.fill(controlled)
    controlled.flush()


def run(choice: Choice) -> list[Record]:
    """Measure both tables, and starts."""
    router, firewall = PROGRAMS[:2]
    cases = {
        f"control.lpm.{ROUTES}": replace(router, fill=partial(fill_router, count=ROUTES)),
        f"control.ternary.{RULES}": replace(firewall, fill=partial(fill_firewall, count=RULES, masks=MASKS)),
    }
    what = (f"{ROUTES:,} lpm entries", f"{RULES:,} ternary entries of {MASKS} masks, five key fields")
    records = []
    for (name, program), text in zip(cases.items(), what, strict=True):
        conditions = f"{text}, {UPDATES} in a write, processor time of the switch, {choice.runs} runs"
        made = record(name, Samples.of(partial(entries, program), choice.runs), "s", conditions)
        made.more["parsing alone"] = parsing(program)
        records.append(made)
    start(router, 1)  # its native code is in the cache from here on
    for count in SWITCHES:
        started = [start(router, count) for _ in range(choice.runs)]
        conditions = f"{count} at once, warm caches, processor time of the one that took most, {choice.runs} runs"
        made = record(f"control.start.{count}", Samples(values=[one.processor_s for one in started]), "s", conditions)
        made.more["until all serve, s"] = Samples(values=[one.seconds for one in started]).median
        made.more["peak, MB"] = max(one.megabytes for one in started)
        records.append(made)
    return records
