"""What the page's server does with browsers that go, are many or hang, and with a controller that is restarted."""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from support.made_up import HOSTILE, Large, MadeUp
from support.timing import eventually, patience
from switchsum.view.facts import look_at
from switchsum.web import app
from switchsum.web.looks import Looks
from switchsum.web.picture import History, Painter
from switchsum.web.requests import TimedRequests
from switchsum.web.server import MOST_CONNECTIONS, WebServer


@pytest.fixture
def source() -> MadeUp:
    return MadeUp()


@pytest.fixture
def server(source: MadeUp) -> Iterator[WebServer]:
    made = WebServer(source, "127.0.0.1:0", print)
    yield made
    made.stop()


def place(server: WebServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    return host, int(port)


class Page:
    """An open page, as a browser has it."""

    def __init__(self, server: WebServer) -> None:
        self.link = socket.create_connection(place(server), timeout=patience(20))
        self.link.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self._data = b""

    def status(self) -> int:
        while b"\r\n" not in self._data:
            self._data += self.link.recv(65536)
        return int(self._data.split(b" ")[1])

    def picture(self) -> dict[str, Any]:
        """Return the next picture."""
        return self._event(b"\r\ndata: ")  # a chunk of HTTP begins with it

    def history(self) -> dict[str, Any]:
        """Return the minutes before the page was opened; only before the first picture."""
        return self._event(b"\r\nevent: history\ndata: ")

    def _event(self, begin: bytes) -> dict[str, Any]:
        while b"\n\n" not in self._data.partition(begin)[2]:
            received = self.link.recv(65536)
            assert received
            self._data += received
        line, _, self._data = self._data.partition(begin)[2].partition(b"\n\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def has_ended(self) -> bool:
        try:
            return not self.link.recv(65536)
        except ConnectionError:
            return True

    def vanish(self) -> None:
        """Go without a word: the connection is reset."""
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.link.close()


def test_a_browser_that_goes_takes_nobody_along(server: WebServer) -> None:
    gone, stays = Page(server), Page(server)
    assert gone.picture()["jobs"][0]["job"] == HOSTILE
    stays.picture()
    gone.vanish()
    assert eventually(lambda: server.watching == 1)
    assert stays.picture()["jobs"]
    stays.link.close()
    assert eventually(lambda: server.watching == 0 and server.resting)


def test_a_thousand_pages_get_an_answer_and_a_place_that_is_free_is_given(server: WebServer) -> None:
    with ExitStack() as stack:
        pages = [Page(server) for _ in range(app.MOST_STREAMS)]
        for page in pages:
            stack.callback(page.link.close)
            assert page.status() == 200
        for _ in range(1000 - app.MOST_STREAMS):
            client = http.client.HTTPConnection(*place(server), timeout=patience(20))
            client.request("GET", "/events")
            answer = client.getresponse()
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            assert b"pages are open already" in answer.read()
            client.close()
        assert pages[-1].picture()["jobs"]
        pages[0].link.close()
        assert eventually(lambda: server.watching < app.MOST_STREAMS)
        late = Page(server)
        stack.callback(late.link.close)
        assert late.status() == 200


def test_a_browser_that_takes_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SEND_S", 0.01)

    async def send(message: Any) -> None:
        if message.get("body", b"").startswith(b"data"):
            await asyncio.Event().wait()

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def visit() -> int:
        looks = Looks(MadeUp())
        await asyncio.wait_for(app.Stream(looks, 1)({"type": "http"}, receive, send), patience(30))
        return looks.watching

    assert asyncio.run(visit()) == 0


def test_a_controller_that_is_restarted_is_another_one_to_an_open_page(server: WebServer) -> None:
    first = Page(server)
    before = first.picture()["started"]
    host, port = place(server)
    server.stop()
    assert eventually(first.has_ended)  # the browser connects again
    first.link.close()
    again = WebServer(MadeUp(), f"{host}:{port}", print)
    try:
        second = Page(again)
        assert second.picture()["started"] != before
        second.link.close()
    finally:
        again.stop()


def test_a_page_that_is_loaded_again_has_the_minutes_before_it_was_opened() -> None:
    source = MadeUp()
    server = WebServer(source, "127.0.0.1:0", print)

    def history() -> dict[str, Any]:
        page = Page(server)
        try:
            return page.history()
        finally:
            page.link.close()

    try:
        assert eventually(lambda: len(history().get(HOSTILE, [])) >= 2)
        [*_, before, last] = history()[HOSTILE]
        assert before[0] > last[0] >= 0
        assert last[1:4] == [0.0, 0.0, None]  # no collective has ended, so that no step is known
        assert [last[8], last[12], last[16]] == [0.7, 0.0, 0.7]  # how long the ranks wait, of ten seconds
        assert len(last) == 1 + 6 + 4 * 3
        page = Page(server)
        assert len(page.picture()["jobs"][0]["rates"]) == len(last) - 1
        page.link.close()
        source.jobs = []
        assert eventually(lambda: not history())
    finally:
        server.stop()


def test_without_a_page_the_history_is_kept_and_the_switch_is_not_read(server: WebServer, source: MadeUp) -> None:
    assert eventually(lambda: source.listed >= 3)
    assert source.asked == 0


def test_a_server_that_is_stopped_under_an_open_page_ends_it_well(
    server: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    page = Page(server)
    page.picture()
    server.stop()
    assert eventually(page.has_ended)
    page.link.close()
    assert not caplog.records


def test_figures_are_kept_for_an_hour_and_of_ten_minutes_by_the_second() -> None:
    history = History()
    for now in range(5000):
        history.add(float(now), [1.0])
    ages = [point[0] or 0.0 for point in history.of(4999.0)]
    assert 3580 <= ages[0] <= 3600
    assert ages[-1] == 0.0
    assert ages == sorted(ages, reverse=True)
    steps = [before - after for before, after in itertools.pairwise(ages)]
    assert set(steps[-590:]) == {1.0}
    assert set(steps[:250]) == {10.0}
    assert len(history.of(4999.0 + 3000)) < len(ages)


def test_a_mistake_of_ours_is_on_the_page_and_is_over_when_it_is(server: WebServer, source: MadeUp) -> None:
    page = Page(server)
    assert page.picture()["trouble"] == ""
    source.broken = True
    assert eventually(lambda: "ZeroDivisionError" in page.picture()["trouble"])
    source.broken = False
    assert eventually(lambda: page.picture()["trouble"] == "")
    assert page.picture()["jobs"]
    page.link.close()


def test_nothing_can_be_changed_so_that_no_token_is_asked_for(server: WebServer) -> None:
    for path in ("/", "/page.js", "/events", "/metrics"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            client = http.client.HTTPConnection(*place(server), timeout=patience(20))
            client.request(method, path, body=b"{}")
            assert client.getresponse().status == 405
            client.close()


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text; version=x",
        "application/openmetrics-text; version=\u00e9",
        "application/openmetrics-text;version=1.0.0;escaping=;",
        "text/plain; version=1.0.0; escaping=\u0080",
        "text/plain;version=",
        "application/openmetrics-text;version=9.9.9," * 100,
    ],
)
def test_a_scraper_that_asks_for_what_is_no_format_gets_one(server: WebServer, accept: str) -> None:
    client = http.client.HTTPConnection(*place(server), timeout=patience(20))
    client.request("GET", "/metrics", headers={"Accept": accept.encode("latin-1")})
    answer = client.getresponse()
    assert answer.status == 200
    assert b"switchsum_slots_free" in answer.read()
    client.close()


@pytest.mark.parametrize("slot", ["9" * 5000, "9" * 10, "", "-1", "1.5", "%d9%a1", "%00"])
def test_what_is_no_number_of_a_slot_is_refused(server: WebServer, slot: str) -> None:
    client = http.client.HTTPConnection(*place(server), timeout=patience(20))
    client.request("GET", f"/packets?job=a&slot={slot}")
    assert client.getresponse().status == 400
    client.close()


def half_sent(server: WebServer, text: bytes) -> socket.socket:
    link = socket.create_connection(place(server), timeout=patience(20))
    link.sendall(text)
    return link


def status(server: WebServer) -> int:
    client = http.client.HTTPConnection(*place(server), timeout=patience(20))
    try:
        client.request("GET", "/metrics")
        return client.getresponse().status
    except ConnectionError:  # its connection was one too many, for the kernel
        return 0
    finally:
        client.close()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"GET /metrics HTTP/1.1\r\nX",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\nx",
        b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /met",
    ],
)
def test_requests_that_never_come_in_whole_give_their_places_back(
    server: WebServer, monkeypatch: pytest.MonkeyPatch, text: bytes
) -> None:
    monkeypatch.setattr(TimedRequests, "request_s", 1.0)
    with ExitStack() as stack:
        for _ in range(MOST_CONNECTIONS):
            stack.enter_context(half_sent(server, text))
        assert eventually(lambda: status(server) == 200)


def test_a_page_that_was_asked_for_in_time_stays_open(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimedRequests, "request_s", 0.5)
    page, slow = Page(server), half_sent(server, b"GET /metrics HT")
    assert eventually(lambda: not slow.recv(1))  # it came later, and is over
    assert page.picture()["jobs"]
    assert page.picture()["jobs"]
    page.link.close()
    slow.close()


def test_a_picture_of_a_thousand_slots_and_64_workers_is_cheap() -> None:
    painters = {slots: (Large(slots), Painter()) for slots in (10, 250)}
    costs: dict[int, list[float]] = {slots: [] for slots in painters}
    for now in range(12):
        for slots, (source, painter) in painters.items():
            began = time.thread_time()
            picture = painter.paint(look_at(source, switch=True, slots=True), float(now))
            data = json.dumps(picture, separators=(",", ":"))
            costs[slots].append(time.thread_time() - began)
    assert sum(len(job["slots"]) for job in picture["jobs"]) == 1000
    assert sum(len(job["ranks"]) for job in picture["jobs"]) == 64
    assert len(data) < 100_000
    # 25 times as many slots; a search for each slot among all, or for each member in each slot, would be far above.
    assert min(costs[250]) < 12 * min(costs[10]), costs
