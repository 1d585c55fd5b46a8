"""The web server: a thread beside the controller, which never waits for it."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, Protocol

from switchsum.view.facts import Source
from switchsum.web.slot_packets import Samples, SlotPackets
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.connections import threads

MOST_CONNECTIONS: Final = 300
"""Connections at a time, silent ones too; what comes beyond gets 503."""
STOP_S: Final = 3.0
PACKAGES: Final = ("prometheus_client", "starlette", "uvicorn")
"""Packages of the extra `web`."""
_log = logging.getLogger(__name__)


def listen(text: str) -> socket.socket:
    """Return a socket that listens where --web says, HOST:PORT; raises UsageError or LocalError."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (":" in host and host[0] != "["):
        raise UsageError(f"--web takes HOST:PORT or [IPv6]:PORT with a port of 0 to 65535, not {text!r}")
    try:
        [(family, kind, _, _, place), *_] = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        bound = socket.socket(family, kind)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen(128)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        remedy = "port 0 takes any that is free" if error.errno == errno.EADDRINUSE else "another address may do"
        raise LocalError(f"cannot serve --web {text}: {error.strerror}; {remedy}") from error
    return bound


def check(at: str) -> None:
    """Refuse what `WebServer` would, before there is anything to show; raises UsageError or LocalError."""
    listen(at).close()
    for package in PACKAGES:
        if find_spec(package) is None:
            raise UsageError(f"--web needs {package}: pip install 'switchsum[web]'")


class WebSource(Source, Samples, Protocol):
    """A controller of which the page shows everything."""


class WebServer:
    """Serves the page and the metrics of a source until it is stopped."""

    def __init__(self, source: WebSource, at: str, exhausted: Callable[[Exception], object]) -> None:
        """Serve at HOST:PORT; raises UsageError or LocalError.  `exhausted` is called when no thread can be started."""
        try:
            import uvicorn  # noqa: PLC0415

            from switchsum.web.app import application  # noqa: PLC0415
            from switchsum.web.looks import Looks  # noqa: PLC0415
            from switchsum.web.requests import TimedRequests  # noqa: PLC0415
        except ImportError as error:
            raise UsageError(f"--web needs {error.name}: pip install 'switchsum[web]'") from error
        bound = listen(at)
        host, port = at.rpartition(":")[0], bound.getsockname()[1]
        self.url = f"http://{host}:{port}/"
        """Address of the page."""
        self._looks = Looks(source)
        config = uvicorn.Config(
            application(self._looks, SlotPackets(source), host.strip("[]")),
            http=TimedRequests,
            lifespan="off",
            ws="none",
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(bound)), name="web", daemon=True)
        threads.start(self._thread, exhausted)
        if not (host in ("localhost", "[::1]") or host.startswith("127.")):
            _log.warning(
                "%s: everybody who can reach this address can read jobs, hosts and addresses: use "
                "localhost to prevent it",
                self.url,
            )

    async def _serve(self, bound: socket.socket) -> None:
        self._looks.begin()
        await self._server.serve(sockets=[bound])

    @property
    def watching(self) -> int:
        """Return how many pages are open."""
        return self._looks.watching

    @property
    def resting(self) -> bool:
        """Whether the controller is not looked at, since no page is open."""
        return self._looks.is_resting

    def stop(self) -> None:
        """Stop serving, and end streams that are open."""
        self._looks.close()
        self._server.should_exit = True
        self._thread.join(STOP_S)
