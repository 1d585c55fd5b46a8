"""The fixture that puts a test into a network namespace leaves nothing of it to later tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

from conftest import new_network_namespace
from support.timing import patience


@contextmanager
def connection(address: str) -> Iterator[None]:
    """Serve at an address, and be connected to it from the same process."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port(address)
    server.start()
    with grpc.insecure_channel(address.replace(":0", f":{port}")) as channel:
        grpc.channel_ready_future(channel).result(patience(10))
        yield
    server.stop(None)


@pytest.mark.root
def test_grpc_finds_a_port_after_a_namespace_and_a_fork_in_it(grpc_at_home: None, tmp_path: Path) -> None:
    with ExitStack() as longer:
        with new_network_namespace():
            longer.enter_context(connection(f"unix:{tmp_path}/socket"))
            if (child := os.fork()) == 0:
                os._exit(0)
            os.waitpid(child, 0)
        with connection("127.0.0.1:0"):
            pass
