"""The seam on which another system's protocol stands beside ours: what its folder holds, and what its hosts are given.

The folder has `host.py`, and its switch: a P4 program, or `switch.py` with a function `switch(world)` that returns a
`DataPlane` or a `TimedPlane` for virtual time.  `host.py` has functions with these names, which lab/docs/protocols.md
shows:

    entries(world)       the entries and groups that a P4 program gets
    peer(world, link)    the host of a worker, a `Peer`
    servers(world)       how many hosts serve the workers; without this function none does
    server(world, link)  what such a host does for ever, as `Steps`

A host is a generator.  It yields the time until which it waits, and gets the next frame, or None when that time has
come.  So the same code runs on real links (`sockets.py`) and in virtual time (`virtual.py`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from switchsum_controller.tables.entries import Entry, Group
from switchsum_lab.simulation.python_switch import Plane
from switchsum_protocol.errors import UsageError
from switchsum_switch.wires.headers import Address

Array = npt.NDArray[np.float32]
Steps = Generator[float | None, bytes | None, None]
"""A host at work: it yields until when it waits for a frame (None: without end), in seconds of `Link.now`."""
BASELINES: Final = Path(__file__).parents[1] / "baselines"
"""Folder of the protocols that come with the laboratory; another one is named by its path."""
SWITCH: Final = Address(mac=0x02_00_00_FF_00_01, ip=0x0A_FF_00_01, port=0)
"""The address of the switch; protocols choose its UDP port."""
UDP_PORT: Final = 21334
"""The UDP port of every host, as in `switchsum run --links veth`."""
HEADERS_BYTES: Final = 42
"""Ethernet, IPv4 and UDP."""
MOST_HOSTS: Final = 253


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a protocol is told of the run: the same on every host, and for the switch's entries."""

    workers: int
    lanes: int
    """Values in a frame."""
    slots: int
    """Frames that a worker may have in flight: what a round trip holds, or what the switch's ports bear."""
    least_timeout_s: float = 50e-6
    """Shortest time-out, in seconds: on real links hosts wait for processors."""
    servers: int = 0
    """Hosts behind the workers that serve them."""
    seed: int = 0
    job: int = 0
    """Number of the job, where several jobs of the same size share a switch."""
    is_lossless: bool = False
    """Whether links lose, repeat and delay nothing, so that a protocol may do without recovery."""
    block: int | None = None
    """Values that are zero together, several of which share a frame. None: a frame's values are one block."""

    @property
    def hosts(self) -> int:
        """Workers and servers of a job: numbered in this order, from 0."""
        return self.workers + self.servers

    def address(self, host: int) -> Address:
        """Return the address of a host of this job."""
        number = self.job * self.hosts + host
        return Address(mac=0x02_00_00_00_01_01 + number, ip=0x0A_00_00_01 + number, port=UDP_PORT)

    def port(self, host: int) -> int:
        """Return the switch's port at which a host of this job is."""
        return self.job * self.hosts + host + 1


class HostLink(Protocol):
    """A host's only link."""

    host: int
    """Number of the host: a worker's is its rank."""

    def send(self, frame: bytes | bytearray | memoryview) -> None:
        """Send a whole Ethernet frame; its memory may be written again at once."""
        ...

    def now(self) -> float:
        """Return the time in seconds: virtual, or of the machine's monotonic clock."""
        ...


