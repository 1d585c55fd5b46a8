"""The fixtures for tests of P4 programs, in a pytest of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .test_switch_api import FORWARDER, files

TEST = """
def test_forward(p4_switch):
    switch = p4_switch("solution.json", "solution.p4info.txtpb")
    switch.tables["stations"].insert({"hdr.ethernet.destination": 1}, "forward", port=3)
    assert switch.process(1, bytes(5) + b"\\1" + bytes(8)) == [(4, b"")]
"""


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in files("solution", FORWARDER):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["switchsum_switch.pytest_plugin"]\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_own.py").write_text(TEST)
    return tmp_path


def test_a_failure_shows_what_the_program_did(folder: Path) -> None:
    shown = run(folder)
    assert "1 failed" in shown
    assert "what the P4 program did" in shown
    assert "hit: hdr.ethernet.destination=00:00:00:00:00:01 -> SwitchIngress.forward(port=3)" in shown
    assert "send 14 bytes to port 3" in shown


def test_native_code_has_no_traces(folder: Path) -> None:
    shown = run(folder, "--p4-native")
    assert "1 failed" in shown
    assert "what the P4 program did" not in shown


def test_a_source_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    compiler = folder / "bin" / "p4c-bm2-ss"
    compiler.write_text(
        "#!/bin/sh\necho called >> calls\n"
        'while [ $# -gt 1 ]; do case "$1" in -o) cp solution.json "$2";; '
        '--p4runtime-files) cp solution.p4info.txtpb "$2";; esac; shift; done\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
    (folder / "solution.p4").touch()
    source = TEST.replace('"solution.json", "solution.p4info.txtpb"', '"solution.p4"').replace("(4,", "(3,")
    source = source.replace('b"")', 'bytes(5) + b"\\1" + bytes(8))')
    (folder / "test_own.py").write_text(source + source.replace("test_forward", "test_again"))
    assert "2 passed" in run(folder)
    assert (folder / "calls").read_text().split() == ["called"]


def test_a_test_that_passes_is_silent(folder: Path) -> None:
    (folder / "test_own.py").write_text(TEST.replace('(4, b"")', '(3, bytes(5) + b"\\1" + bytes(8))'))
    assert "1 passed" in run(folder)
