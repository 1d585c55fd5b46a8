"""A job of the kit's own on a controller of switchsum, with all its members in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from switchsum_host.api.join import Membership
from switchsum_host.links.names import open_transport
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_switch.notices import waiting_for

from .facts import Facts, MemberFacts, check
from .wires import ROWS, OnWire, TransportWire

SLOTS: Final = 8
JOIN_S: Final = 30.0
TOO_LONG_BYTES: Final = 4
"""The kit's longest frame has a lane too many."""


@contextmanager
def job_on(controller: str, links: Sequence[str], members: int, *, wait_s: float) -> Iterator[tuple[OnWire, Facts]]:
    """Create a job, join it as all its members, and yield the switch and the facts; the job is removed in the end.

    `links` has one for each member, or one for all.  Raises UsageError, TransportError or what joining raises.
    """
    if len(links) not in (1, members):
        raise UsageError(f"{len(links)} links for {members} members: name one for all, or one for each")
    name = f"conform-{os.getpid()}"
    with ExitStack() as opened:
        client = opened.enter_context(ControllerClient(controller))
        client.create_job(rpc.CreateJobRequest(job=name, workers=members, slots=SLOTS, timeout_s=JOIN_S))
        opened.callback(_remove, client, name)
        joined = []
        for rank in range(members):
            joined.append(Membership(controller, job=name, rank=rank, world_size=members))
            opened.callback(joined[-1].leave)
        reply = joined[0].reply
        longest = FRAME_BYTES + payload_bytes(reply.lanes_per_frame) + TOO_LONG_BYTES
        transports = []
        for rank in range(members):
            link = links[rank % len(links)]
            transport = open_transport(link, rows=ROWS, frame_bytes=longest, switch=joined[rank].switch, together=False)
            opened.callback(transport.close)
            transports.append(transport)
        with waiting_for(f"the members of job {name!r} to be admitted"), ThreadPoolExecutor(members) as threads:
            ready = list(threads.map(lambda one, link: one.await_admission([link], JOIN_S), joined, transports))
        if ready[0].trees or ready[0].places:
            raise UsageError("the job lies on several switches: the kit plays one switch")
        facts = check(
            Facts(
                lanes=reply.lanes_per_frame,
                growth_bytes=reply.growth_bytes,
                switch=joined[0].switch,
                job=reply.job_number,
                epoch=reply.epoch,
                first_slot=ready[0].first_slot,
                slot_count=ready[0].slot_count,
                first_number=ready[0].first_number,
                members=tuple(
                    MemberFacts(cookie=one.reply.cookie, address=link.address)
                    for one, link in zip(joined, transports, strict=True)
                ),
            )
        )
        is_raw = not links[0].startswith("udp:")
        wires = [TransportWire(link, is_raw=is_raw) for link in transports]
        yield OnWire(wires, facts, name=links[0], wait_s=wait_s), facts


def _remove(client: ControllerClient, name: str) -> None:
    with suppress(SwitchsumError):  # what the cases have found is worth more than a job that ends by itself
        client.remove_job(rpc.RemoveJobRequest(job=name, force=True))
