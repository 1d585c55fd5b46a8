"""HTTP requests to the page's server: requests that are damaged; whatever comes, the next one is answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Final

from checks.fuzz.choices import Choices
from checks.fuzz.damage import HOSTILE, damaged
from switchsum.web.requests import TimedRequests
from switchsum.web.server import WebServer
from switchsum_protocol import rpc
from switchsum_protocol.errors import UsageError
from switchsum_switch.messages.samples import SampledFrame

PATHS: Final = (b"/", b"/metrics", b"/packets?job=a&slot=1", b"/page.js", b"/nowhere", b"/packets?slot=")
PARTS: Final = (
    *(b"GET ", b"POST ", b"HEAD ", b" HTTP/1.0", b"\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Accept: text/plain; version=1.0.0; escaping=x\r\n", b"Accept: application/openmetrics-text; version=9.x\r\n"),
    *(
        b"Origin: null\r\n",
        b"Host: evil\r\n",
        b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
        b"%00",
        b"%ff",
        b"?slot=",
        b"&job=%0a",
    ),
)
ANSWER_S: Final = 20.0
INCOMPLETE_S: Final = 0.3
"""What does not come in whole is given up after so long; the product has more patience."""


class Nothing:
    """A controller without jobs."""

    def info(self) -> rpc.ControllerInfo:
        """Describe it."""
        return rpc.ControllerInfo(
            package_version="1", wire_version=4, program_digest="d", lanes_per_frame=256, switch="", free_slots=9
        )

    def sample(self, job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        """Have no job of any name."""
        raise UsageError(f"there is no job {job!r}")

    def show_job(self, request: rpc.JobRequest) -> rpc.JobInfo:
        """Have no job of any name."""
        raise UsageError(f"there is no job {request.job!r}")

    def __getattr__(self, name: str) -> Any:
        kinds = {
            "list_jobs": rpc.JobList,
            "workers": rpc.WorkerList,
            "statistics": rpc.Statistics,
            "slots": rpc.SlotList,
            "ports": rpc.PortList,
            "links": rpc.LinkList,
            "switches": rpc.SwitchList,
        }
        return lambda *_: kinds[name]()


class Target:
    """Sends a request, and then asks for the metrics."""

    def __init__(self) -> None:
        TimedRequests.request_s = INCOMPLETE_S
        self._server = WebServer(Nothing(), "127.0.0.1:0", print)
        host, port = self._server.url.removeprefix("http://").rstrip("/").split(":")
        self._place = host, int(port)

    def run(self, data: bytes) -> None:
        """Send one request; it gets an answer that is no mistake of ours, or its connection ends."""
        choices = Choices(data)
        path = choices.pick(PATHS)
        request = b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/plain\r\nConnection: close\r\n\r\n" % path
        assert self._ask(damaged(request, choices, (*HOSTILE, *PARTS))) not in range(500, 503)
        assert self._ask(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n") == 200

    def _ask(self, request: bytes) -> int:
        """Return the status that a request gets; 0: none."""
        with socket.create_connection(self._place, timeout=ANSWER_S) as link:
            try:
                link.sendall(request)
                answer = link.recv(4096)
            except ConnectionError:
                return 0
        words = answer.split(b" ", 2)
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def seeds() -> Iterator[bytes]:
    """Return inputs that damage requests all over."""
    for path in range(len(PATHS)):
        for place in (0, 5, 12, 40, 60):
            yield bytes([path, 1, 0, place, 6, 0, (place + path) % (len(HOSTILE) + len(PARTS)), 0, place, 9, 1, 3])
