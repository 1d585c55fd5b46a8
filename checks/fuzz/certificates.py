"""Certificates and keys into servers and clients: PEM files that are damaged, for some of which gRPC would abort."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from checks.fuzz.choices import Choices
from checks.fuzz.damage import damaged, scratch_folder
from switchsum.launch import authority
from switchsum_protocol.errors import UsageError
from switchsum_switch.connections import serving, tls

BLOCKS: Final = (
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----END CERTIFICATE-----\n",
    b"-----BEGIN PRIVATE KEY-----\n",
    b"\n",
    b"",
)
CALL_S: Final = 0.2


class Target:
    """Opens a port and a channel with the files."""

    def __init__(self) -> None:
        folder = scratch_folder()
        good, self._damaged = folder / "good", folder / "damaged"
        authority.make(good, days=30)
        self._good = {name: (good / "controller" / tls.HOSTS / name).read_bytes() for name in tls.FILES}
        shutil.copytree(good / "controller", self._damaged)

    def run(self, data: bytes) -> None:
        """Damage one of the files, and use them."""
        choices = Choices(data)
        name = choices.pick(tls.FILES)
        for each, text in self._good.items():
            made = damaged(text, choices, BLOCKS) if each == name else text
            (self._damaged / tls.HOSTS / each).write_bytes(made)
        os.environ[tls.VARIABLE] = str(self._damaged)
        refusal = ""
        server = grpc.server(ThreadPoolExecutor(1))
        try:
            port = serving.add_port(server, "127.0.0.1:0", tls.HOSTS)
            server.start()
            with tls.open_channel(f"127.0.0.1:{port}", tls.HOSTS) as channel:
                channel.unary_unary("/a/B", None, None)(b"", timeout=CALL_S)
        except UsageError as error:
            refusal = str(error)
        except (grpc.RpcError, RuntimeError):
            pass  # nobody believes these certificates, or the port is not had
        finally:
            server.stop(0)
            del os.environ[tls.VARIABLE]
        assert "\n" not in refusal


def seeds() -> Iterator[bytes]:
    """Return inputs that cut each file off, at its begin and later."""
    for file in range(3):
        for place in range(0, 256, 64):
            yield bytes([file, 1, 0, 0, place, 0, 4])
            yield bytes([file, 1, 0, 1, place, 9, 0, 2])
