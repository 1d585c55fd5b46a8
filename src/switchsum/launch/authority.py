"""Certificates for a test installation: two authorities sign all of them, and then their keys are thrown away.

There are two kinds of connections, each with an authority of its own: P4Runtime between controller and switch, and the
controller's own gRPC with hosts.  So a worker's certificate is of no use towards the switch.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage
from cryptography.x509.oid import NameOID

from switchsum_protocol.errors import UsageError
from switchsum_switch.connections.tls import FILES, HOSTS, NAME, P4RUNTIME

ROLES: Final = {
    "switch": {P4RUNTIME: Usage.SERVER_AUTH},
    "controller": {P4RUNTIME: Usage.CLIENT_AUTH, HOSTS: Usage.SERVER_AUTH},
    "worker": {HOSTS: Usage.CLIENT_AUTH},
}
"""Kinds of connections of each role, and on which side. The command line has a worker's role."""


def make(directory: Path, days: int) -> list[str]:
    """Write a folder for each role, which only this user can read; return the roles.  Raises UsageError.

    The keys of the authorities are not kept: to get one more certificate, make all of them again.
    """
    try:
        directory.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"{directory}: {error.strerror}") from error
    authorities = {kind: _Authority(f"{NAME} {kind}", days) for kind in (P4RUNTIME, HOSTS)}
    for role, kinds in ROLES.items():
        for kind, usage in kinds.items():
            folder = directory / role / kind
            folder.mkdir(parents=True, mode=0o700)
            for name, content in zip(FILES, authorities[kind].sign(role, usage), strict=True):
                with os.fdopen(os.open(folder / name, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
                    file.write(content)
    return list(ROLES)


class _Authority:
    """An authority: a key that signs certificates, and its own certificate."""

    def __init__(self, name: str, days: int) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        now = datetime.datetime.now(datetime.UTC)
        self._validity = now - datetime.timedelta(minutes=5), now + datetime.timedelta(days=days)
        constraint = x509.BasicConstraints(ca=True, path_length=0)
        builder = self._builder(self._name, self._key.public_key()).add_extension(constraint, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    def sign(self, role: str, usage: x509.ObjectIdentifier) -> tuple[bytes, bytes, bytes]:
        """Return the authority's certificate, a new certificate for a role, and that one's key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(_named(role), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        )
        encoding = serialization.Encoding.PEM
        return (
            self._certificate.public_bytes(encoding),
            builder.sign(self._key, hashes.SHA256()).public_bytes(encoding),
            key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        begin, end = self._validity
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(end)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
