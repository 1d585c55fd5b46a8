"""The page's data, the metrics, and who is served: in this process, of a controller that is made up."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.made_up import HOSTILE, MadeUp, Tree
from support.timing import eventually, patience
from switchsum.testing.clock import VirtualClock
from switchsum.view.facts import gather, look_at
from switchsum.view.pace import Pace
from switchsum.web.app import STATIC
from switchsum.web.metrics import exposition
from switchsum.web.picture import Painter
from switchsum.web.server import WebServer
from switchsum.web.slot_packets import SlotPackets
from switchsum_protocol import rpc
from switchsum_protocol.errors import LocalError, UsageError
from switchsum_switch.messages.samples import SampledFrame

from .situations import HISTORY_S, KINDS, Situation, calls_of, with_history


@pytest.fixture
def served() -> Iterator[tuple[MadeUp, WebServer]]:
    source = MadeUp()
    server = WebServer(source, "127.0.0.1:0", print)
    yield source, server
    server.stop()


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return the value of each sample by its name and its labels' values."""
    return {
        (one.name, tuple(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def place(server: WebServer) -> tuple[str, int]:
    host, port = server.url.removeprefix("http://").rstrip("/").split(":")
    return host, int(port)


def connection(server: WebServer) -> socket.socket:
    return socket.create_connection(place(server), timeout=patience(20))


def stream(server: WebServer) -> socket.socket:
    """Open a page's stream; nothing has been read of it."""
    link = connection(server)
    link.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return link


def test_metrics_are_valid_and_hostile_names_are_escaped() -> None:
    body, kind = exposition(look_at(MadeUp(), switch=True, slots=False), "")
    assert kind.startswith("text/plain")
    found = samples(body.decode())
    assert found["switchsum_contributions_total", (HOSTILE, "1")] == 900
    assert found["switchsum_worker_waiting_seconds", (HOSTILE, "0")] == 7
    assert found["switchsum_switch_packets_total", ("completed", "")] == 300
    assert found["switchsum_worker_info", ("<b>h</b>", HOSTILE, "shm:x", "0")] == 1
    assert found["switchsum_switch_up", ("",)] == 1
    assert found["switchsum_port_simulated_loss_ratio", ("ingress", "1")] == 0.25


def test_a_switch_that_is_away_is_said_and_workers_are_still_shown() -> None:
    seen = look_at(MadeUp(away=True), switch=True, slots=True)
    found = samples(exposition(seen, "")[0].decode())
    assert found["switchsum_switch_up", ("",)] == 0
    assert ("switchsum_worker_idle_seconds", (HOSTILE, "1")) in found
    assert Painter().paint(seen, 0.0)["trouble"] == "the switch is away"


def test_while_one_switch_of_several_is_away_what_the_others_count_is_shown() -> None:
    situation, painter = Situation(("left", "right"), 2, ("spine",), jobs=("a",)), Painter()
    painter.paint(look_at(situation, switch=True, slots=True), 0.0)
    situation.what = {"away": {"spine"}}
    seen = look_at(situation, switch=True, slots=True)
    assert seen.trouble == "switch spine does not answer"
    found = samples(exposition(seen, "")[0].decode())
    up = {name: found["switchsum_switch_up", (name,)] for name in ("spine", "left", "right")}
    assert up == {"spine": 0, "left": 1, "right": 1}
    assert {labels for name, labels in found if name == "switchsum_switch_packets_total"} == {
        ("contributed", "left"), ("contributed", "right")
    }  # fmt: skip
    assert found["switchsum_contributions_total", ("a", "3")] > 0
    picture = painter.paint(seen, 1.0)
    assert picture["uncounted"] == "spine"
    assert {one["packets_per_s"] for one in picture["counters"]} == {None}  # of fewer switches than a second ago
    later = painter.paint(look_at(situation, switch=True, slots=True), 2.0)
    assert None not in {one["packets_per_s"] for one in later["counters"]}
    assert [one["per_s"] is None for one in later["switches"]] == [True, False, False]


def test_slots_of_a_job_are_read_only_if_all_of_its_switches_are_there() -> None:
    class Fleet(MadeUp):
        def statistics(self) -> rpc.Statistics:
            return replace(super().statistics(), away=["spine"])

        def slots(self, request: rpc.SlotsRequest) -> rpc.SlotList:
            return replace(super().slots(request), away=["spine"])

    source = Fleet()
    [facts] = look_at(source, switch=True, slots=True).jobs
    assert facts.slots  # of a job that does not need that switch
    source.job = replace(source.job, tree=[["", "spine"]])
    assert gather(source, HOSTILE).slots == []


def test_a_picture_has_what_each_kind_of_collective_takes() -> None:
    situation = Situation(("",), 3, late={1: 20})
    [job] = Painter().paint(look_at(situation, switch=True, slots=False), 0.0)["jobs"]
    kinds = {one["collective"]: one for one in job["kinds"]}
    assert kinds.keys() == {*KINDS}
    second = kinds[KINDS[1]]
    assert second["calls"] == pytest.approx(60 / situation.step_s, rel=0.1)
    assert second["late_rank"] == 1
    assert second["late_ms"] == pytest.approx(20, abs=2)
    assert second["moving_ms"] == pytest.approx(4, abs=0.1)
    [nothing] = Painter().paint(look_at(MadeUp(), switch=True, slots=False), 0.0)["jobs"]
    assert nothing["kinds"] == []


def test_a_picture_has_states_of_slots_missing_members_sentences_and_rates() -> None:
    painter, source = Painter(), MadeUp()
    first = painter.paint(look_at(source, switch=True, slots=True), 0.0)["jobs"][0]
    assert first["slots"] == "fiic"
    assert [one["missing"] for one in first["waiting"]] == [[1], [0]]
    later = painter.paint(look_at(source, switch=True, slots=True), 3.0)
    [job] = later["jobs"]
    assert job["slots"] == "fssc"
    [straggler] = [one for one in job["findings"] if one["kind"] == "straggler"]
    assert "rank" in straggler["text"]
    [refused] = [one for one in later["alerts"] if one["jobs"] == ["other"]]
    assert refused["text"].startswith("There is no job 'other'. There are: ")
    assert refused["details"].startswith(
        "Rank 0 of job 'other' was not let in. 0 s ago, 2 times by now. It has no slots;"
    )
    assert "9 are free" in refused["details"]
    assert later["counters"][0]["packets_per_s"] == 0
    much_later = painter.paint(look_at(source, switch=True, slots=True), 3600.0)
    assert much_later["counters"][0]["packets_per_s"] is None  # an hour without a page says nothing of now


def test_figures_over_time_are_those_of_job_and_ranks_and_what_is_not_known_is_none() -> None:
    painter, situation = Painter(), Situation(("",), 2, sparse={"yes"}, loses={"train/1"})
    with_history(situation, painter, 1000.0)
    points = painter.history(1000.0)["train"]
    assert len(points) == HISTORY_S
    ages = [point[0] for point in points]
    assert ages == [float(ago) for ago in range(HISTORY_S, 0, -1)]
    assert [point[5] for point in points] == [None] * HISTORY_S  # lost frames: nobody has asked the switch
    painter.paint(look_at(situation, switch=True, slots=True), 1001.0)
    age, collectives, sent, step, waiting, lost, density, *of_ranks = painter.history(1001.0)["train"][-1]
    assert age == 0
    assert collectives is not None
    assert sent is not None
    assert step is not None
    assert waiting is not None
    assert 0.02 < step < 0.2
    assert 0 < waiting < 0.2
    assert lost == pytest.approx(0.02, abs=0.003)  # one of two links loses 4 %
    assert density == pytest.approx(3 * 0.05, rel=0.21)
    assert [of_ranks[2], of_ranks[6]] == [0.0, pytest.approx(0.04, abs=0.005)]
    assert len(of_ranks) == 8


def test_a_rank_that_hangs_does_not_wait_and_the_others_do() -> None:
    painter, situation = Painter(), Situation(("",), 3, hangs={"train/1"})
    [job] = painter.paint(look_at(situation, switch=True, slots=True), 0.0)["jobs"]
    assert [row["waiting_share"] for row in job["ranks"]] == [1.0, 0.0, 1.0]
    assert job["ranks"][1]["computing_share"] == 1.0
    assert job["rates"][2] is None  # no step is made
    situation.calls = situation.stood = calls_of(3, {1: 20}, ago_s=14.0)  # it was late, too, before it hung
    [job] = painter.paint(look_at(situation, switch=True, slots=True), 1.0)["jobs"]
    assert job["ranks"][1]["does"].startswith("outside collectives for ")
    found = samples(exposition(look_at(situation, switch=True, slots=False), "")[0].decode())
    assert found["switchsum_rank_time_ratio", ("train", "0", "waiting")] == 1.0


def test_a_picture_of_a_tree_has_its_switches_their_links_and_those_of_ranks() -> None:
    painter, source = Painter(), Tree()
    painter.paint(look_at(source, switch=True, slots=True), 0.0)
    picture = painter.paint(look_at(source, switch=True, slots=True), 1.0)
    assert {one["switch"]: (one["level"], one["per_s"]) for one in picture["switches"]} == {
        "one": (0, 200.0), "two": (0, 100.0), "left": (1, 400.0), "right": (1, 300.0),
    }  # fmt: skip
    links = {tuple(one["ends"]): one for one in picture["links"]}
    assert {ends: (one["trees"], one["gone"], one["per_s"]) for ends, one in links.items()} == {
        ("left", "one"): ([0], False, 100.0), ("right", "one"): ([0], False, 100.0),
        ("left", "two"): ([1], False, 50.0), ("right", "two"): ([1], True, 50.0), ("left", "right"): ([], False, 0.0),
    }  # fmt: skip
    assert links["left", "one"]["ports"] == [9, 1]
    [job] = picture["jobs"]
    assert job["ranks"][2]["switch"] == "right"
    assert job["ranks"][2]["links"] == [
        {"port": 2, "switch": "right", "share": 1.0, "down": False},
        {"port": 12, "switch": "right", "share": 0.0, "down": True},
    ]  # fmt: skip
    assert [one["missing"] for one in job["waiting"]] == [[3]]
    source.job = replace(
        source.job, tree=[], state="waiting"
    )  # no job runs: the links say what is near the first switch
    levels = painter.paint(look_at(source, switch=True, slots=True), 2.0)["switches"]
    assert [one["level"] for one in levels] == [0, 2, 1, 1]


def test_metrics_take_no_recalls_that_a_leaf_sends_up_for_losses() -> None:
    seen = look_at(Tree(), switch=True, slots=False)
    worker = rpc.WorkerInfo(rank=0, age_s=0.1, frames_sent=1600, frames_received=1300, rounds=400, recalled=300)
    counters = rpc.MemberCounters(job="digits", rank=0, contributions=1600, contribution_bytes=1, results=400)
    facts = replace(seen.jobs[0], workers=[worker], counters={0: counters})
    found = samples(exposition(replace(seen, jobs=[facts]), "")[0].decode())
    assert found["switchsum_link_lost_frames", ("digits", "0")] == 0


def test_slots_are_shown_as_they_were_where_they_are_not_read_again() -> None:
    painter, source, pace = Painter(), MadeUp(), Pace()
    pace.read(1e9)  # it rests for ever
    job = source.workers(rpc.JobRequest(job="")).workers[1]
    source.workers = lambda request: rpc.WorkerList(workers=[job] * 3)  # type: ignore[method-assign]  # nobody waits
    first = painter.paint(look_at(source, switch=True, slots=pace), 0.0)["jobs"][0]
    source.slots = lambda request: pytest.fail("the switch was asked for slots")  # type: ignore[method-assign]
    later = painter.paint(look_at(source, switch=True, slots=pace), 9.0)["jobs"][0]
    assert first["slots"] == later["slots"] == "fiic"


def test_a_look_that_failed_after_slots_were_read_is_followed_by_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    painter, source, pace = Painter(), MadeUp(), Pace()
    job = source.workers(rpc.JobRequest(job="")).workers[1]
    monkeypatch.setattr(source, "workers", lambda request: rpc.WorkerList(workers=[job] * 3))  # nobody waits
    with monkeypatch.context() as failing:
        failing.setattr(source, "links", Mock(side_effect=LocalError("not now")))
        with pytest.raises(LocalError):
            look_at(source, switch=True, slots=pace)
    pace.read(1e9)  # it rests for ever
    assert painter.paint(look_at(source, switch=True, slots=pace), 0.0)["jobs"][0]["slots"] == ""


def test_packets_of_a_slot_are_decoded_and_what_is_not_ours_is_left_out(served: tuple[MadeUp, WebServer]) -> None:
    source, server = served

    def ask(query: str) -> tuple[int, str]:
        client = http.client.HTTPConnection(*place(server), timeout=patience(20))
        client.request("GET", f"/packets?{query}")
        answer = client.getresponse()
        text = answer.read().decode()
        client.close()
        return answer.status, text

    status, text = ask("job=a%20b&slot=5")
    assert (status, source.sampled) == (200, [("a b", 5)])
    [packet] = json.loads(text)["packets"]
    assert packet["text"] == (
        "10.0.0.1:21333 > 10.0.0.2:21333 contribution job 1.2 rank 1 slot 5 number 40 block 0 next none [repeat]"
    )
    assert (packet["port"], packet["sent"], packet["at"]) == (1, False, 1.5)
    for query in ("", "job=a&slot=", "job=a&slot=-1", "job=a&slot=one"):
        assert ask(query)[0] == 400
    source.away = True  # as BMv2 does
    assert ask("job=a&slot=5") == (503, "this switch shows no packets\n")


def test_a_switch_is_asked_for_packets_a_tenth_of_the_time_whoever_asks() -> None:
    clock, source = VirtualClock(), MadeUp()

    asked: list[float] = []

    def sample(job: str, slot: int, seconds: float) -> list[tuple[str, SampledFrame]]:
        asked.append(clock())
        clock.now_s += 0.5
        return []

    async def look() -> None:
        looks = SlotPackets(source, clock)
        for _ in range(12):
            answers = await asyncio.gather(*(looks.look("a", slot) for slot in range(3)))
            assert min(json.loads(answer)["again_s"] for answer in answers) > 0
            clock.now_s += 1

    source.sample = sample  # type: ignore[method-assign]
    asyncio.run(look())
    assert asked == [0.0, 5.5, 11.0]


def test_the_page_is_small_and_of_this_origin_alone() -> None:
    assert sum(path.stat().st_size for path in STATIC.iterdir()) < 300_000
    text = "".join(path.read_text() for path in STATIC.iterdir())
    assert "innerHTML" not in text  # names of jobs and hosts are texts
    for named in ("http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot", "// "):  # a namespace, comments
        text = text.replace(named, "")
    assert "//" not in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "127.0.0.1:8080"}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "localhost", "Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "null"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
    ],
)
def test_pages_of_other_sites_get_nothing(
    served: tuple[MadeUp, WebServer], headers: dict[str, str], status: int
) -> None:
    given = {"Host": "localhost"} | headers
    for method, path in (("GET", "/"), ("GET", "/metrics"), ("POST", "/")):
        client = http.client.HTTPConnection(*place(served[1]), timeout=patience(20))
        client.putrequest(method, path, skip_host=True)
        for header in given.items():
            client.putheader(*header)
        client.endheaders()
        answer = client.getresponse()
        assert answer.status == (405 if method == "POST" and status == 200 else status)
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert status in (200, 405) or answer.read().startswith(b"refused: ")
        client.close()


