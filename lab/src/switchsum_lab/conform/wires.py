"""How the kit's frames reach a switch, and how it knows that no answer will come.

A switch answers most frames by silence.  So behind each frame the kit sends a *probe*: a contribution to a slot that is
not the job's, which every switch rejects at once.  Frames of one member keep their order.  So whatever a frame led to
has left the switch before the probe's answer, and probes of the other members show that their answers are through, too.
A switch that rejects nothing is given a little time after each frame instead.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import numpy as np

from switchsum_host.links.base import Transport
from switchsum_protocol.errors import TransportError
from switchsum_protocol.frame import AGGREGATION_PORT, FRAME_BYTES, NO_BLOCK, Header, Kind, payload_bytes
from switchsum_protocol.wire import build_frame, parse_frame
from switchsum_switch.wires.encapsulation import made_up_mac
from switchsum_switch.wires.headers import LOWER_BYTES, Address, format_ip, lower_headers, parse_ip
from switchsum_switch.wires.packetsocket import open_packet_socket

from .facts import Facts
from .play import Answers

ROWS: Final = 64
"""Frames that a link of a worker keeps for sending."""
PROBES: Final = 3
"""Probes without an answer, and the switch has none."""
SETTLE_S: Final = 0.05
"""Seconds that a switch without rejects may take for an answer."""
MOST_BYTES: Final = 1 << 16


class Wire(Protocol):
    """The way of one member to the switch and back."""

    is_raw: bool

    def send(self, frame: bytes) -> None:
        """Send a frame."""

    def receive(self, timeout_s: float) -> Iterable[bytes]:
        """Return the frames that have come, of which the first is awaited."""

    def close(self) -> None:
        """Close it."""


class InProcess:
    """A switch that is a function: `process(port, frame)` returns what leaves it, and rank r is behind port r + 1."""

    is_raw = True

    def __init__(self, process: Callable[[int, bytes], Sequence[tuple[int, bytes]]]) -> None:
        self._process = process

    def exchange(self, frames: Sequence[tuple[int, bytes]]) -> Answers:
        """Let the switch process frames one after another."""
        answers: dict[int, list[bytes]] = {}
        for rank, frame in frames:
            for port, answer in self._process(rank + 1, frame):
                answers.setdefault(port - 1, []).append(answer)
        return answers


class TransportWire:
    """A link as workers have it."""

    def __init__(self, transport: Transport, *, is_raw: bool) -> None:
        self.is_raw = is_raw
        self._transport = transport
        self._row = 0

    def send(self, frame: bytes) -> None:
        """Send a frame from the next row."""
        link, self._row = self._transport, (self._row + 1) % ROWS
        link.tx_frames[self._row, link.lead : link.lead + len(frame)] = np.frombuffer(frame, np.uint8)
        while not link.send(np.array([self._row], np.int32), np.array([len(frame)], np.int32)):
            link.wait(1e-3)

    def receive(self, timeout_s: float) -> list[bytes]:
        """Return copies of what has come."""
        link = self._transport
        if not link.wait(timeout_s):
            return []
        came = link.receive()
        frames = [
            came.frames[row, link.lead : link.lead + length].tobytes()
            for row, length in zip(came.rows.tolist(), came.lengths.tolist(), strict=True)
        ]
        link.release()
        return frames

    def close(self) -> None:
        """Close the link."""
        self._transport.close()


class UdpWire:
    """An ordinary UDP socket from a member's port; what it receives gets made-up lower headers."""

    is_raw = False

    def __init__(self, host: str, port: int, own: Address) -> None:
        """Bind to the member's address, and connect to the switch; raises TransportError."""
        self._name = f"udp:{host}:{port}"
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((format_ip(own.ip), own.port))
            self._socket.connect((host, port))
        except OSError as error:
            self._socket.close()
            raise TransportError(f"{self._name} from {format_ip(own.ip)}:{own.port}: {error.strerror}") from error
        ip = parse_ip(self._socket.getsockname()[0])
        self.address = Address(mac=made_up_mac(ip), ip=ip, port=own.port)
        peer = parse_ip(self._socket.getpeername()[0])
        self.switch = Address(mac=made_up_mac(peer), ip=peer, port=AGGREGATION_PORT)

    def send(self, frame: bytes) -> None:
        """Send what is in the UDP datagram."""
        try:
            self._socket.send(frame[LOWER_BYTES:])
        except ConnectionRefusedError:
            raise TransportError(f"{self._name}: nobody has that UDP port open") from None
        except OSError as error:
            raise TransportError(f"{self._name}: {error.strerror}") from error

    def receive(self, timeout_s: float) -> list[bytes]:
        """Return datagrams with lower headers."""
        frames: list[bytes] = []
        while select.select([self._socket], [], [], 0.0 if frames else timeout_s)[0]:
            try:
                body = self._socket.recv(MOST_BYTES)
            except ConnectionRefusedError:
                raise TransportError(f"{self._name}: nobody has that UDP port open") from None
            frames.append(lower_headers(self.switch, self.address, len(body)) + body)
        return frames

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class PacketWire:
    """A raw socket on an interface, for frames to and from a member's address; needs CAP_NET_RAW."""

    is_raw = True

    def __init__(self, interface: str, own: Address) -> None:
        """Open the interface; raises TransportError."""
        self._interface, self._own = interface, own
        self._socket = open_packet_socket(interface)

    def send(self, frame: bytes) -> None:
        """Send the whole frame."""
        try:
            self._socket.send(frame)
        except OSError as error:
            raise TransportError(f"packet:{self._interface}: {error.strerror}") from error

    def receive(self, timeout_s: float) -> list[bytes]:
        """Return the frames of ours that have come for this member."""
        frames: list[bytes] = []
        deadline = time.monotonic() + timeout_s
        while not frames and select.select([self._socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            while select.select([self._socket], [], [], 0.0)[0]:
                frame = self._socket.recv(MOST_BYTES)
                packet = parse_frame(frame)
                if packet is not None and (packet.destination.ip, packet.destination.port) == (
                    self._own.ip,
                    self._own.port,
                ):
                    frames.append(frame)
        return frames

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class OnWire:
    """A switch behind the wires of its members."""

    def __init__(self, wires: Sequence[Wire], facts: Facts, *, name: str, wait_s: float) -> None:
        """Find out whether the switch answers; raises TransportError where it answers nothing at all."""
        self._wires, self._facts, self._name, self._wait_s = wires, facts, name, wait_s
        self._token = 0
        self._answers: dict[int, list[bytes]] = {}
        self.has_probes = True
        """True: the switch rejects what it should, so that no waiting is needed."""
        if not self._is_through(0):
            self.has_probes = False
            self._check_that_it_answers()

    @property
    def is_raw(self) -> bool:
        """Return whether all wires take whole frames."""
        return all(wire.is_raw for wire in self._wires)

    def exchange(self, frames: Sequence[tuple[int, bytes]]) -> Answers:
        """Send frames, and return what comes until nothing more can come; raises TransportError."""
        self._answers = {}
        for rank, frame in frames:
            self._wires[rank].send(frame)
        if not self.has_probes:
            self._collect(SETTLE_S)
            return self._answers
        senders = dict.fromkeys(rank for rank, _ in frames)
        # A switch may take frames of different ports in any order.  When the last sender is through, an answer to an
        # earlier one may have come behind its probe's.
        rest = [rank for rank in range(len(self._wires)) if rank not in senders or len(senders) > 1]
        for ranks in (senders, rest):
            for rank in ranks:
                if not self._is_through(rank):
                    raise TransportError(
                        f"{self._name} has stopped answering: rank {rank} got nothing to {PROBES} probes"
                    )
        return self._answers

    def _check_that_it_answers(self) -> None:
        """Raise TransportError unless a contribution, or its repeat, has any answer."""
        facts = self._facts
        for _ in range(2):
            for rank, member in enumerate(facts.members):
                header = Header(
                    kind=Kind.CONTRIBUTION,
                    job=facts.job,
                    epoch=facts.epoch,
                    tree=facts.tree,
                    rank=rank,
                    cookie=member.cookie,
                    slot=facts.first_slot,
                    number=facts.first_number,
                    block=NO_BLOCK,
                )
                padding = bytes(max(0, payload_bytes(facts.lanes) - (facts.growth_bytes or payload_bytes(facts.lanes))))
                self._wires[rank].send(build_frame(member.address, facts.switch, header, padding))
        self._collect(self._wait_s)
        if not any(self._answers.values()):
            raise TransportError(
                f"{self._name} answers nothing: neither a contribution to a slot of another job, which it should "
                f"reject, nor a whole round of {len(facts.members)} members; are address, job and cookies right?"
            )
        self._answers = {}

    def _probe(self, rank: int) -> bytes:
        facts, self._token = self._facts, (self._token + 1) & 0xFFFF_FFFF
        member = facts.members[rank]
        header = Header(
            kind=Kind.CONTRIBUTION,
            job=facts.job,
            epoch=facts.epoch,
            tree=facts.tree,
            rank=rank,
            cookie=member.cookie,
            slot=(facts.first_slot + facts.slot_count) & 0xFFFF_FFFF,
            number=0,
            block=NO_BLOCK,
            digest=self._token,
        )
        return build_frame(member.address, facts.switch, header)

    def _is_through(self, rank: int) -> bool:
        """Send a probe and await its answer; keep everything else that comes to this member before."""
        for _ in range(PROBES):
            self._wires[rank].send(self._probe(rank))
            deadline = time.monotonic() + self._wait_s
            while (left_s := deadline - time.monotonic()) > 0:
                if self._note(rank, self._wires[rank].receive(left_s)):
                    return True
        return False

    def _note(self, rank: int, frames: Iterable[bytes]) -> bool:
        """Keep frames that are no answers to probes; tell whether the last probe's was among them."""
        found = False
        for frame in frames:
            header = Header.unpack(frame[LOWER_BYTES:]) if len(frame) >= FRAME_BYTES else None
            is_probes = (
                header is not None
                and header.kind == Kind.REJECT
                and header.block == NO_BLOCK
                and header.slot == (self._facts.first_slot + self._facts.slot_count) & 0xFFFF_FFFF
            )
            if not is_probes:
                self._answers.setdefault(rank, []).append(frame)
            elif header is not None and header.digest == self._token:
                found = True
        return found

    def _collect(self, quiet_s: float) -> None:
        """Take what comes until nothing has come for some time."""
        deadline = time.monotonic() + quiet_s
        while time.monotonic() < deadline:
            for rank, wire in enumerate(self._wires):
                if frames := list(wire.receive(quiet_s / 10 / len(self._wires))):
                    self._note(rank, frames)
                    deadline = time.monotonic() + quiet_s

    def close(self) -> None:
        """Close all wires."""
        for wire in self._wires:
            wire.close()
