"""The gRPC server that carries the service."""

from __future__ import annotations

from typing import Any, Final

from switchsum_switch.connections import serving, tls
from switchsum_switch.connections.quiet_grpc import grpc
from switchsum_switch.connections.threads import Pool, start_server, stop_server
from switchsum_switch.errors import TransportError
from switchsum_switch.messages.p4runtime import CHANNEL_OPTIONS

from .device import Pipeline
from .service import Service
from .stream import MAX_STREAMS

UNARY_THREADS: Final = 16
"""Threads for all calls but streams, so that open streams cannot keep other calls out."""


class Server:
    """A gRPC server that listens from construction to `close`; usable in a `with` block."""

    def __init__(self, service: Service[Pipeline], address: str, *others: grpc.GenericRpcHandler[Any, Any]) -> None:
        """Listen on `host:port` or `unix:path`; port 0 takes a free one; raises TransportError.

        `others` are served beside P4Runtime.
        """
        self._pool = Pool(MAX_STREAMS + UNARY_THREADS, "p4runtime", service.exhausted)
        self._server = grpc.server(self._pool, options=[*CHANNEL_OPTIONS, *serving.SERVER_OPTIONS])
        self._server.add_generic_rpc_handlers((service.handler(), *others))
        is_path, (host, _, number) = address.startswith("unix:"), address.rpartition(":")
        try:
            port = serving.add_port(self._server, address, tls.P4RUNTIME)
        except RuntimeError as error:
            who = "" if is_path else f": `ss -lntp sport = :{number}` says who does"
            raise TransportError(f"cannot listen on {address}{who}") from error
        if not port:
            raise TransportError(f"cannot listen on {address}")
        self.address = address if is_path else f"{host}:{port}"
        """Address at which it listens, with the actual port."""
        start_server(self._server)

    def close(self, grace_s: float = 0.5) -> None:
        """Take no more calls, end those that still run after `grace_s` seconds, and wait until all threads end."""
        stop_server(self._server, grace_s)
        self._pool.shutdown()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
