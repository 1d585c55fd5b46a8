"""`connect`: from an address and a rank to a communicator."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
import weakref
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Final, TypeVar

from switchsum_protocol.clients.starting import ANSWER_S
from switchsum_protocol.errors import SwitchLost, TransportError, UsageError, VersionMismatch
from switchsum_protocol.frame import FRAME_BYTES, LANE_BUILDS, padding_bytes, payload_bytes
from switchsum_protocol.member_rpc import MOST_IN_FLIGHT, ReadyReply
from switchsum_switch.process.start_limit import start_limit
from switchsum_switch.wires.headers import format_ip

from .api.communicator import Communicator
from .api.interrupts import defer_interrupts
from .api.join import CALL_S, RETRY_S, SWITCH_TIMEOUT_S, Membership, Patience
from .engine.engine import Engine, EngineConfig
from .links.base import Transport
from .links.warm import warm_up
from .links.worker_link import WorkerLink, worker_link

if TYPE_CHECKING:
    from switchsum_protocol.reports import WorkerReport
    from switchsum_switch.process.trace import Trace

    from .api.report import Reporter

_log: Final = logging.getLogger("switchsum.host.connect")

DEFAULT_SEED: Final = 0
"""The same for all: a program that is run again gets the same bits unless it wants others."""

LEAST_ROWS: Final = 16
"""Slots that a link has rows for also where fewer are in flight: answers to repeats wait there, too."""

VIRTUAL: Final = "virtual:"
"""The name of a link to a simulation begins with it (`links/virtual.py`); the path of its Unix socket follows."""

_LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun, switchsum run
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpirun of Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # mpirun of MPICH and Intel MPI, srun --mpi=pmi2
    ("SLURM_PROCID", "SLURM_NTASKS"),  # srun
)
"""Variables in which launchers put rank and size. The first pair that is set holds."""

Value = TypeVar("Value", str, int)


def connect(
    *,
    controller: str | None = None,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    link: str | None = None,
    timeout_s: float | None = None,
    switch_timeout_s: float | None = None,
    checksum: bool | None = None,
    seed: int | None = None,
    cancelled: threading.Event | None = None,
) -> Communicator:
    """Join a job, and return this rank's communicator once every rank has joined.

    A program that `switchsum run`, torchrun, mpirun or srun starts needs few arguments or none.  Controller, job, rank,
    world size and link that are not given come from the environment, where `switchsum run` sets them all.

    Args:
        controller: Address of the controller, `host:port` or `unix:path`.  Else SWITCHSUM_CONTROLLER, else where this
            user's controller listens.
        job: Name of the job.  Else SWITCHSUM_JOB.
        rank: This rank, 0 to `world_size` - 1.  Else RANK, or what mpirun and srun set.
        world_size: Number of ranks.  Else WORLD_SIZE, or what mpirun and srun set.
        link: How to reach the switch: shm:NAME, udp:HOST, packet:INTERFACE or scapy:INTERFACE.  Several links have
            their rates in Mbit/s: packet:eth0@200,packet:eth1@100.  Else SWITCHSUM_LINK.
        timeout_s: Seconds to wait for other ranks, here and in collectives.  None: the job's own, which is half an hour
            unless the job was created with another one.
        switch_timeout_s: Seconds to wait for a switch that answers nothing, at most `timeout_s`.  None: 20.
        checksum: Put a UDP checksum over header and lanes into contributions, which the switch verifies: for links that
            do not check whole frames themselves.  None: SWITCHSUM_CHECKSUM, which is 0 or 1, else no.
        seed: An integer that rounding at random starts from, in lanes of 16 and 8 bits.  The same seed gives the same
            bits in every run.  None: SWITCHSUM_SEED, else 0.
        cancelled: An event with which another thread ends the waiting for other ranks.

    Returns:
        A `Communicator`.  Use it in a `with` block, which leaves the job at its end.

    Raises:
        ControllerUnreachable: No controller answers at the address.
        UnknownJob: The controller has no job of that name.
        RankTaken: Another live process has this rank, or the job has no such rank.
        WorldSizeMismatch: The job has another number of ranks.
        VersionMismatch: Controller, switch and this process are of different versions.
        NoCapacity: The switch has too little room for the job.
        NotAdmitted: The controller has come back with another switch.
        TransportError: The link cannot be opened.
        CollectiveTimeout: Ranks did not join in time; `missing` says which.
        SwitchLost: The switch does not answer.
        UsageError: An argument is missing or wrong, or `cancelled` was set.

    Example:
        In train.py, started by `switchsum run -n 4 -- python train.py`:

        >>> import numpy as np
        >>> import switchsum
        >>> with switchsum.connect() as comm:
        ...     comm.allreduce(np.full(3, comm.rank + 1, np.float32))
        array([1., 1., 1.], dtype=float32)

    """
    rank_variable, size_variable = launcher_variables()
    _refuse_missing(
        ("job", job, "SWITCHSUM_JOB"),
        ("rank", rank, rank_variable),
        ("world_size", world_size, size_variable),
        ("link", link, "SWITCHSUM_LINK"),
    )
    settings = _Settings(
        controller=controller or os.environ.get("SWITCHSUM_CONTROLLER") or _own_controller(),
        job=_setting("job", job, "SWITCHSUM_JOB", str),
        rank=_setting("rank", rank, rank_variable, int),
        world_size=_setting("world_size", world_size, size_variable, int),
        link=_setting("link", link, "SWITCHSUM_LINK", str),
        timeout_s=timeout_s,
        switch_timeout_s=switch_timeout_s,
        checksum=_checksum() if checksum is None else checksum,
        seed=_seed(seed),
        cancelled=cancelled,
    )
    settings.check()
    if os.environ.get("SWITCHSUM_DEBUG"):
        from switchsum_switch.process.logs import log_as  # noqa: PLC0415

        log_as("worker", rank=settings.rank, job=settings.job)
    return _join_simulation(settings) if settings.link.startswith(VIRTUAL) else _connect_as(settings)


RANKS_MAY_DIFFER: Final = {
    "controller": "it may have several addresses",
    "rank": "it is each rank's own",
    "link": "each rank has its own way to the switch",
    "timeout_s": "each rank may have its own patience: who gives up first says so to the others",
    "switch_timeout_s": "each rank may have its own patience",
    "checksum": "the switch takes frames with a checksum and without",
    "seed": "each rank rounds by itself, and its values are right in the mean",
    "cancelled": "it is an event of this process",
}
"""Arguments of `connect` that ranks need not have alike, and why; the controller compares the others."""


def launcher_variables() -> tuple[str, str]:
    """Return the names of the variables in which the launcher, if there is one, has put rank and world size."""
    return next((pair for pair in _LAUNCHERS if os.environ.get(pair[0])), _LAUNCHERS[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """`connect`'s arguments, with what the environment has in the place of those not given."""

    controller: str
    job: str
    rank: int
    world_size: int
    link: str
    timeout_s: float | None
    switch_timeout_s: float | None
    checksum: bool
    seed: int
    cancelled: threading.Event | None = None

    def check(self) -> None:
        """Refuse what no job can have; raises UsageError."""
        _check_whole("rank", self.rank, least=0)
        _check_whole("world_size", self.world_size, least=1)
        _check_seconds("timeout_s", self.timeout_s)
        _check_seconds("switch_timeout_s", self.switch_timeout_s)
        if not self.link.startswith(VIRTUAL):
            worker_link(self.link)


