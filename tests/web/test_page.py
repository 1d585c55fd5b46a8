"""The page in headless Chromium, of real jobs: what is wrong with each is found on it by name.

With SWITCHSUM_SCREENSHOTS=docs/images (`make screenshots`) it writes the pictures of docs/live-page.md and README.md.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from support.daemons import run_here
from support.made_up import Tree
from support.parts import Parts, Process
from support.timing import eventually, patience
from switchsum.web.server import WebServer
from switchsum_protocol import member_rpc, rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import UnknownJob
from switchsum_switch.bmv2.process import free_port
from tools import pictures

from .situations import SITUATIONS, calls_of, with_history

LACKING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(LACKING), reason=f"{' and '.join(LACKING)} not on PATH"),
    pytest.mark.skipif(find_spec("selenium") is None, reason="selenium is not installed"),
]
PHONE = (390, 844)
COLOURS = 256
"""Of a picture: it has half of the bytes."""


@pytest.fixture
def browser() -> Iterator[Any]:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for option in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1200,1100",
    ):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("browserStartupTimeout", int(1000 * patience(60)))  # 60 s whatever the load
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=shutil.which("chromedriver")))
    driver.set_page_load_timeout(patience(30))
    driver.set_script_timeout(patience(30))
    yield driver
    driver.quit()


def text(browser: Any, selector: str) -> str:
    """Return the text of the first thing that a selector finds; empty: there is none."""
    code = "return (document.querySelector(arguments[0])?.innerText ?? '')"
    return " ".join(str(browser.execute_script(code, selector)).split())


def picture(browser: Any, name: str) -> None:
    if folder := os.environ.get("SWITCHSUM_SCREENSHOTS"):
        path = Path(folder) / f"{name}.png"
        browser.save_screenshot(str(path))
        image: Any = import_module("PIL.Image")
        # By coverage: what takes few points, as a colour of the legend, keeps its own.
        coverage = image.Quantize.MAXCOVERAGE
        image.open(path).convert("RGB").quantize(COLOURS, coverage).save(path, optimize=True)
        if path.name in pictures.SOURCES:
            pictures.note(path.name)


def begin(parts: Parts, web: str) -> Process:
    """Start job `slow`, whose rank 1 straggles, and `lossy`, whose link of rank 1 loses; return the controller."""
    parts.switch()
    controller = parts.controller("--web", web)
    parts.ask(
        ControllerClient.ports
    )  # until it has its switch: a job that is asked for earlier is a refusal on the page
    for job in ("slow", "lossy"):
        parts.ask(partial(ControllerClient.create_job, request=rpc.CreateJobRequest(job=job, workers=2, slots=64)))
    for rank in range(2):
        parts.worker(rank, "straggler.py", SLOW="1", SWITCHSUM_JOB="slow")
        parts.worker(rank, "endless.py", SWITCHSUM_JOB="lossy", REST_S="0.02")
    assert eventually(lambda: parts.show("lossy").state == "running", 90)
    port = next(one.ingress_port for one in parts.show("lossy").members if one.rank == 1)
    loss = run_here("drop-probability", "0.05", "--port", str(port), "--controller", f"unix:{parts.scratch}/controller")
    assert loss.returncode == 0, loss.stderr
    request = member_rpc.JoinRequest(job="forgotten", rank=0, world_size=2)
    with pytest.raises(UnknownJob):
        parts.ask(lambda client: client.call("Join", request, member_rpc.JoinReply))
    return controller


def test_a_straggler_a_lossy_link_and_a_job_without_slots_are_named(browser: Any) -> None:
    web = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="switchsum-"))  # a short path, for the pictures
        parts = Parts(stack, Path(scratch), size=2)
        first = begin(parts, web)
        browser.get(f"http://{web}/")

        def alerts() -> str:
            return text(browser, "#alerts")

        assert eventually(lambda: "outside collectives for" in alerts(), 90), alerts()
        assert eventually(lambda: ": the link of rank 1 (" in alerts(), 90), alerts()
        assert "Job slow: Rank 1 (" in alerts()
        assert "; rank 0 waits for it." in alerts()
        assert ", link shm." in alerts()
        assert "Job lossy: The drop simulator of port" in alerts()
        refused = text(browser, "#refused")
        assert "There is no job 'forgotten'." in refused
        assert "Rank 0 of job 'forgotten' was not let in." in refused
        assert "It has no slots;" in refused
        waiting = '[data-job="slow"] [aria-label^="Slots of"]'
        assert eventually(lambda: "rank 1 (" in text(browser, waiting), 30)
        label = "return document.querySelector('[data-job=slow] canvas.slots').ariaLabel"
        assert eventually(lambda: int(re.findall(r"(\d+) stale", browser.execute_script(label))[0]) > 0, 30)
        assert "completed" in text(browser, "#counters")
        picture(browser, "page")
        browser.execute_script("document.querySelector('[data-job=slow]').scrollIntoView()")
        picture(browser, "page-straggler")
        is_usable(browser)

        # A controller that is restarted under an open page.
        first.terminate()
        first.wait()
        assert eventually(lambda: "No controller since" in text(browser, "#connection"), 30)
        parts.controller("--web", web)
        assert eventually(lambda: "the controller was restarted" in text(browser, "#connection"), 60)
        problems = [one for one in browser.get_log("browser") if "net::ERR" not in one["message"]]
        assert problems == []


class Told(Tree):
    """A tree whose ranks tell of their collectives, and with a link to a switch that is not listed."""

    def workers(self, request: rpc.JobRequest) -> rpc.WorkerList:
        return replace(super().workers(request), calls=calls_of(4, {}))

    def links(self) -> rpc.LinkList:
        found = super().links()
        more = rpc.LinkInfo(switch="left", port=6, far_switch="elsewhere", far_port=1, in_tree=False)
        return replace(found, links=[*found.links, more])


def test_switches_trees_and_several_links_of_a_worker_are_drawn(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    server = WebServer(Told(), "127.0.0.1:0", print)
    try:
        browser.get(server.url)
        rates = re.compile(r"one [1-9][\d,.]* contributions/s two does not answer left [1-9]")
        assert eventually(lambda: rates.search(text(browser, "#topology")), 30), text(browser, "#topology")
        drawn = text(browser, "#topology")
        assert "digits/2 <b>h</b> port 2, 12 (down), " in drawn
        count = "return document.querySelectorAll(arguments[0]).length"
        kinds = {"wire cut": 4 + 1, "wire": 4, "wire tree0": 2, "wire tree1": 1, "wire idle": 1}
        kinds |= {"host stopped": 1, "soft stopped": 1, "host": 3, "switch away": 1, "switch": 3}  # rank 3 is late
        assert {kind: browser.execute_script(count, f'#topology [class="{kind}"]') for kind in kinds} == kinds
        said = " ".join(browser.execute_script("return document.querySelector('#links').textContent").split())
        assert said.split("left (port ")[1:] == [
            "9) to one (port 1): tree 0right (port 9) to one (port 2): tree 0", "8) to two (port 1): tree 1",
            "7) to right (port 7): in no tree of a job",
            "6) to elsewhere (port 1): in no tree of a jobright to two: is gone, and a job's tree needs it",
        ]  # fmt: skip
        alerts = text(browser, "#alerts")
        assert "Switch two is away; job digits has waited 7 s for it." in alerts
        assert "No answer. Its links to right are gone with it." in alerts
        legend = text(browser, "#legend")
        assert legend.startswith("tree 0 tree 1 red box: the others wait for this rank, or it is lost ")
        assert "red line with a cross: this link is down or gone red switch: it does not answer" in legend
        assert "Rank 3 (late) has been outside collectives for 7 s; ranks 0, 1 and 2 wait for it." in alerts
        grid = browser.find_element(By.CSS_SELECTOR, "canvas.slots")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", grid)
        ActionChains(browser).move_to_element_with_offset(grid, 3 - grid.size["width"] // 2, 0).click().perform()
        assert eventually(lambda: "contribution job 1.2 rank 1 slot 4 number 40" in text(browser, ".packets"), 30)
        drawn_curves = "return document.querySelectorAll('.charts .uplot canvas').length"
        browser.refresh()
        assert eventually(lambda: browser.execute_script(drawn_curves) == 1, 30)  # the others have nothing to draw
        is_accessible(browser)
        where = "const one = document.activeElement; return [one.dataset.switch, one.ariaExpanded]"
        browser.execute_script("document.querySelector('[data-switch=left]').focus()")
        for folded in ("false", "true"):  # whoever folds a switch by the keyboard stays at it
            ActionChains(browser).send_keys(Keys.ENTER).perform()
            assert browser.execute_script(where) == ["left", folded]
        assert browser.get_log("browser") == []
    finally:
        server.stop()


WRONG = "[aria-labelledby=alerts-title]"
NOT_KNOWN = "\N{EN DASH}"
BELOW = {
    "late": ('[aria-label^="Collectives of"] td.slow', "rank 5"),
    "fleet": ("#jobs", "They are not read while a switch of the job is away."),
    "absent": (
        "#jobs tbody",
        "0 - has joined, and waits for the others - - - - - not known yet 0 1 - has not joined".replace("-", NOT_KNOWN),
    ),
}
"""What must be read further down in some situations, and where."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_wrong_is_read_on_the_page_at_two_widths_and_in_light_and_dark(
    browser: Any, name: str, tmp_path: Path
) -> None:
    """With SWITCHSUM_SITUATIONS=FOLDER the pictures are written there, to be looked at."""
    make, said = SITUATIONS[name]
    situation = make()
    server = WebServer(situation, "127.0.0.1:0", print)
    looks = server._looks
    looks._thread.submit(with_history, situation, looks._painter, time.monotonic()).result()  # between two looks
    folder = Path(os.environ.get("SWITCHSUM_SITUATIONS", tmp_path))
    try:
        browser.get(server.url)
        assert eventually(lambda: all(one in text(browser, WRONG) for one in said), 30), text(browser, WRONG)
        where, wanted = BELOW.get(name, ("#jobs", ""))
        assert eventually(lambda: wanted in text(browser, where), 30), text(browser, where)
        assert eventually(lambda: looks.painted >= 5, 30)  # rates come from two pictures
        for width, scheme in ((1280, "light"), (1280, "dark"), (PHONE[0], "light"), (PHONE[0], "dark")):
            size = {"width": width, "height": 2000, "deviceScaleFactor": 1, "mobile": width == PHONE[0]}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            fits = f"return document.documentElement.scrollWidth <= {width}"
            assert eventually(partial(browser.execute_script, fits), 10)
            drawn = partial(lambda seen: looks.painted > seen, looks.painted)  # what is drawn has the new width
            assert eventually(drawn, 30)
            browser.save_screenshot(str(folder / f"{name}-{width}-{scheme}.png"))
        assert browser.get_log("browser") == []
    finally:
        server.stop()


