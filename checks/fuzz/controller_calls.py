"""Calls of the controller's gRPC methods: JSON of each message, damaged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any, Final, get_origin, get_type_hints

import grpc

from checks.fuzz.choices import Choices
from checks.fuzz.damage import damaged, scratch_folder
from switchsum.cli.controller import load_program
from switchsum_controller.service.config import Config
from switchsum_controller.service.controller import Controller
from switchsum_controller.service.server import Service
from switchsum_protocol import member_rpc, rpc
from switchsum_switch.messages import codec
from switchsum_switch.wires.headers import Address

MOST_TEXT: Final = 1000
ANSWER_S: Final = 20.0
NEVER: Final = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)
"""What a call never ends with: a mistake of ours, or no answer."""


class Target:
    """Calls a controller whose switch is away: it reads what is said, and refuses."""

    def __init__(self) -> None:
        self._folder = scratch_folder()
        address = Address(mac=0x02_00_00_00_00_FE, ip=0x0A00_00FE, port=21333)
        nowhere = f"unix:{self._folder}/switch"
        controller = Controller(Config(program=load_program(256), switch_address=nowhere, address=address))
        self._service = Service(controller, f"unix:{self._folder}/controller")
        self._channel = grpc.insecure_channel(self._service.address)

    def run(self, data: bytes) -> None:
        """Make one call."""
        choices = Choices(data)
        name = choices.pick(list(rpc.METHODS))
        request = damaged(codec.encode(made(rpc.METHODS[name][0])), choices)
        call = self._channel.unary_unary(member_rpc.path(name), None, None)
        code, details = grpc.StatusCode.OK, ""
        try:
            call(request, timeout=ANSWER_S)
        except grpc.RpcError as error:
            code, details = error.code(), error.details() or ""
        assert code not in NEVER, details
        assert len(details) < MOST_TEXT


def made(kind: Any) -> Any:
    """Return a message with small values in all fields that have no default."""
    hints = get_type_hints(kind)
    plain: dict[Any, Any] = {str: "a", int: 1, float: 0.5, bool: True}
    needed = [one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING]
    return kind(**{name: [] if get_origin(hints[name]) is list else plain.get(hints[name], 0) for name in needed})


def seeds() -> Iterator[bytes]:
    """Return inputs that damage each method's message."""
    for number in range(len(rpc.METHODS)):
        for place in (3, 9, 12):
            yield bytes([number, 1, 0, place, 4, 0, place, 0, place, 9, 1, 3])