def _own_controller() -> str:
    """Return where this user's controller listens; raises LocalError."""
    from switchsum_switch.process.runtime_directory import controller_address  # noqa: PLC0415 - launchers say where it is

    return controller_address()


def _connect_as(settings: _Settings) -> Communicator:
    """Join a job: ask the controller, open the link, wait for the other members; raises what `connect` does."""
    rank, world_size, link = settings.rank, settings.world_size, worker_link(settings.link)
    limit_s = math.inf if settings.timeout_s is None else settings.timeout_s
    answer_s = min(start_limit(ANSWER_S), limit_s)
    wanted_s = SWITCH_TIMEOUT_S if settings.switch_timeout_s is None else settings.switch_timeout_s
    warm_up(settings.link)  # before it joins: a member that compiles is late for everything
    membership = Membership(
        settings.controller,
        job=settings.job,
        rank=rank,
        world_size=world_size,
        patience=Patience(call_s=min(CALL_S, answer_s), answer_s=answer_s, switch_s=min(wanted_s, limit_s)),
        **link.most_in_flight(world_size),
        rates=link.rates,
    )
    membership.cancelled = settings.cancelled
    transport = None
    try:
        timeout_s = membership.reply.timeout_s if settings.timeout_s is None else settings.timeout_s
        settings = replace(settings, timeout_s=timeout_s, switch_timeout_s=min(wanted_s, timeout_s))
        transport = _open_with_switch(link, membership, min(wanted_s, timeout_s))
        ready = membership.await_admission(link.transports, timeout_s)
        link.take_slots(ready)
        engine = _make_engine(membership, ready, transport, settings, timeout_s)
    except BaseException as error:
        if transport is not None:
            transport.close()
        membership.leave(error=error)
        raise
    communicator = Communicator(
        link.drive(engine, membership, _trace(rank)),
        membership,
        rank=rank,
        world_size=world_size,
        about=f"job {settings.job!r}, switch {format_ip(membership.switch.ip)}, link {settings.link}",
        connect_again=lambda **others: _connect_as(replace(settings, **others)),
    )
    _log.info("connected over %s as rank %d of %d, epoch %d", settings.link, rank, world_size, membership.reply.epoch)
    defer_interrupts(communicator.queue)
    membership.report = partial(_report, weakref.ref(communicator), weakref.ref(engine), settings.link, [])
    return communicator


