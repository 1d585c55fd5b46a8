"""The web application: the page, its stream of pictures, and the metrics.  It has no action: nothing can be changed."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from switchsum.web.looks import Looks
from switchsum.web.metrics import exposition
from switchsum.web.slot_packets import SlotPackets
from switchsum_protocol.errors import LocalError, SwitchsumError

MOST_STREAMS: Final = 100
"""Pages that are open at a time; further ones are told to come again."""
MOST_DIGITS: Final = 9
"""Most digits of a slot's number in a query."""
SEND_S: Final = 20.0
"""A browser that takes nothing for so long is given up."""
STATIC: Final = Path(__file__).with_name("static")
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"} | {
    ".json": "application/json",
    ".yml": "text/plain",
}
FILES: Final = {"/": "page.html"} | {
    f"/{name}": name
    for name in (
        *("page.css", "page.js", "dom.js", "slot.js", "topology.js", "charts.js", "theme.js"),
        *("grafana.json", "rules.yml"),  # for Grafana and Prometheus
        *("uplot.css", "uplot.js", "uplot-LICENSE.txt"),  # https://github.com/leeoniya/uPlot, 1.6.32, as released
    )
}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def application(looks: Looks, slots: SlotPackets, own_host: str = "", *, most_streams: int = MOST_STREAMS) -> Guard:
    """Return the application; `own_host` is the name or address that --web was given."""

    async def metrics(request: Request) -> Response:
        try:
            seen = await looks.scrape()
        except SwitchsumError as error:
            return PlainTextResponse(f"{error}\n", 503)
        body, kind = exposition(seen, request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": kind})

    async def packets(request: Request) -> Response:
        job, slot = request.query_params.get("job", ""), request.query_params.get("slot", "")
        if not (slot.isascii() and slot.isdigit() and len(slot) <= MOST_DIGITS):
            return PlainTextResponse("which slot? /packets?job=NAME&slot=NUMBER\n", 400)
        try:
            return Response(await slots.look(job, int(slot)), media_type="application/json")
        except SwitchsumError as error:
            return PlainTextResponse(f"{error}\n", 503)

    def page(name: str) -> Callable[[Request], Awaitable[Response]]:
        async def send(_: Request) -> Response:
            return FileResponse(STATIC / name, media_type=TYPES[Path(name).suffix])

        return send

    routes = [Route(path, page(file), methods=["GET"]) for path, file in FILES.items()]
    routes.append(Route("/metrics", metrics, methods=["GET"]))
    routes.append(Route("/packets", packets, methods=["GET"]))
    routes.append(Route("/events", Stream(looks, most_streams), methods=["GET"]))
    return Guard(Starlette(routes=routes), own_host)


class Guard:
    """Refuses requests that another site's page has made: by a name of its own for this address, or from its origin."""

    def __init__(self, app: Starlette, own_host: str) -> None:
        self._app = app
        self._names = {"localhost", socket.gethostname().lower(), own_host.lower()} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        reason = self.reason(Headers(scope=scope))

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        app = PlainTextResponse(f"{reason}\n", 403) if reason else self._app
        await app(scope, receive, send_guarded)

    def reason(self, headers: Headers) -> str:
        """Return why a request is refused; empty: it is not."""
        host = headers.get("host", "")
        if not self._is_ours(host):
            return (
                f"refused: the Host header is {host[:80]!r}, neither an address nor a name of this machine "
                "(DNS rebinding); open the page by its address, or give --web the name"
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            return f"refused: a page of another origin, {origin[:80]!r}, asks"
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return "refused: a page of another site asks"
        return ""

    def _is_ours(self, host: str) -> bool:
        """Return whether a Host header names this machine; an address cannot be rebound, a foreign name can."""
        name = host.lower()
        if not name.endswith("]"):
            head, colon, port = name.rpartition(":")
            name = head if colon and port.isdigit() else name
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(name.strip("[]"))
            return True
        return name in self._names


class Stream:
    """Sends pictures as server-sent events: to each browser the latest, as fast as it takes them."""

    def __init__(self, looks: Looks, most: int) -> None:
        self._looks = looks
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send pictures until the browser goes."""
        if self._looks.watching >= self._most:
            text = f"{self._most} pages are open already; try again when one is closed\n"
            await PlainTextResponse(text, 503, headers={"Retry-After": "5"})(scope, receive, send)
            return
        self._looks.watching += 1
        tasks = [asyncio.create_task(self._send(send)), asyncio.create_task(_gone(receive))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._looks.watching -= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(_event(b"retry: 1000"))
        with contextlib.suppress(LocalError):  # the server ends
            await send(_event(b"event: history\ndata: " + await self._looks.history()))
            number = self._looks.painted  # not the picture of a page that was open an hour ago
            while True:
                number, picture = await self._looks.next_picture(number)
                await asyncio.wait_for(send(_event(b"data: " + picture)), SEND_S)
        await send({"type": "http.response.body", "body": b""})


def _event(text: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text + b"\n\n", "more_body": True}


async def _gone(receive: Receive) -> None:
    """Return when the browser has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