def test_streams_go_to_as_many_pages_as_stated_and_looks_end_with_the_last(served: tuple[MadeUp, WebServer]) -> None:
    source, server = served
    links = [stream(server) for _ in range(150)]
    try:
        answers = [link.recv(4096).split(b"\r\n")[0] for link in links]
        assert answers.count(b"HTTP/1.1 200 OK") == 100
        assert answers.count(b"HTTP/1.1 503 Service Unavailable") == 50
    finally:
        for link in links:
            link.close()
    assert eventually(lambda: server.watching == 0)
    assert eventually(lambda: server.resting)
    asked = source.asked
    again = stream(server)
    assert eventually(lambda: source.asked > asked)
    data = b""
    while b"\n\n" not in data.partition(b"\r\ndata: ")[2]:
        data += again.recv(65536)
    assert json.loads(data.partition(b"\r\ndata: ")[2].splitlines()[0].removesuffix(b"\r"))["jobs"][0]["job"] == HOSTILE
    again.close()


def test_a_scraper_that_never_reads_keeps_nobody_waiting(served: tuple[MadeUp, WebServer]) -> None:
    source, server = served
    deaf = connection(server)
    deaf.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200)
    for _ in range(3):
        with urllib.request.urlopen(server.url + "metrics", timeout=patience(20)) as answer:
            assert answer.status == 200
    assert source.asked <= 3  # one look a second, however many ask
    deaf.close()