def _report(
    of: weakref.ref[Communicator], on: weakref.ref[Engine], link: str, made: list[Reporter], job: str, nonce: int
) -> WorkerReport | None:
    """Return a communicator's report; the code for that is loaded for the first one, which no start waits for."""
    from .api.report import Reporter  # noqa: PLC0415

    communicator, engine = of(), on()
    if not made and communicator is not None and engine is not None:
        made.append(Reporter(communicator, engine, host=socket.gethostname(), link=link))
    return made[0](job, nonce) if made else None


def _join_simulation(settings: _Settings) -> Communicator:
    """Join a job in virtual time, with the simulation's seed and time-outs; raises what `virtual.join` does."""
    from .links import virtual  # noqa: PLC0415 - few jobs are simulated

    driver, membership = virtual.join(settings.link.removeprefix(VIRTUAL), settings.rank, settings.world_size)
    communicator = Communicator(
        driver,
        membership,
        rank=settings.rank,
        world_size=settings.world_size,
        about=f"job {settings.job!r}, in virtual time",
        connect_again=lambda **others: _join_simulation(replace(settings, **others)),
    )
    defer_interrupts(communicator.queue)
    return communicator


def _open_with_switch(link: WorkerLink, membership: Membership, switch_timeout_s: float) -> Transport:
    """Open the link; a switch that is away is given time to come back.  Raises what `_open` does, or SwitchLost."""
    end = time.monotonic() + switch_timeout_s
    while True:
        try:
            return _open(link, membership)
        except TransportError as error:
            # The controller may not have noticed yet that the switch has ended, or the switch be there again by now.
            time.sleep(RETRY_S)
            if not (lost := membership.awaits_switch()):
                return _open(link, membership)
            if time.monotonic() >= end:
                raise SwitchLost(f"{lost}, for {switch_timeout_s:g} s") from error


def _open(link: WorkerLink, membership: Membership) -> Transport:
    """Open the link for frames of the switch's build; raises VersionMismatch or TransportError."""
    lanes_per_frame = membership.reply.lanes_per_frame
    if lanes_per_frame not in LANE_BUILDS:
        raise VersionMismatch(
            f"the switch adds frames of {lanes_per_frame} lanes, but this worker knows only "
            f"{LANE_BUILDS}: install one version"
        )
    frame_bytes = FRAME_BYTES + payload_bytes(lanes_per_frame)
    return link.open(
        rows=2 * max(LEAST_ROWS, membership.most_in_flight(frame_bytes)),
        frame_bytes=frame_bytes,
        switch=membership.switch,
        together=padding_bytes(max(LANE_BUILDS), membership.reply.growth_bytes) == 0,  # BMv2 cuts no super-frames
    )


