"""The Wireshark dissector: tshark reads with it what our own switch records."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from support.timing import patience
from switchsum.testing.rig import SWITCH, worker
from switchsum_protocol.frame import FIELDS, NO_BLOCK, Flag, Header, Kind, LaneFormat, Reason
from switchsum_protocol.lanes import widened
from switchsum_protocol.wire import build_frame

ROOT = Path(__file__).parent.parent.parent
DISSECTOR = ROOT / "src" / "switchsum" / "packets" / "switchsum.lua"
TSHARK = pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not on PATH")
TRAINING = "import numpy as np, switchsum\nwith switchsum.connect() as c: c.allreduce(np.full(300, 7, np.int32))"


def dissect(capture: Path, *options: str, home: Path) -> str:
    """Run tshark with the dissector; an error in it would be on standard error."""
    command = ["tshark", "-X", f"lua_script:{DISSECTOR}", "-r", str(capture), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=patience(50), check=True, env={**os.environ, "HOME": str(home)}
    )
    assert "Lua" not in done.stderr, done.stderr
    return done.stdout


def fields(capture: Path, *names: str, home: Path) -> list[dict[str, list[str]]]:
    """Return the wanted fields of each frame that is ours."""
    wanted = [word for name in names for word in ("-e", name)]
    text = dissect(capture, "-T", "json", *wanted, "-Y", "switchsum", home=home)
    return [packet["_source"]["layers"] for packet in json.loads(text)]


@TSHARK
@pytest.mark.timeout(120)
def test_what_our_switch_records_is_read(tmp_path: Path) -> None:
    capture = tmp_path / "frames.pcapng"
    command = [sys.executable, "-m", "switchsum", "run", "-n", "2", "--lanes", "128", "--pcap", str(capture)]
    done = subprocess.run(
        [*command, "--timeout", f"{patience(60)}", "--", sys.executable, "-c", TRAINING],
        capture_output=True, text=True, timeout=patience(100), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = [f"switchsum.{name}" for name in FIELDS]
    found = fields(capture, *names, "switchsum.lane.int32", home=tmp_path)
    kinds = [int(frame["switchsum.kind"][0]) for frame in found]
    assert {Kind.HELLO, Kind.CONTRIBUTION, Kind.RESULT} <= set(kinds)
    results = [frame for frame, kind in zip(found, kinds, strict=True) if kind == Kind.RESULT]
    lanes = [frame["switchsum.lane.int32"] for frame in results if "switchsum.lane.int32" in frame]
    assert lanes
    assert {lane for frame in lanes for lane in frame} == {"14", "0"}
    assert all(len(frame) == 128 for frame in lanes)
    assert all(set(names) <= frame.keys() for frame in found)
    assert dissect(capture, "-Y", "_ws.malformed", home=tmp_path) == ""
    hellos = ("-Y", "switchsum_controller && switchsum.kind == 5", "-T", "fields", "-e", "switchsum.rank")
    assert set(dissect(capture, *hellos, home=tmp_path).split()) == {"0", "1"}  # a packet-in of each member's hello
    assert not subprocess.run(
        ["tshark", "-r", str(capture), "-Y", "_ws.malformed"], capture_output=True, check=True, timeout=patience(50)
    ).stdout


def specials() -> list[bytes]:
    """Return frames of every sort that the dissector has something to say about."""
    header: dict[str, Any] = {"kind": Kind.CONTRIBUTION, "job": 7}
    made = {
        "overflow": Header(kind=Kind.RESULT, flags=Flag.OVERFLOW),
        "mismatch": Header(kind=Kind.RESULT, flags=Flag.MISMATCH),
        "mark": Header(kind=Kind.RESULT, flags=Flag.MARK),
        "repeat": Header(**header, flags=Flag.REPEAT),
        "held": Header(kind=Kind.HELD, bitmap=5),
        "reject": Header(kind=Kind.REJECT, reason=Reason.NOT_ADMITTED),
        "version": Header(**header, version=9),
        "length": Header(**header, flags=Flag.PAYLOAD),
    }
    return [build_frame(worker(0), SWITCH, value, bytes(4 * (name == "length"))) for name, value in made.items()]


@TSHARK
def test_what_is_wrong_is_expert_information(tmp_path: Path) -> None:
    frames = specials()
    frames.append(build_frame(worker(0), SWITCH, Header(kind=Kind.HELLO))[:70])
    capture = tmp_path / "frames.pcap"
    wrpcap(str(capture), [Ether(frame) for frame in frames])
    names = ["overflow", "mismatch", "mark", "repeat", "held", "reject", "version", "length"]
    found = fields(capture, *(f"switchsum.expert.{name}" for name in names), home=tmp_path)
    assert [list(frame) for frame in found[:8]] == [[f"switchsum.expert.{name}"] for name in names]
    text = dissect(capture, home=tmp_path).splitlines()
    assert "reject (not_admitted)" in text[5]
    assert "next none" in text[0]


@TSHARK
@pytest.mark.parametrize("lane_format", LaneFormat)
def test_lanes_are_numbers_of_their_format(lane_format: LaneFormat, tmp_path: Path) -> None:
    dtype = f">i{lane_format.bits // 8}"
    values = np.resize(np.array([-3, 0, 100, 5]), 512 // np.dtype(dtype).itemsize).astype(dtype)
    header = Header(kind=Kind.RESULT, format=lane_format, flags=Flag.PAYLOAD, next_block=NO_BLOCK - 1, digest=0xABC)
    capture = tmp_path / "frames.pcap"
    wrpcap(str(capture), [Ether(build_frame(SWITCH, worker(0), header, values.tobytes()))])
    lane = f"switchsum.lane.{lane_format.name.lower()}"
    [found] = fields(capture, lane, "switchsum.next_block", "switchsum.digest", home=tmp_path)
    assert [int(value) for value in found[lane]] == values.tolist()
    assert (found["switchsum.next_block"], found["switchsum.digest"]) == ([str(NO_BLOCK - 1)], ["0x00000abc"])


@TSHARK
@pytest.mark.parametrize(("lane_format", "dtype"), [(LaneFormat.WIDENED, ">i2"), (LaneFormat.NIBBLES, ">i1")])
def test_what_the_switch_widens_is_shown_in_the_order_of_its_lanes(
    tmp_path: Path, lane_format: LaneFormat, dtype: str
) -> None:
    payload = np.random.default_rng(1).integers(0, 256, 512, np.uint8).tobytes()
    header = Header(kind=Kind.CONTRIBUTION, format=lane_format, flags=Flag.PAYLOAD)
    capture = tmp_path / "frames.pcap"
    senders = [worker(0), replace(worker(0), port=SWITCH.port)]  # what a switch sends up has been widened
    wrpcap(str(capture), [Ether(build_frame(sender, SWITCH, header, payload)) for sender in senders])
    lane = f"switchsum.lane.{lane_format.name.lower()}"
    found = fields(capture, lane, "switchsum.expert.length", home=tmp_path)
    lanes = [widened(payload, lane_format).view(dtype).tolist(), np.frombuffer(payload, dtype).tolist()]
    assert [[int(value) for value in frame[lane]] for frame in found] == lanes
    assert not any("switchsum.expert.length" in frame for frame in found)