@pytest.mark.parametrize("text", ["8080", "host:port", "::1:80", "127.0.0.1:65536", ":1"])
def test_what_is_no_address_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(UsageError, match="--web takes HOST:PORT"):
        WebServer(MadeUp(), text, print)


def test_a_port_that_is_taken_and_an_address_of_another_machine(served: tuple[MadeUp, WebServer]) -> None:
    taken = served[1].url.removeprefix("http://").rstrip("/")
    for text in (taken, "192.0.2.1:8080"):
        with pytest.raises(LocalError, match=f"cannot serve --web {text}: .*; "):
            WebServer(MadeUp(), text, print)


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH")
def test_a_real_prometheus_scrapes(served: tuple[MadeUp, WebServer], tmp_path: Path) -> None:
    _, server = served
    target = server.url.removeprefix("http://").rstrip("/")
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: switchsum\n  honor_labels: true\n  scrape_interval: 1s\n"
        f"  static_configs:\n  - targets: ['{target}']\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}"]
    command.append(f"--web.listen-address={own}")
    query = f"http://{own}/api/v1/query?query=switchsum_contributions_total"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def value() -> list[Any]:
        try:
            with urllib.request.urlopen(query, timeout=patience(5)) as page:
                found: list[Any] = json.load(page)["data"]["result"]
                return found
        except OSError:
            return []

    try:
        assert eventually(value)
        assert {(one["metric"]["job"], one["metric"]["rank"], one["value"][1]) for one in value()} == {
            (HOSTILE, rank, "900") for rank in "012"
        }
    finally:
        process.terminate()
        process.wait()