def _trace(rank: int) -> Trace | None:
    """Return a trace if the environment asks for one."""
    if not os.environ.get("SWITCHSUM_PROFILE"):
        return None
    from switchsum_switch.process.trace import Trace  # noqa: PLC0415

    return Trace.wanted(f"rank {rank}")


def _make_engine(
    membership: Membership, ready: ReadyReply, transport: Transport, settings: _Settings, timeout_s: float
) -> Engine:
    """Return an engine for the slots that all members have been given."""
    reply = membership.reply  # of the controller that has admitted it, which may be another one
    window = min(ready.window_slots, ready.slot_count, MOST_IN_FLIGHT)
    config = EngineConfig(
        rank=membership.rank,
        world_size=settings.world_size,
        job=reply.job_number,
        epoch=reply.epoch,
        lanes_per_frame=reply.lanes_per_frame,
        cookie=reply.cookie,
        switch=membership.switch,
        own=transport.address,
        first_slot=ready.first_slot,
        shares_slots=ready.shares_slots,
        first_shared_slot=ready.first_shared_slot,
        window_slots=window,
        first_number=ready.first_number,
        growth_bytes=reply.growth_bytes,
        timeout_s=timeout_s,
        switch_timeout_s=settings.switch_timeout_s,
        checksum=settings.checksum,
        seed=settings.seed,
        places=tuple(ready.places),
        trees=tuple(ready.trees),
    )
    if settings.link.startswith("shm:") and not config.in_tree:
        # Nothing queues on shared memory, and no queue drops: the ring holds what the controller allows.  In a tree
        # other links follow, with queues of their own.
        config = replace(config, first_window=window, loss_cut=0.0)
    return Engine(config, transport.tx_frames, transport.lead, pushed=transport.pushed)


def _check_whole(name: str, number: object, *, least: int | None = None) -> None:
    """Refuse ranks and sizes that no job has, and seeds that are no integers; raises UsageError."""
    if isinstance(number, bool) or not isinstance(number, Integral) or (least is not None and int(number) < least):
        raise UsageError(f"{name} must be a whole number{f' from {least} on' * (least is not None)}, not {number!r}")


def _seed(seed: int | None) -> int:
    """Return the seed that was given, here or in the environment, or the default; raises UsageError."""
    if seed is None:
        seed = _setting("seed", None, "SWITCHSUM_SEED", int) if os.environ.get("SWITCHSUM_SEED") else DEFAULT_SEED
    _check_whole("seed", seed)
    return seed


def _checksum() -> bool:
    """Return whether the environment asks for checksums; raises UsageError."""
    text = os.environ.get("SWITCHSUM_CHECKSUM", "")
    if text not in ("", "0", "1"):
        raise UsageError(f"SWITCHSUM_CHECKSUM must be 0 or 1, not {text!r}")
    return text == "1"


def _check_seconds(name: str, seconds: object) -> None:
    """Refuse what is no time-out; raises UsageError."""
    if seconds is not None and not (isinstance(seconds, Real) and float(seconds) > 0):
        raise UsageError(f"{name} must be a positive number of seconds, not {seconds!r}")


def _refuse_missing(*settings: tuple[str, object, str]) -> None:
    """Refuse settings that neither an argument nor a variable of the environment gives; raises UsageError."""
    missing = {name: variable for name, value, variable in settings if value is None and not os.environ.get(variable)}
    if missing:
        *others, last = missing
        what = f"this process has no {', '.join(others)}{' and ' * bool(others)}{last}"
        if len(missing) == len(settings):
            what = "this process belongs to no job"
        raise UsageError(
            f"{what}: start the script with "
            f"`switchsum run -n 4 -- python SCRIPT`, which sets {', '.join(missing.values())}, or pass "
            f"connect({', '.join(f'{name}=...' for name in missing)})"
        )


def _setting(name: str, value: Value | None, variable: str, kind: type[Value]) -> Value:
    """Return an argument, or what the environment has in its place; raises UsageError."""
    if value is not None:
        return value
    text = os.environ.get(variable, "")
    try:
        return kind(text)
    except ValueError:
        raise UsageError(f"{variable} must be of type {kind.__name__}, not {text!r}") from None