class Peer(Protocol):
    """One worker's side of the protocol."""

    def allreduce(self, array: Array) -> Steps:
        """Sum a float32 array over all workers, in place."""
        ...

    def barrier(self) -> Steps:
        """Wait for all workers."""
        ...

    def unasked(self, frame: bytes) -> None:
        """Take a frame that comes while no call is under way."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """Return what it counts; `repeats` are the frames that it has sent again.

        `left_out` are its own contributions that a sum lacks, of a protocol that does not wait for all.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A protocol that was loaded from its folder."""

    name: str
    """Name of the folder."""
    folder: Path
    host: ModuleType

    def world(
        self,
        *,
        workers: int,
        lanes: int,
        slots: int,
        seed: int = 0,
        servers: int | None = None,
        jobs: int = 1,
        block: int | None = None,
    ) -> World:
        """Return the world of a run, or of its first job; raises UsageError for what the protocol does not take.

        Without `servers` there are as many as the protocol's own function says.
        """
        if jobs > 1 and not getattr(self.host, "ANY_JOBS", False):
            raise UsageError(f"{self.name} runs one job on a switch, not {jobs}")
        if block is not None:
            most = int(getattr(self.host, "MOST_BLOCKS", 1))
            if most == 1:
                raise UsageError(f"{self.name} has frames of one block, so that it fuses none")
            if not lanes <= block * most <= lanes * most:
                raise UsageError(f"{self.name} takes blocks of {-(-lanes // most)} to {lanes} values, not {block}")
        world = World(workers=workers, lanes=lanes, slots=slots, seed=seed, block=block)
        usual = int(getattr(self.host, "servers", _no_servers)(world))
        takes_any = getattr(self.host, "ANY_SERVERS", False) and servers != 0
        if servers is not None and servers != usual and not takes_any:
            raise UsageError(f"{self.name} has {usual} servers, not {servers}: leave the number out")
        servers = usual if servers is None else servers
        if workers < 2 or jobs * (workers + servers) > MOST_HOSTS:
            hosts = (f"{jobs} jobs of " if jobs > 1 else "") + f"{workers}"
            hosts += f" workers and {servers} servers" if servers else ""
            raise UsageError(f"{self.name} runs with 2 workers or more, and {MOST_HOSTS} hosts in all, not {hosts}")
        return replace(world, servers=servers)

    def entries(self, world: World) -> list[Entry | Group]:
        """Return what the switch gets."""
        found: Iterable[Entry | Group] = self.host.entries(world)
        return list(found)

    @contextmanager
    def taking(self, world: World) -> Iterator[None]:
        """Raise UsageError in place of the ValueError of an entry that its P4 program cannot hold."""
        try:
            yield
        except ValueError as error:
            raise UsageError(f"{self.name}'s P4 program does not take {world.workers} workers: {error}") from error

    def peer(self, world: World, link: HostLink) -> Peer:
        """Return the host of a worker."""
        made: Peer = self.host.peer(world, link)
        return made

    def server(self, world: World, link: HostLink) -> Steps:
        """Return what a server does."""
        steps: Steps = self.host.server(world, link)
        return steps

    @property
    def lanes(self) -> int:
        """Values in a frame if nothing else is said: `LANES` of host.py."""
        return int(getattr(self.host, "LANES", 256))

    @property
    def levels(self) -> int:
        """How often a frame passes the switch before its answer begins: `LEVELS`, which is 2 where hosts answer."""
        return int(getattr(self.host, "LEVELS", 1))

    @property
    def is_inexact(self) -> bool:
        """Whether its sums may lack contributions, or be rounded roughly: `INEXACT` of host.py."""
        return bool(getattr(self.host, "INEXACT", False))

    @property
    def has_program(self) -> bool:
        """Whether its switch has a P4 program: in its folder, or one of ours, which `PROGRAM` of host.py names."""
        has_own = any(self.folder.glob("program*.json")) or (self.folder / "program.p4").is_file()
        return has_own or hasattr(self.host, "PROGRAM")

    def plane(self, world: World) -> Plane:
        """Return its switch in Python: what `switch(world)` of switch.py returns; raises UsageError."""
        path = self.folder / "switch.py"
        if not path.is_file():
            raise UsageError(f"{self.folder} has no switch: a P4 program, or switch.py for virtual time")
        made: Plane = _function(_module(path), path, "switch")(world)
        return made

    def window(self, lanes: int, fitting: int, servers: int = 0) -> int:
        """Return how many frames a worker has in flight if nobody says.

        That is what a round trip holds, `fitting`, or what the protocol's authors took, if that is more: the values
        in flight that `WINDOW_VALUES` of host.py says.  If `EVEN` says that each frame in flight has one of some
        servers, all of them get as many.
        """
        most = max(fitting, -(-int(getattr(self.host, "WINDOW_VALUES", 0)) // lanes))
        return -(-most // servers) * servers if servers and getattr(self.host, "EVEN", False) else most

    def check_switch(self, world: World, *, is_virtual: bool) -> None:
        """Raise UsageError, or ProgramError with p4c's words, if it has no switch for this world and kind of links."""
        if self.has_program:
            self.program(world.lanes)
        elif is_virtual:
            self.plane(world)
        else:
            raise UsageError(f"{self.name} has no P4 program, which real links need: --virtual-time runs its switch.py")

    def program(self, lanes: int) -> tuple[str, str]:
        """Return BMv2's JSON and the P4Info of the program with so many values in a frame.

        A file for these lanes (`program-32.json`) comes first, then `program.json`, which has `LANES` of them or any
        number.  Where there is neither, or `program.p4` is no longer the one of `program.sha256`, p4c on PATH compiles
        `program.p4` with `-DLANES`.  `PROGRAM` of host.py names a protocol of ours that has the program.  Raises
        UsageError, and ProgramError with p4c's words.
        """
        other = getattr(self.host, "PROGRAM", None)
        folder = self.folder if other is None else BASELINES / other
        own, plain = folder / f"program-{lanes}.json", folder / "program.json"
        suits = lanes == self.lanes or getattr(self.host, "ANY_LANES", False)
        source, noted = folder / "program.p4", folder / "program.sha256"
        has_changed = noted.is_file() and source.is_file() and digest(source) != _text(noted).strip()
        for found in (own, *([plain] if suits else [])):
            if found.is_file() and not has_changed:
                return _text(found), _text(found.with_suffix(".p4info.txtpb"))
        if source.is_file():
            return _compiled(source, digest(source), lanes)
        raise UsageError(f"{folder} has no program for {lanes} values in a frame: {own.name} or program.p4")


