"""Find out whether the job can be joined from here, then become its ranks' command, or start one for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from switchsum.agent.options import AgentOptions
from switchsum_host.links.names import open_transport
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import LocalError, UnknownJob, UsageError
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_switch.process.children import Children
from switchsum_switch.wires.headers import Address

CALL_S = 5.0
NOBODY = Address(mac=0, ip=0, port=0)


def examine(options: AgentOptions) -> rpc.JobInfo:
    """Ask the controller about the job and try the link; raises SwitchsumError with what is wrong."""
    with ControllerClient(options.controller, timeout_s=CALL_S) as client:
        lanes_per_frame = client.info().lanes_per_frame
        try:
            job = client.show_job(rpc.JobRequest(job=options.job))
        except UnknownJob:
            command = f"switchsum job create {options.job} --workers N --controller {options.controller}"
            raise UnknownJob(f"there is no job {options.job!r}: create it with `{command}`") from None
    if outside := [rank for rank in options.ranks if rank >= job.workers]:
        raise UsageError(f"job {job.job!r} has ranks 0 to {job.workers - 1}, not {outside[0]}")
    if not options.link.startswith("shm:"):  # one of those would be a port of the switch for a moment
        frame_bytes = FRAME_BYTES + payload_bytes(lanes_per_frame)
        open_transport(options.link, rows=1, frame_bytes=frame_bytes, switch=NOBODY).close()
    return job


def environment(options: AgentOptions, rank: int, world_size: int) -> dict[str, str]:
    """Return the environment in which `switchsum.connect()` joins as `rank`."""
    own = {
        **os.environ,
        "SWITCHSUM_CONTROLLER": options.controller,
        "SWITCHSUM_JOB": options.job,
        "SWITCHSUM_LINK": options.link,
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(options.ranks.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(options.ranks)),
    }
    if len(options.ranks) > 1:
        own.setdefault("OMP_NUM_THREADS", "1")  # they share the cores
    own.setdefault("PYTHONUNBUFFERED", "1")
    return own


def run(options: AgentOptions, command: Sequence[str]) -> int:
    """Run `command` as each rank; returns the exit code of the first that failed, or 0.

    A single rank takes this process over, with its terminal and signals.
    """
    job = examine(options)
    if len(options.ranks) == 1:
        become(command, environment(options, options.ranks[0], job.workers))
    return run_each(options, dict.fromkeys(options.ranks, command), job.workers)


def run_each(options: AgentOptions, commands: Mapping[int, Sequence[str]], world_size: int) -> int:
    """Run one command for each rank, together; returns the exit code of the first that failed, or 0."""
    with Children() as children:
        workers = [
            children.start(f"rank {rank}", command, environment=environment(options, rank, world_size), prefix=True)
            for rank, command in commands.items()
        ]
        failed, code = children.wait(workers)
        if failed is not None:
            sys.stderr.write(f"switchsum: {failed.ending(code)}; this machine's others are ended\n")
            return code or 1
    return 0


def become(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Replace this process; raises LocalError where there is no such command."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), dict(environ))
    except OSError as error:
        raise LocalError(f"cannot run {command[0]}: {error.strerror}") from error
