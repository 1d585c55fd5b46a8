"""The Grafana dashboard and the alert rules: what they name exists, and a real Prometheus answers their queries."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.parts import JOB, Parts
from support.timing import eventually, patience
from switchsum.view.facts import look_at
from switchsum.web.app import FILES, STATIC
from switchsum.web.metrics import exposition
from switchsum.web.server import WebServer
from switchsum_protocol import rpc
from switchsum_switch.bmv2.process import free_port

from .situations import Situation

DASHBOARD = json.loads((STATIC / "grafana.json").read_text())
RULES = (STATIC / "rules.yml").read_text()
NAME = re.compile(r"\bswitchsum_\w+")


def queries() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def expressions() -> list[str]:
    """Return the conditions of the alerts."""
    found = re.findall(r"expr: (?:>-\n)?((?:.+\n)(?: {6,}.*\n)*?)(?=    for:)", RULES)
    return [" ".join(one.split()) for one in found]


def test_every_metric_that_the_dashboard_and_the_rules_name_exists() -> None:
    situation = Situation(("",), 4, late={2: 20})
    text = exposition(look_at(situation, switch=True, slots=False), "")[0].decode()
    known = {one.name for family in text_string_to_metric_families(text) for one in family.samples}
    used = {name for query in (*queries(), *expressions()) for name in NAME.findall(query)}
    assert len(used) >= 10
    assert used <= known
    assert len(expressions()) == RULES.count("alert: ") == 3
    for file in ("grafana.json", "rules.yml"):
        assert FILES[f"/{file}"] == file


def test_the_dashboard_has_what_an_import_needs() -> None:
    assert {"uid", "title", "schemaVersion", "panels", "templating", "time"} <= DASHBOARD.keys()
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    for panel in panels:
        assert {"id", "type", "title", "gridPos", "targets", "datasource"} <= panel.keys()
        assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24


@pytest.mark.skipif(find_spec("grafana_foundation_sdk") is None, reason="grafana-foundation-sdk is not installed")
def test_grafanas_own_models_take_every_field_of_the_dashboard() -> None:
    """They are made of Grafana's schemas, those of panels and of Prometheus' queries among them, and skip the rest."""
    dashboards = import_module("grafana_foundation_sdk.models.dashboard")
    plugins = import_module("grafana_foundation_sdk.cog.plugins")
    encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder
    plugins.register_default_plugins()
    read = dashboards.Dashboard.from_json(DASHBOARD)
    kinds = {type(panel.options).__module__.rpartition(".")[2] for panel in read.panels}
    assert kinds == {"stat", "timeseries"}
    assert {type(target).__module__.rpartition(".")[2] for panel in read.panels for target in panel.targets} == {
        "prometheus"
    }
    assert lost(DASHBOARD, json.loads(json.dumps(read, cls=encoder))) == []


def lost(given: Any, kept: Any, place: str = "") -> list[str]:
    """Return the places of what is given and not kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        return [one for name in given for one in lost(given[name], kept.get(name), f"{place}/{name}")]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [one for at, item in enumerate(given) for one in lost(item, kept[at], f"{place}/{at}")]
    return [] if given == kept else [place]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on PATH")
@pytest.mark.parametrize(
    "command", [("check", STATIC / "rules.yml"), ("test", Path(__file__).with_name("rules_test.yml"))]
)
def test_promtool_takes_the_rules_and_each_alert_fires_when_it_is_meant_to(command: tuple[str, Path]) -> None:
    kind, file = command
    done = subprocess.run(["promtool", kind, "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Callable[[str], Any]]:
    """Have a Prometheus with our rules scrape an address; yield what asks it."""
    config = folder / "prometheus.yml"
    config.write_text(
        f"rule_files: ['{STATIC / 'rules.yml'}']\nglobal: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
        "scrape_configs:\n- job_name: switchsum\n  honor_labels: true\n"
        f"  static_configs:\n  - targets: ['{target}']\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        own = f"127.0.0.1:{probe.getsockname()[1]}"
    process = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}", f"--web.listen-address={own}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{own}/api/v1/{path}", timeout=patience(5)) as page:
                return json.load(page)["data"]
        except OSError:
            return {}

    try:
        yield ask
    finally:
        process.terminate()
        process.wait()


def value(ask: Callable[[str], Any], query: str) -> list[Any]:
    query = query.replace("$__rate_interval", "10s").replace("$job", ".*")
    found: list[Any] = ask(f"query?query={urllib.parse.quote(query)}").get("result", [])
    return found


def alerts(ask: Callable[[str], Any], state: str) -> set[str]:
    return {one["labels"]["alertname"] for one in ask("alerts").get("alerts", ()) if one["state"] == state}


NO_PROMETHEUS = pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on PATH")


@NO_PROMETHEUS
def test_a_real_prometheus_answers_each_query_and_sees_the_late_rank(tmp_path: Path) -> None:
    server = WebServer(Situation(("",), 4, late={2: 20}), "127.0.0.1:0", print)
    try:
        with scraping(server.url.removeprefix("http://").rstrip("/"), tmp_path) as ask:
            for query in queries():
                assert eventually(partial(value, ask, query), 60), query
            assert eventually(lambda: "SwitchsumRankLate" in alerts(ask, "pending"), 60)
            assert "SwitchsumSwitchDown" not in alerts(ask, "pending")
            health = [rule["health"] for group in ask("rules")["groups"] for rule in group["rules"]]
            assert health == ["ok"] * 3
    finally:
        server.stop()


@NO_PROMETHEUS
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_real_prometheus_that_scrapes_a_running_job_raises_both_alerts(tmp_path: Path) -> None:
    web = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        parts = Parts(stack, tmp_path, size=3)
        switch = parts.switch()
        parts.controller("--web", web)
        parts.ask(lambda client: client.create_job(rpc.CreateJobRequest(job=JOB, workers=3, slots=64)))
        ask = stack.enter_context(scraping(web, tmp_path))
        for rank in range(3):
            parts.worker(rank, "endless.py", REST_S="0.025" if rank == 1 else "0.005")
        for query in queries():
            if "density" not in query:  # the job adds nothing sparse
                assert eventually(partial(value, ask, query), 90), query
        late = f'switchsum_rank_late_seconds{{job="{JOB}",rank="1"}} > 0.01'
        assert eventually(partial(value, ask, late), 60)
        assert eventually(lambda: "SwitchsumRankLate" in alerts(ask, "firing"), 120)
        assert alerts(ask, "firing") == {"SwitchsumRankLate"}
        switch.kill()
        assert eventually(lambda: "SwitchsumSwitchDown" in alerts(ask, "firing"), 60)
