"""Cells on real links.  Those that share links, workers and frames share a job, whose processes stay warm."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

from switchsum.launch.link_options import MTU, OptionError, mtu_for
from switchsum.launch.options import RunOptions
from switchsum.launch.wires import BURST_BYTES
from switchsum.planning import runs
from switchsum.planning.sources import read
from switchsum_lab.simulation.conditions import parse_size
from switchsum_lab.sweeps import others, simulated_ranks
from switchsum_lab.sweeps.axes import ALL_TO_ALL, HALVES, OURS, Cell, Impossible
from switchsum_lab.sweeps.outcome import Outcome, left_out_of
from switchsum_lab.sweeps.simulated import lanes_of
from switchsum_lab.sweeps.star import UNLIMITED, UNSHAPED
from switchsum_lab.sweeps.warm_jobs import Session
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_protocol.frame import FLOAT_FORMATS, LANE_BUILDS
from switchsum_protocol.rpc import check_slots
from switchsum_switch.bmv2 import process as bmv2

PEERS: Final = ("gloo", "openmpi")
MOST_RANKS: Final = 64
"""Most ranks of all jobs that are kept warm. The job that was used longest ago ends first."""
TIMEOUT_S: Final = 60.0
"""How long ranks wait for one another."""
_OF_VIRTUAL_LINKS: Final = (
    "uplink_mbit",
    "delay_us",
    "queue",
    "host_queue",
    "bucket",
    "mark",
    "overhead",
    "arrivals",
    "background",
    "fail",
    "late_ranks",
    "late",
    "late_by_us",
    "twice",
    "batch_us",
    "outage",
    "pause",
    "frame_cost",
    "jobs",
    "shared_slots",
    "aggregator_mbit",
    "recording",
    "step",
)
_OF_OUR_SWITCH: Final = ("loss", "topology", "slots", "switch", "fusion", "collective")
_SLOTS: Final = 1024
_AXIS_OF_OPTION: Final = {"rate": "rate_mbit"}
"""Axes whose names are not those of the options of `RunOptions` that they set."""


def check(cell: Cell) -> None:
    """Raise Impossible if a cell cannot run here: before anything is started."""
    default = Cell()
    for name in _OF_VIRTUAL_LINKS:
        value = getattr(cell, name)
        if value == getattr(default, name) or (cell.links == "veth" and _describes_veth(name, value)):
            continue
        like = f"; {_VETH[name]} is what veth has" if cell.links == "veth" and name in _VETH else ""
        raise Impossible(name, f"only virtual links have it, not {cell.links}{like}")
    if cell.protocol not in (OURS, *PEERS):
        _check_other(cell)
    else:
        others.refuse_servers(cell)
        (_check_ours if cell.protocol == OURS else _check_peer)(cell)
    if cell.links == "veth" and (reason := _no_namespaces()):
        raise Impossible("links", reason)


_VETH: Final = {"delay_us": "5us", "overhead": "0", "bucket": "256KiB"}
"""What veth links are like in virtual time: so a sweep of both kinds may say it."""


def _describes_veth(name: str, value: Any) -> bool:
    """Whether a value of virtual links is what veth links have anyway."""
    found = {"delay_us": value == 5.0, "overhead": value == 0}
    return found[name] if name in found else name == "bucket" and parse_size(value) == BURST_BYTES


def _check_ours(cell: Cell) -> None:
    if cell.collective in (*HALVES, ALL_TO_ALL):
        raise Impossible("collective", f"{cell.collective} is simulated only: `links` must be virtual")
    simulated_ranks.check(cell)
    try:
        options = options_of(cell)
        if options.effective_lanes_per_frame not in LANE_BUILDS:
            raise Impossible("lanes", f"a frame has {', '.join(map(str, LANE_BUILDS))} lanes, not {cell.lanes}")
    except OptionError as error:
        raise Impossible(_AXIS_OF_OPTION.get(error.option, error.option), str(error)) from error
    if cell.slots is not None:
        try:
            check_slots(cell.slots, _SLOTS)
        except UsageError as error:
            raise Impossible("slots", str(error)) from error
    if not options.is_embedded:
        _check_bmv2(cell.switch)
    if cell.topology is not None:
        _check_topology(cell.topology, cell.workers, options)


def _check_topology(source: str, workers: int, options: RunOptions) -> None:
    try:
        network = read(source, options.link_mbit)
    except (UsageError, LocalError) as error:
        raise Impossible("topology", str(error)) from error
    try:
        runs.plan(network, workers, options.link_kind)
    except (UsageError, LocalError) as error:
        raise Impossible("workers", str(error)) from error


def _check_peer(cell: Cell) -> None:
    for name in _OF_OUR_SWITCH:
        if getattr(cell, name) != getattr(Cell(), name):
            raise Impossible(name, f"{cell.protocol} has none of it: only {OURS} has")
    if any(part in FLOAT_FORMATS and part != "int32" for part in cell.lanes.split(",")):
        raise Impossible("lanes", f"{cell.protocol} sends float32 only")
    if cell.protocol == "gloo" and importlib.util.find_spec("torch") is None:
        raise Impossible("protocol", f"gloo comes with PyTorch: {sys.executable} -m pip install 'switchsum[torch]'")
    if cell.protocol == "openmpi" and shutil.which("mpirun") is None:
        raise Impossible("protocol", "openmpi needs mpirun: apt install openmpi-bin")


def _check_other(cell: Cell) -> None:
    others.load(cell, (OURS, *PEERS))
    if cell.fusion:
        raise Impossible("fusion", f"{cell.protocol} has it on virtual links only")
    if cell.links != "veth":
        raise Impossible(
            "links", f"{cell.links} links carry only our own frames: {cell.protocol} runs on veth and virtual links"
        )
    if cell.switch not in ("embedded", Cell().switch):
        _check_bmv2(cell.switch)


def _check_bmv2(switch: str) -> None:
    try:
        bmv2.find(switch)
    except LocalError as error:
        raise Impossible("switch", str(error)) from error


@cache
def _no_namespaces() -> str:
    """Return why this machine makes no network namespaces; empty: it does."""
    for tool in ("unshare", "nsenter", "ip", "ethtool", "tc"):
        if shutil.which(tool) is None:
            return f"veth links need {tool}: apt install iproute2 ethtool util-linux"
    done = subprocess.run([*_apart(), "true"], capture_output=True, text=True, check=False)
    return f"this machine refuses network namespaces ({done.stderr.strip()}): run as root" if done.returncode else ""


def _apart() -> list[str]:
    return ["unshare", "--net", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--"]


def options_of(cell: Cell) -> RunOptions:
    """Return the options of `switchsum run` for a cell; raises UsageError."""
    build, _ = lanes_of(cell)
    has_build = any(part.isdigit() for part in cell.lanes.split(","))
    return RunOptions(
        command=["true"],
        workers=cell.workers,
        switch=cell.switch,
        topology=cell.topology,
        links=cell.links,
        lanes=str(build) if has_build or cell.mtu is not None else "auto",
        slots="auto" if cell.slots is None else str(cell.slots),
        rate=None if cell.rate_mbit is None else f"{cell.rate_mbit:g}mbit",
        mtu=cell.mtu,
        timeout_s=TIMEOUT_S,
    )


def build_of(cell: Cell) -> int:
    """Return the lanes of a frame."""
    if cell.protocol == OURS:
        return options_of(cell).effective_lanes_per_frame
    return lanes_of(cell)[0] if cell.protocol in PEERS else others.lanes_of(cell, others.load(cell))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What cells share that run in the same job."""

    protocol: str
    links: str
    workers: int
    topology: str | None
    switch: str
    lanes: int
    slots: int | None
    servers: int | None
    rate_mbit: float | None
    mtu: int | None
    loss: float = 0.0
    """Of other systems' protocols: ours is told while it runs."""

    @classmethod
    def of(cls, cell: Cell) -> Setting:
        """Return the setting of a cell."""
        build = build_of(cell)
        return cls(
            protocol=cell.protocol,
            links=cell.links,
            workers=cell.workers,
            topology=cell.topology,
            switch=cell.switch,
            lanes=build,
            slots=cell.slots,
            servers=cell.servers,
            rate_mbit=cell.rate_mbit,
            mtu=cell.mtu,
            loss=0.0 if cell.protocol in (OURS, *PEERS) else cell.loss,
        )

    def command(self, cell: Cell, path: Path) -> list[str]:
        """Return the command of the job, whose ranks meet at the socket `path`."""
        return self.launch(cell, [sys.executable, "-m", "switchsum_lab.sweeps.rank", self.protocol, str(path)])

    def launch(self, cell: Cell, rank: Sequence[str]) -> list[str]:
        """Return the command of a job whose ranks run a command."""
        if self.protocol == OURS:
            return [*_launch(options_of(cell), self.lanes), "--", *rank]
        if self.protocol not in PEERS:
            return [*self._launch_other(), "--", *rank]
        if self.links != "veth" and self.protocol == "openmpi":
            as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
            return ["mpirun", "--oversubscribe", *as_root, "-n", str(self.workers), *rank]
        star = [sys.executable, "-m", "switchsum_lab.sweeps.star", self.protocol, str(self.workers)]
        if self.links != "veth":
            return [*star, UNLIMITED, str(MTU), *rank]
        rate = UNSHAPED if self.rate_mbit is None else f"{self.rate_mbit:g}mbit"
        return [*_apart(), *star, rate, str(self.mtu or mtu_for(self.lanes)), *rank]

    def _launch_other(self) -> list[str]:
        """Return `switchsum run` with another system's protocol."""
        words = ["run", "--baseline", self.protocol, "-n", self.workers, "--links", "veth", "--switch", self.switch]
        words += ["--lanes", self.lanes, "--timeout", TIMEOUT_S, "--loss", self.loss]
        words += [] if self.slots is None else ["--slots", self.slots]
        words += [] if self.servers is None else ["--servers", self.servers]
        words += [] if self.rate_mbit is None else ["--rate", f"{self.rate_mbit:g}mbit"]
        words += [] if self.mtu is None else ["--mtu", self.mtu]
        return [sys.executable, "-m", "switchsum", *map(str, words)]