def test_curves_that_had_nothing_to_draw_are_drawn_as_chosen_since(browser: Any) -> None:
    server = WebServer(Tree(), "127.0.0.1:0", print)
    code = """
    const [done] = arguments;
    import("./charts.js").then(({ charts }) => {
      const made = charts("other"), of = (lost) => [1e6, 0.5, lost, null], now = Date.now() / 1000;
      const point = (ago, lost) => [now - ago, 1, 1e6, 0.1, 0.5, lost, null, ...of(lost), ...of(lost)];
      const show = (lost) => made.show([3, 2, 1].map((ago) => point(ago, lost)), new Map());
      document.body.append(...made.parts);
      const [byRank, whole] = made.parts[0].lastChild.children, figure = made.parts[1].children[3];
      show(0.25);
      const before = figure.lastChild;
      show(0), whole.click(), show(0.25);
      const drawn = figure.innerText.trim(), isNew = !before.isConnected;
      byRank.click(), made.forget();
      done([drawn, isNew]);
    }).catch((error) => done([String(error), false]));
    """  # fmt: skip
    try:
        browser.get(server.url)
        assert browser.execute_async_script(code) == ["Lost frames 25\N{NO-BREAK SPACE}%", True]
    finally:
        server.stop()


def test_a_slot_that_is_opened_again_is_asked_for_once_at_a_time(browser: Any) -> None:
    server = WebServer(Tree(), "127.0.0.1:0", print)
    code = """
    const [done] = arguments, { fetch, setTimeout } = window, later = [];
    let asked = 0;
    import("./slot.js").then(async ({ slotPackets }) => {
      window.fetch = async () => { asked += 1; return { ok: true, json: async () => ({ packets: [], again_s: 1 }) }; };
      window.setTimeout = (call) => later.push(call);
      const made = slotPackets("other");
      document.body.append(...made.parts);
      for (const slot of [4, 4, 4]) made.open(slot);
      await new Promise((resolve) => setTimeout(resolve, 100));
      const first = asked;
      for (const call of later.splice(0)) call();
      Object.assign(window, { fetch, setTimeout });
      done([first, asked - first]);
    }).catch((error) => done(String(error)));
    """
    try:
        browser.get(server.url)
        assert browser.execute_async_script(code) == [3, 1]
    finally:
        server.stop()


