"""A controller that stands by: at a port that another one has, and at an address that moves to its machine."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.daemons import SWITCHSUM
from support.timing import patience

Await = Callable[[str], None]


@contextmanager
def standby(listen: str) -> Iterator[Await]:
    """Start a controller that stands by, without a switch; yield a function that waits for a line it writes."""
    command = [*SWITCHSUM, "controller", "--switch", "unix:/nowhere/switch", "--listen", listen, "--standby"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    seen = []

    def await_line(text: str) -> None:
        for line in lines:
            seen.append(line)
            if text in line:
                return
        pytest.fail(f"no {text!r} in {''.join(seen)}")

    try:
        yield await_line
        process.terminate()
        assert process.wait(patience(30)) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_port_of_another_controller_is_taken_when_that_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with standby(listen) as await_line:
            await_line(f"stands by for the one at {listen}")
            other.close()
            await_line(f"controller at {listen}")


@pytest.mark.root
@pytest.mark.usefixtures("network_namespace")
def test_an_address_that_moves_to_this_machine_is_taken_when_it_comes() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with standby("10.0.0.5:9600") as await_line:
        await_line("stands by: ")
        subprocess.run(["ip", "address", "add", "10.0.0.5/32", "dev", "lo"], check=True)
        await_line("controller at 10.0.0.5:9600")


def test_an_address_that_cannot_be_is_refused() -> None:
    command = [*SWITCHSUM, "controller", "--listen", "10.0.0.5:77777", "--standby"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(30), check=False)
    assert (done.returncode, done.stderr.startswith("switchsum: an address is host:port")) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ip", "10.0.0"), "10.0.0"),
        (("--station", "02:00:00:00:00:01@511"), "a station is MAC@PORT"),
        (("--fleet", "{}"), "fleet.json"),
        (("--fleet", '{"switches": {"a": {}, "b": {}}}'), "fleet.json"),
        (("--fleet", "{}", "--switch", "unix:/nowhere"), "not both"),
    ],
)
def test_what_it_was_told_is_read_before_it_stands_by(options: tuple[str, ...], said: str, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.json"
    fleet.write_text(options[1])
    given = [str(fleet) if value == options[1] and "--fleet" in options else value for value in options]
    with socket.create_server(("127.0.0.1", 0)) as other:
        command = [*SWITCHSUM, "controller", "--listen", f"127.0.0.1:{other.getsockname()[1]}", "--standby", *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(20), check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "stands by" not in done.stderr