def _launch(options: RunOptions, lanes: int) -> list[str]:
    """Return `switchsum run` with these options."""
    words = ["run", "-n", options.workers, "--links", options.links, "--lanes", lanes, "--slots", options.slots]
    words += ["--switch", options.switch, "--timeout", options.timeout_s]
    for name in ("rate", "mtu", "topology"):
        if getattr(options, name) is not None:
            words += [f"--{name}", getattr(options, name)]
    return [sys.executable, "-m", "switchsum", *map(str, words)]


def order_of(cell: Cell, setting: Setting, seed: int) -> str:
    """Return the line that has all ranks of a job run a cell once."""
    order = {
        "cell": {name: value for name, value in cell.record.items() if value != getattr(Cell(), name)},
        "lanes": lanes_of(cell)[1],
        "block": cell.block or (1 if cell.collective == "topk" else setting.lanes),
        "seed": seed,
    }
    return json.dumps(order)


class Jobs:
    """The jobs that are warm."""

    def __init__(self, output: IO[Any] | None = None) -> None:
        """Begin without any; what they print goes to `output`."""
        self._output = output
        self._warm: OrderedDict[Setting, Session] = OrderedDict()
        self._known: set[tuple[Setting, Cell]] = set()
        """Cells that have run in a job that is warm."""
        self.started = 0
        """Jobs that were ever started."""

    def run(self, cell: Cell, seed: int) -> Outcome:
        """Run a cell once, and once before without a figure if it is new to its job; raises LocalError."""
        setting = Setting.of(cell)
        session = self._session(setting, cell)
        order = order_of(cell, setting, seed)
        key = setting, replace(cell, seed=0, loss=0.0)
        try:
            if key not in self._known:
                session.ask(order)
                self._known.add(key)
            said = session.ask(order)
        except subprocess.CalledProcessError as error:
            self._end(setting, failed=True)
            raise LocalError(
                f"the job ended with exit code {error.returncode}: see log.txt beside the results"
            ) from error
        return _outcome(cell, said)

    def _session(self, setting: Setting, cell: Cell) -> Session:
        if setting in self._warm:
            self._warm.move_to_end(setting)
            return self._warm[setting]
        while self._warm and sum(one.workers for one in self._warm) + setting.workers > MOST_RANKS:
            self._end(next(iter(self._warm)))
        self.started += 1
        made = Session(lambda path: setting.command(cell, path), setting.workers, output=self._output)
        self._warm[setting] = made
        return made

    def _end(self, setting: Setting, *, failed: bool = False) -> None:
        self._known = {key for key in self._known if key[0] != setting}
        self._warm.pop(setting).close(failed=failed)

    def close(self, *, failed: bool = False) -> None:
        """End all jobs, at once if the sitting was broken off."""
        while self._warm:
            self._end(next(iter(self._warm)), failed=failed)


def _outcome(cell: Cell, said: Sequence[dict[str, Any]]) -> Outcome:
    right = all(one["right"] for one in said) or None
    if not right and not others.is_inexact(cell):
        raise LocalError(others.WRONG)
    has_counts = all("bytes_sent" in one for one in said)
    has_memory = all("memory_bytes" in one for one in said)
    return Outcome.of(
        max(one["seconds"] for one in said),
        cell.bytes,
        sent_mb=sum(one["bytes_sent"] for one in said) / cell.calls / len(said) / 1e6 if has_counts else None,
        frames=sum(one["frames_sent"] for one in said) // cell.calls if has_counts else None,
        repeats=sum(one["repeats"] for one in said) if has_counts else None,
        cpu_s=sum(one["cpu_s"] for one in said),
        worker_cpu_s=sum(one["worker_cpu_s"] for one in said),
        memory_mb=max(one["memory_bytes"] for one in said) / 1e6 if has_memory else None,
        sum_error=max(one["sum_error"] for one in said),
        left_out=left_out_of([one.get("left_out", 0) for one in said]),
        right=right,
    )
