"""`switchsum doctor`: what it finds on machines that lack things, and how it reports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import switchsum
from support.timing import patience
from switchsum.cli.app import application
from switchsum.doctor import Finding, Verdict, examine, machine, python
from switchsum.topologies import Leftovers
from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE


def write_program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "switchsum", "--version"],
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=True,
    )
    assert done.stdout.startswith(f"switchsum {switchsum.__version__}")


def test_this_machine_has_the_essentials() -> None:
    findings = examine()
    assert [finding.name for finding in findings if finding.essential and finding.state is not Verdict.OK] == []
    assert len({finding.name for finding in findings}) == len(findings)


def test_json_holds_every_finding_and_a_remedy_for_what_is_missing() -> None:
    result = CliRunner().invoke(application(), ["doctor", "--json"])
    assert result.exit_code == 0
    records = json.loads(result.stdout)
    assert [record["name"] for record in records] == [finding.name for finding in examine()]
    assert all(record["remedy"] for record in records if record["state"] == "missing")


def test_empty_path_is_reported_but_not_fatal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(application(), ["doctor", "--json"])
    assert result.exit_code == 0
    states = {record["name"]: record["state"] for record in json.loads(result.stdout)}
    for name in ("ip", "tc", "ethtool", "p4c-bm2-ss", "simple_switch_grpc", "mn", "veth links", "rate limit"):
        assert states[name] == "missing", name


def test_missing_package_is_fatal_and_its_command_is_printed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(python.IMPORTED, "no_such_module", "no-such-distribution")
    result = CliRunner().invoke(application(), ["doctor"])
    assert result.exit_code == 1
    assert f"{sys.executable} -m pip install --upgrade no-such-distribution" in result.stdout


def test_version_of_a_program_is_found_in_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "p4c-bm2-ss", "echo 1.15.0-0f4c5f1c")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    finding = check_program("p4c-bm2-ss")
    assert finding.state is Verdict.OK
    assert finding.found.startswith("1.15.0-0f4c5f1c ")


def test_broken_program_is_told_from_a_missing_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "p4c-bm2-ss", "echo 'cannot open shared object file' >&2; exit 127")
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = check_program("p4c-bm2-ss")
    assert finding.state is Verdict.LIMITED
    assert "shared object" in finding.found


def test_a_system_without_packages_of_p4c_gets_its_page_and_not_bmv2s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: {"ID": "arch"})
    monkeypatch.setenv("PATH", "")
    assert check_program("p4c-bm2-ss").remedy.startswith("https://github.com/p4lang/p4c#")
    assert machine.check_bmv2().remedy.startswith("https://github.com/p4lang/behavioral-model")


def test_a_directory_that_others_may_enter_is_told_without_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv(RUNTIME_VARIABLE, str(tmp_path))
    finding = machine.check_sockets()
    assert finding.state is Verdict.MISSING
    assert f"others may enter {tmp_path}" in finding.found
    assert "to another one" not in finding.found


def check_program(name: str) -> Finding:
    return next(machine.check_program(program) for program in machine.programs() if program.name == name)


@pytest.mark.parametrize(
    ("output", "as_root", "settings", "remedy"),
    [
        ("", False, {"kernel/apparmor_restrict_unprivileged_userns": "1"}, "apparmor_restrict_unprivileged_userns=0"),
        ("", False, {"kernel/unprivileged_userns_clone": "0"}, "unprivileged_userns_clone=1"),
        ("", False, {"user/max_user_namespaces": "0"}, "max_user_namespaces="),
        ("unshare: Operation not permitted", False, {"user/max_user_namespaces": "9"}, "sudo switchsum run"),
        ("unshare: Operation not permitted", True, {}, "--cap-add NET_ADMIN"),
        ("Error: Unknown device type.", False, {}, "modprobe veth"),
        ("Error: Specified qdisc kind is unknown.", True, {}, "modprobe sch_tbf"),
    ],
)
def test_refused_namespace_is_explained(
    output: str, as_root: bool, settings: dict[str, str], remedy: str, tmp_path: Path
) -> None:
    for name, value in settings.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{value}\n")
    reason, command = machine.explain_refusal(output, as_root=as_root, proc_sys=tmp_path)
    assert reason
    assert remedy in command


def test_what_a_mininet_has_left_is_reported_with_the_command_that_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_leftovers", lambda: Leftovers(interfaces=("s1-eth2",), processes=(4711,)))
    finding = machine.check_leftovers()
    assert finding.state is Verdict.LIMITED
    assert finding.found == "s1-eth2 and process 4711"
    assert finding.remedy == "sudo kill -9 4711; sudo ip link delete s1-eth2"


@pytest.mark.root
def test_root_can_make_limited_veth_links() -> None:
    assert machine.check_veth().state is Verdict.OK
    assert machine.check_rate().state is Verdict.OK


@pytest.fixture
def no_shell_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("SWITCHSUM_P4RT_SHELL_PYTHON", raising=False)


@pytest.mark.usefixtures("no_shell_environment")
def test_shell_is_found_in_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "has_module", lambda name: False)
    assert python.check_shell().state is Verdict.MISSING
    environment = python.shell_environment()
    assert str(environment) in python.check_shell().remedy
    package = environment / "lib/python3.11/site-packages/p4runtime_sh"
    package.mkdir(parents=True)
    (package / "__main__.py").touch()
    assert python.find_shell_python() == environment / "bin" / "python"


@pytest.mark.parametrize(
    ("protobuf", "state"), [("3.20.3", Verdict.OK), ("3.21.0", Verdict.LIMITED), ("7.36.2", Verdict.LIMITED)]
)
@pytest.mark.usefixtures("no_shell_environment")
def test_shell_conflicts_with_a_newer_protobuf(protobuf: str, state: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "has_module", lambda name: True)
    monkeypatch.setattr(python, "version_of", lambda name: protobuf)
    finding = python.check_shell()
    assert finding.state is state
    assert bool(finding.remedy) == (state is Verdict.LIMITED)


def test_shell_is_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHSUM_P4RT_SHELL_PYTHON", "/elsewhere/bin/python")
    assert python.find_shell_python() == Path("/elsewhere/bin/python")
