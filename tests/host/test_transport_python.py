"""Links whose operations are Python methods: the one that docs/walks.md shows, and methods that raise."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from switchsum.testing.cluster import ClusterConfig
from switchsum.testing.engine import EngineByHand
from switchsum.testing.local import LocalMembership, LocalNetwork, LocalTransport
from switchsum_host.api.communicator import Communicator
from switchsum_host.engine.engine import Engine
from switchsum_host.engine.loop import Driver
from switchsum_host.engine.operation import Operation
from switchsum_host.engine.state import Count
from switchsum_host.links.callbacks import PythonTransport
from switchsum_protocol.frame import FRAME_BYTES, payload_bytes
from switchsum_protocol.slot_rules import ReferenceSwitch
from switchsum_switch.wires.packetsocket import open_packet_socket

CONFIG = ClusterConfig(workers=2, lanes_per_frame=64)
FRAME = FRAME_BYTES + payload_bytes(CONFIG.lanes_per_frame)


def raw_transport() -> Any:
    """Return the class that docs/walks.md shows."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "walks.md").read_text()
    scope: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(code, scope)
    return scope["RawTransport"]


@pytest.fixture
def interface(network_namespace: None) -> Iterator[str]:
    """One end of a veth pair, whose other end is called switch."""
    for words in (
        "link add switch type veth peer name worker",
        "link set switch up",
        "link set worker up",
        "address add 10.0.0.2/24 dev worker",
    ):
        subprocess.run(["ip", *words.split()], check=True)
    yield "worker"
    subprocess.run(["ip", "link", "del", "switch"], check=True)


@pytest.mark.root
def test_the_link_of_the_page_adds(interface: str) -> None:
    links = [raw_transport()(interface, rows=2 * CONFIG.window_slots, frame_bytes=FRAME) for _ in range(2)]
    switch = ReferenceSwitch(lanes_per_frame=CONFIG.lanes_per_frame)
    made = []
    for rank, link in enumerate(links):
        engine_config = CONFIG.engine(rank)
        object.__setattr__(engine_config, "own", link.address)
        member = CONFIG.member(rank)
        object.__setattr__(member, "address", link.address)
        object.__setattr__(member, "port", 1)
        switch.admit(member)
        driver = Driver(Engine(engine_config, link.tx_frames, link.lead), link)
        made.append(Communicator(driver, LocalMembership(), rank=rank, world_size=2))
    end, is_over = open_packet_socket("switch"), threading.Event()
    end.settimeout(0.05)

    def process() -> None:
        while not is_over.is_set():
            try:
                frame = end.recv(1 << 16)
            except TimeoutError:
                continue
            for _, answer in switch.process(1, frame):
                end.send(answer)

    thread = threading.Thread(target=process)
    thread.start()
    try:
        for size in (1, 1000):
            arrays = [np.arange(size, dtype=np.float32) + rank for rank in range(2)]
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda pair: pair[0].allreduce(pair[1]), zip(made, arrays, strict=True)))
            for array in arrays:
                np.testing.assert_allclose(array, 2 * np.arange(size) + 1, rtol=1e-6)
    finally:
        is_over.set()
        thread.join()
        end.close()
        for communicator in made:
            communicator.close()


class Odd(Exception):
    """What a method raises."""


class Raising(LocalTransport):
    """Raises once in one of its methods, where `raises` says so."""

    raises = ""

    def _maybe(self, name: str) -> None:
        if self.raises == name:
            self.raises = ""
            raise Odd(name)

    def receive(self) -> Any:
        self._maybe("receive")
        return super().receive()

    def release(self) -> None:
        self._maybe("release")
        super().release()

    def send(self, rows: Any, lengths: Any) -> int:
        self._maybe("send")
        count = super().send(rows, lengths)
        self._maybe("after send")
        return count

    def wait(self, timeout_s: float) -> bool:
        self._maybe("wait")
        return super().wait(min(timeout_s, 0.001))


@pytest.mark.parametrize("name", ["receive", "release", "send", "after send", "wait"])
def test_what_a_method_raises_is_raised_once_and_the_loop_goes_on_from_there(name: str) -> None:
    config = ClusterConfig(workers=1, lanes_per_frame=64)
    switch = ReferenceSwitch(lanes_per_frame=64)
    switch.admit(config.member(0))
    rows = 2 * config.window_slots
    link = Raising(LocalNetwork(switch), 1, config.address(0), rows=rows, frame_bytes=FRAME)
    engine = EngineByHand(config.engine(0), link.tx_frames, link.lead)
    driver = Driver(engine, link)
    values, raised = np.ones(1000, np.int32), list[str]()
    link.raises = name
    if name == "wait":  # there is nothing to wait for later: this switch answers at once
        with pytest.raises(Odd, match=name):
            driver.step(0.05)
        raised.append(name)
    engine.submit(Operation.of(values), values, link.now())
    for _ in range(1000):
        try:
            if driver.step(0.05):
                break
        except Odd as error:
            raised.append(str(error))
    assert raised == [name]
    assert (values == 1).all()
    assert engine.under_way == 0
    core = engine.state.core[0]
    assert core["sending"]["sequence"] - core["sending"]["queued"] == link.pushed


class Reopened(LocalTransport):
    """Opens its link again when it is told to."""

    reopened = 0

    def open_again(self) -> None:
        self.tx_frames = self.tx_frames.copy()
        self.reopened += 1


def test_what_begins_after_a_link_was_opened_again_is_packed_into_its_new_rows() -> None:
    config = ClusterConfig(workers=1, lanes_per_frame=64)
    switch = ReferenceSwitch(lanes_per_frame=64)
    switch.admit(config.member(0))
    rows = 2 * config.window_slots
    link = Reopened(LocalNetwork(switch), 1, config.address(0), rows=rows, frame_bytes=FRAME)
    driver = Driver(Engine(config.engine(0), link.tx_frames, link.lead), link)
    link.open_again()
    values = np.ones(1000, np.int32)
    operation = Operation.of(values)
    operation.make_record(driver.engine.lanes_per_frame, driver.engine.world_size)
    is_over = driver.submit(operation, values, 0.0)
    for _ in range(1000):
        if is_over or driver.step(0.05):
            break
    assert driver.engine.under_way == 0
    assert driver.engine.counts[Count.PROBES] + driver.engine.counts[Count.OVERTAKEN] == 0


def test_methods_that_a_link_lacks_are_named() -> None:
    with pytest.raises(NotImplementedError):
        PythonTransport().receive()
