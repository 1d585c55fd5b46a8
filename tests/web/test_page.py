"""The page in headless Chromium, of real jobs: what is wrong with each is found on it by name.

With SWITCHSUM_SCREENSHOTS=docs/images (`make screenshots`) it writes the pictures of docs/live-page.md and README.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from switchsum.connections.controller_client import ControllerClient
from switchsum.launch.bmv2 import free_port
from switchsum.protocol import member_rpc, rpc
from switchsum.protocol.errors import UnknownJob
from switchsum.web.server import WebServer

from ..system.daemons import run_here
from ..system.parts import Parts, Process
from ..timing import eventually, patience
from .made_up import Tree
from .situations import SITUATIONS

LACKING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(LACKING), reason=f"{' and '.join(LACKING)} not on PATH"),
    pytest.mark.skipif(find_spec("selenium") is None, reason="selenium is not installed"),
]
PHONE = (390, 844)
COLOURS = 64
"""Of a picture: it has a third of the bytes."""


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

        assert eventually(lambda: "rank 0 waits for rank 1 (host" in alerts(), 90), alerts()
        assert eventually(lambda: "The link of rank 1 (host" in alerts(), 90), alerts()
        assert "Job slow: rank 0 waits for rank 1" in alerts()
        assert ", link shm)" in alerts()
        assert "Job lossy: The link of rank 1" in alerts()
        assert "Rank 0 of job 'forgotten' was not let in: there is no job 'forgotten'" in alerts()
        assert "It has no slots;" in alerts()
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


def test_switches_trees_and_several_links_of_a_worker_are_drawn(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    server = WebServer(Tree(), "127.0.0.1:0", print)
    try:
        browser.get(server.url)
        rates = re.compile(r"one [1-9][\d,.]* contributions/s two away left [1-9]")
        assert eventually(lambda: rates.search(text(browser, "#topology")), 30), text(browser, "#topology")
        drawn = text(browser, "#topology")
        assert "digits/2 <b>h</b> port 2, 12 (down), " in drawn
        count = "return document.querySelectorAll(arguments[0]).length"
        kinds = {"wire bad": 4 + 1 + 1, "wire": 3, "wire tree0": 2, "wire tree1": 1, "wire idle": 1}  # rank 3 is late
        assert {kind: browser.execute_script(count, f'#topology [class="{kind}"]') for kind in kinds} == kinds
        assert text(browser, "#links").split("left (port ")[1:] == [
            "9) to one (port 1): tree 0 right (port 9) to one (port 2): tree 0 ", "8) to two (port 1): tree 1 ",
            "7) to right (port 7): in no tree of a job right to two: is gone, and a job's tree needs it",
        ]  # fmt: skip
        alerts = text(browser, "#alerts")
        assert "Switch two (unix:two) is away: no answer." in alerts
        assert "Links: the link from right to two is gone, which the tree needs." in alerts
        assert "wait for rank 3" in alerts
        grid = browser.find_element(By.CSS_SELECTOR, "canvas.slots")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", grid)
        ActionChains(browser).move_to_element_with_offset(grid, 3 - grid.size["width"] // 2, 0).click().perform()
        assert eventually(lambda: "contribution job 1.2 rank 1 slot 4 number 40" in text(browser, ".packets"), 30)
        drawn_curves = "return document.querySelectorAll('.charts .uplot canvas').length"
        browser.refresh()
        assert eventually(lambda: browser.execute_script(drawn_curves) == 4, 30)
        is_accessible(browser)
        assert browser.get_log("browser") == []
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", SITUATIONS)
def test_what_is_wrong_is_read_on_the_page_at_two_widths_and_in_light_and_dark(
    browser: Any, name: str, tmp_path: Path
) -> None:
    """With SWITCHSUM_SITUATIONS=FOLDER the pictures are written there, to be looked at."""
    make, said = SITUATIONS[name]
    server = WebServer(make(), "127.0.0.1:0", print)
    folder = Path(os.environ.get("SWITCHSUM_SITUATIONS", tmp_path))
    try:
        browser.get(server.url)
        assert eventually(lambda: all(one in text(browser, "#alerts") for one in said), 30), text(browser, "#alerts")
        assert eventually(lambda: browser.execute_script("return document.querySelector('.uplot') !== null"), 30)
        for width, scheme in ((1280, "light"), (1280, "dark"), (PHONE[0], "light"), (PHONE[0], "dark")):
            size = {"width": width, "height": 2000, "deviceScaleFactor": 1, "mobile": width == PHONE[0]}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            fits = f"return document.documentElement.scrollWidth <= {width}"
            assert eventually(partial(browser.execute_script, fits), 10)
            browser.save_screenshot(str(folder / f"{name}-{width}-{scheme}.png"))
        assert browser.get_log("browser") == []
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
    scrolled = ["Ranks of job digits", "Slots of job digits that wait", "Counters of the switch"]
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
    for _ in range(21):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        reached.append(browser.execute_script(code))
    assert reached[:4] == ["To the jobs", "Colours: system", "Fold the 2 hosts of left", "Fold the 2 hosts of right"]
    heads = ["rank", "waits", "does", "computes", "MB/s", "lost", "host", "a second"]
    periods, form = ["1 min", "10 min", "1 hour"], ["Slot of job digits", "Show its packets"]
    assert reached[4:] == [scrolled[0], *heads, *periods, *form, *scrolled[1:], "metrics"]


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