def load(directory: str | Path) -> Baseline:
    """Load a protocol from its folder, or by the name of one of ours (`switchml`); raises UsageError."""
    folder = Path(directory)
    if not folder.is_dir() and (BASELINES / folder.name / "host.py").is_file() and len(folder.parts) == 1:
        folder = BASELINES / folder.name
    path = folder / "host.py"
    if not path.is_file():
        ours = ", ".join(sorted(found.parent.name for found in BASELINES.glob("*/host.py")))
        raise UsageError(f"{folder} has no host.py: name the folder of a protocol, or one of {ours}")
    folder = folder.resolve()
    module = _module(folder / "host.py")
    found = Baseline(name=folder.name, folder=folder, host=module)
    needed = "peer", *(["entries"] if found.has_program else []), *(["server"] if hasattr(module, "servers") else [])
    for name in needed:
        _function(module, path, name)
    return found


def _module(path: Path) -> ModuleType:
    """Load a file of a protocol, which may import its neighbours (`from .host import HEADER`); raises UsageError."""
    package = f"switchsum_baseline_{zlib.crc32(bytes(path.parent)):08x}"
    if package not in sys.modules:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(path.parent)]
    name = f"{package}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _function(module: ModuleType, path: Path, name: str) -> Callable[..., Any]:
    """Return a function that a protocol's file must have; raises UsageError."""
    if not callable(found := getattr(module, name, None)):
        raise UsageError(f"{path} has no function {name}: lab/docs/protocols.md shows what it returns")
    return found  # type: ignore[no-any-return]


class Driver:
    """Runs one host's generators, frame by frame; `sockets.py` and `virtual.py` tell it what happens."""

    def __init__(self, unasked: Callable[[bytes], None] = lambda frame: None) -> None:
        self._unasked = unasked
        self._steps: Steps | None = None
        self.until: float | None = None
        """When `tick` has something to do; None: never."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is under way."""
        return self._steps is None

    def begin(self, steps: Steps) -> None:
        """Begin what a host has to do; raises UsageError if it is no generator."""
        if not isinstance(steps, Generator):
            raise UsageError("a host's allreduce, barrier and server are generators: each needs a `yield`")
        self._steps = steps
        self._go_on(None)

    def take(self, frame: bytes) -> None:
        """Give the host a frame."""
        if self._steps is None:
            self._unasked(frame)
        else:
            self._go_on(frame)

    def tick(self, now: float) -> None:
        """Tell the host if the time has come until which it waits."""
        if self.until is not None and now >= self.until:
            self._go_on(None)

    def _go_on(self, frame: bytes | None) -> None:
        assert self._steps is not None
        try:
            self.until = self._steps.send(frame)
        except StopIteration:
            self._steps = self.until = None


def digest(source: Path) -> str:
    """Return the SHA-256 of a P4 program, in hexadecimal: `program.sha256` has that of the compiled one."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


@cache
def _compiled(source: Path, of: str, lanes: int) -> tuple[str, str]:
    """Compile a program, once as long as its digest `of` is the same."""
    from switchsum_switch.program.p4c import compile_p4  # noqa: PLC0415 - most runs compile nothing

    return compile_p4(source, (f"-DLANES={lanes}",))


def _no_servers(world: World) -> int:
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def statistics_of(peer: Any) -> dict[str, int]:
    """Return a peer's own counters as plain numbers."""
    return {str(name): int(value) for name, value in peer.statistics().items()}