def is_accessible(browser: Any) -> None:
    """Check the names in Chromium's accessibility tree, and where the tab key goes, with a visible mark."""
    from selenium.webdriver.common.keys import Keys

    names: dict[str, list[str]] = {}
    for node in browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]:
        if not node["ignored"]:
            names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", ""))
    sections = ["What is wrong", "Switches and hosts", "Jobs", "Job digits", "What the switch counts"]
    scrolled = [f"{what} of job digits" for what in ("Ranks", "Collectives")]
    scrolled += ["Slots of job digits that wait", "Counters of the switch"]
    assert sorted(names["region"]) == sorted(sections + scrolled)
    assert {*names["table"]} >= {"Slots that wait, and who is missing in them", "Packets by reason"}
    assert names["spinbutton"] == ["Slot of job digits"]
    assert "4 switches with 4 ranks" in names["image"]
    assert [one for one in names["image"] if one.startswith("1 slots from 4 on: ")]
    assert {"0", "1", "2", "3", "completed"} <= {*names["rowheader"]}
    assert {"switchsum", *sections[:2], "Slots"} <= {*names["heading"]}
    for role in ("image", "region", "table", "button", "link", "columnheader"):
        assert all(names[role]), role
    reached = []
    code = (
        "const one = document.activeElement; return one === document.body ? '' : "
        "(one.ariaLabel || one.innerText) + (getComputedStyle(one).outlineStyle === 'solid' ? '' : ' is not marked')"
    )
    for _ in range(26):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.execute_script(code))
    assert reached[:4] == ["To the jobs", "Colours: system", "Fold the 2 hosts of left", "Fold the 2 hosts of right"]
    heads = ["rank", "waits", "does", "outside calls", "MB/s", "lost", "marked", "calls/s", "host"]
    curves, form = ["1 min", "10 min", "1 hour", "by rank", "whole job"], ["Slot of job digits", "Show its packets"]
    assert reached[4:] == [
        "The links in words", scrolled[0], *heads, scrolled[1], *curves, *form, *scrolled[2:], "metrics"
    ]  # fmt: skip


def is_usable(browser: Any) -> None:
    """Check phone width, dark colours, names for screen readers, and the keyboard."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    code = "return [...document.querySelectorAll('[role=img], canvas')].every((one) => one.getAttribute('aria-label'))"
    assert browser.execute_script(code)
    assert browser.execute_script(
        "return [...document.querySelectorAll('table:not(.u-legend)')].every((one) => one.caption)"
    )
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.execute_script("return document.activeElement.className") == "skip"
    light = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != light
    size = {"width": PHONE[0], "height": PHONE[1], "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_script("scrollTo(0, 0)")
    assert eventually(lambda: browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0], 10)
    browser.execute_script("document.activeElement.blur()")
    picture(browser, "page-phone")
