"""One packet over a link, and the answers to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from switchsum.packets.craft import craft
from switchsum_host.api.join import Membership
from switchsum_host.links.base import Transport
from switchsum_host.links.names import open_transport
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_switch.wires.headers import Address

ROWS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketSource:
    """Where packets are sent from, and what they say unless told otherwise."""

    transport: Transport
    switch: Address
    lanes_per_frame: int
    """32-bit words in a payload."""
    fields: dict[str, int | str]
    """Header fields of a member: its job, epoch and rank, the job's first slot and the slots' first number."""


@contextmanager
def anybody(link: str, switch: Address, lanes_per_frame: int) -> Iterator[PacketSource]:
    """Open a link without asking anybody: the switch will know nothing of the sender."""
    transport = open_transport(link, rows=ROWS, frame_bytes=FRAME_BYTES + payload_bytes(lanes_per_frame), switch=switch)
    try:
        yield PacketSource(transport=transport, switch=switch, lanes_per_frame=lanes_per_frame, fields={})
    finally:
        transport.close()


@contextmanager
def member(link: str, controller: str, job: str, rank: int) -> Iterator[PacketSource]:
    """Join a job as a rank, and leave it in the end; waits for the other ranks."""
    with ControllerClient(controller) as client:
        workers = client.show_job(rpc.JobRequest(job=job)).workers
    membership = Membership(controller, job=job, rank=rank, world_size=workers)
    try:
        with anybody(link, membership.switch, membership.reply.lanes_per_frame) as place:
            ready = membership.await_admission([place.transport], membership.reply.timeout_s)
            reply = membership.reply  # of the controller that has admitted it, which may be another one
            known: dict[str, int | str] = {
                "job": reply.job_number,
                "epoch": reply.epoch,
                "cookie": reply.cookie,
                "rank": rank,
                "slot": ready.first_slot,
                "number": ready.first_number,
            }
            yield replace(place, fields=known)
    finally:
        membership.leave()


def send(place: PacketSource, fields: dict[str, int | str], values: list[int] | None) -> Packet:
    """Send one packet; return it as it went out."""
    packet = craft(
        place.transport.address, place.switch, place.fields | fields, values, lanes_per_frame=place.lanes_per_frame
    )
    frame = bytes(packet)
    transport = place.transport
    transport.tx_frames[0, transport.lead : transport.lead + len(frame)] = np.frombuffer(frame, np.uint8)
    transport.send(np.zeros(1, np.int32), np.array([len(frame)], np.int32))
    return packet


def answers(place: PacketSource, wait_s: float) -> Iterator[Packet]:
    """Yield what comes from the switch, until nothing has come for `wait_s`."""
    transport = place.transport
    while transport.wait(wait_s):
        received = transport.receive()
        for row, length in zip(received.rows.tolist(), received.lengths.tolist(), strict=True):
            yield Ether(received.frames[row, transport.lead : transport.lead + length].tobytes())
        transport.release()
