"""Architectures other than v1model, for which p4c writes JSON of the same form."""

from __future__ import annotations

from typing import Final

from ..errors import ProgramError
from .node import Node

_OTHERS: Final = {
    "psa_": "PSA, the Portable Switch Architecture",
    "pna_": "PNA, the Portable NIC Architecture",
}
"""How the names of their metadata begin, and what they are called."""


def refuse_other_architectures(root: Node) -> None:
    """Refuse a program for another architecture, whose metadata p4c names after it; raises ProgramError."""
    headers = root.get("headers")
    names = set() if headers is None else {node["name"].text() for node in headers.items()}
    for prefix, architecture in _OTHERS.items():
        if "standard_metadata" not in names and any(name.startswith(prefix) for name in names):
            raise ProgramError(f"not a v1model program: it is for {architecture}, which this switch does not run")
