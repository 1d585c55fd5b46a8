"""Who may talk to whom over TLS, with the certificates of `switchsum tls`."""

from __future__ import annotations

import shutil
import stat
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from typer.testing import CliRunner

from support.timing import patience
from switchsum import launch
from switchsum.cli.app import application
from switchsum.launch import authority
from switchsum_protocol import rpc
from switchsum_protocol.clients.controller_client import ControllerClient
from switchsum_protocol.errors import ControllerUnreachable, LocalError, SwitchsumError, UsageError
from switchsum_switch.connections import serving, tls

pytest.importorskip("cryptography", reason="needs the extra tls")

LOOPBACK = "127.0.0.1:0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "made"
    made = CliRunner().invoke(application(), ["tls", str(directory)])
    assert made.exit_code == 0, made.output
    assert "worker: SWITCHSUM_TLS=" in made.output.replace("\n", "")
    return directory


def test_certificates_without_cryptography_name_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(launch, "authority")
    monkeypatch.setitem(sys.modules, "switchsum.launch.authority", None)
    refused = CliRunner().invoke(application(), ["tls", str(tmp_path / "made")])
    # Not the name of an extra of ours, which no index knows for a clone.
    assert isinstance(refused.exception, LocalError)
    command = f"{sys.executable} -m pip install cryptography"
    assert str(refused.exception) == f"certificates need the package cryptography: {command}"
    assert not (tmp_path / "made").exists()


class Echo:
    """A server of one kind, that says yes to everybody who gets in."""

    def __init__(self, kind: str) -> None:
        self.server = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: b"yes")
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Ask": handler}),))
        self.address = f"127.0.0.1:{serving.add_port(self.server, LOOPBACK, kind)}"
        self.server.start()


def is_let_in(address: str, kind: str) -> bool:
    with tls.open_channel(address, kind) as channel:
        try:
            ask = channel.unary_unary("/echo/Ask", None, None)
            return bool(ask(b"", timeout=patience(5.0)) == b"yes")
        except grpc.RpcError:
            return False


@pytest.mark.parametrize(
    ("kind", "server", "client", "expected"),
    [
        (tls.HOSTS, "controller", "worker", True),
        (tls.HOSTS, "worker", "worker", False),  # a worker cannot pass for the controller
        (tls.P4RUNTIME, "switch", "controller", True),
        (tls.P4RUNTIME, "controller", "controller", False),
        (tls.HOSTS, "controller", None, False),
        (tls.HOSTS, None, "worker", False),
    ],
)
def test_who_is_let_in(
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    server: str | None,
    client: str | None,
    expected: bool,
) -> None:
    monkeypatch.setenv(tls.VARIABLE, str(certificates / server) if server else "")
    echo = Echo(kind)
    monkeypatch.setenv(tls.VARIABLE, str(certificates / client) if client else "")
    assert is_let_in(echo.address, kind) is expected
    echo.server.stop(0)


def test_an_authority_of_the_other_kind_or_of_somebody_else_is_none(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(tls.VARIABLE, str(certificates / "switch"))
    echo = Echo(tls.P4RUNTIME)
    authority.make(tmp_path / "other", days=1)
    monkeypatch.setenv(tls.VARIABLE, str(tmp_path / "other" / "controller"))
    assert not is_let_in(echo.address, tls.P4RUNTIME)
    # A worker's certificate does not open the switch.
    mixed = tmp_path / "mixed" / tls.P4RUNTIME
    mixed.mkdir(parents=True)
    for name in tls.FILES:
        (mixed / name).write_bytes((certificates / "worker" / tls.HOSTS / name).read_bytes())
    monkeypatch.setenv(tls.VARIABLE, str(tmp_path / "mixed"))
    assert not is_let_in(echo.address, tls.P4RUNTIME)
    echo.server.stop(0)


def test_a_client_without_a_certificate_is_told_that_the_other_side_may_use_tls(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(tls.VARIABLE, str(certificates / "controller"))
    echo = Echo(tls.HOSTS)
    monkeypatch.delenv(tls.VARIABLE)
    client = ControllerClient(echo.address, timeout_s=patience(5))
    with client, pytest.raises(ControllerUnreachable, match="SWITCHSUM_TLS"):
        client.show_job(rpc.JobRequest(job="a"))
    echo.server.stop(0)


def test_keys_are_readable_by_nobody_else_and_a_directory_is_not_overwritten(certificates: Path) -> None:
    for path in certificates.rglob("*.pem"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(UsageError, match="exists"):
        authority.make(certificates, days=1)


def test_missing_files_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(tls.VARIABLE, str(tmp_path))
    with pytest.raises(SwitchsumError, match=r"ca\.pem"):
        tls.open_channel(LOOPBACK, tls.HOSTS)
    tls.open_channel("unix:/nowhere", tls.HOSTS).close()


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "no PEM": lambda data: b"junk\n",
    "zeros": lambda data: bytes(40),
    "half": lambda data: data[: len(data) // 2],
    "nothing inside": lambda data: b"".join(data.splitlines(keepends=True)[:: len(data.splitlines()) - 1]),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("name", tls.FILES)
def test_a_file_without_a_whole_certificate_is_named(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, fault: str
) -> None:
    """gRPC would end the process with SIGABRT for an empty certificate or key."""
    shutil.copytree(certificates / "controller", tmp_path / "broken")
    monkeypatch.setenv(tls.VARIABLE, str(tmp_path / "broken"))
    for kind in (tls.HOSTS, tls.P4RUNTIME):
        file = tmp_path / "broken" / kind / name
        file.write_bytes(BROKEN[fault](file.read_bytes()))
        with pytest.raises(UsageError, match=rf"{name} holds no whole (certificate|key) \(PEM") as caught:
            tls.open_channel(LOOPBACK, kind)
        assert "\n" not in str(caught.value)
        with pytest.raises(UsageError, match=name):
            serving.add_port(grpc.server(ThreadPoolExecutor(1)), LOOPBACK, kind)


def test_a_key_of_another_certificate_is_named(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(certificates / "controller", tmp_path / "broken")
    shutil.copy(certificates / "worker" / tls.HOSTS / "key.pem", tmp_path / "broken" / tls.HOSTS)
    monkeypatch.setenv(tls.VARIABLE, str(tmp_path / "broken"))
    with pytest.raises(UsageError, match=r"key\.pem is not the key of cert\.pem"):
        tls.open_channel(LOOPBACK, tls.HOSTS)


def test_an_address_that_others_can_reach_is_warned_of(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    serving.warn_of(f"unix:{tmp_path}/socket")
    assert not caplog.records
    for address in ("127.0.0.1:0", "localhost:0", "[::1]:0"):
        serving.warn_of(address)
        assert "every user of this machine may give orders" in caplog.text
        caplog.clear()
    serving.warn_of("0.0.0.0:0")
    assert "everybody who can reach this address may give orders" in caplog.text
