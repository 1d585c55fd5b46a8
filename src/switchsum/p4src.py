"""The P4 program, as sources and compiled for BMv2."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_CLONE: Final = Path(__file__).parents[2] / "p4src"
SOURCES: Final = _CLONE if _CLONE.is_dir() else Path(__file__).with_name("data") / "p4src"
"""The folder of the clone, or the copy that a wheel has of it."""
COMPILED: Final = SOURCES / "compiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledProgram:
    """One lane build of the program, as p4c wrote it."""

    lanes_per_frame: int
    """Lanes of 32 bits in one frame."""
    device_config: bytes
    """BMv2 JSON."""
    p4info: str
    """P4Info in protobuf's text format."""


def source_digest() -> str:
    """Return the SHA-256 of all P4 sources, in hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.glob("*.p4")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def compiled_digest() -> str:
    """Return the digest of the sources that the compiled builds came from."""
    return (COMPILED / "sources.sha256").read_text().strip()


def load(lanes_per_frame: int) -> CompiledProgram:
    """Read a compiled build; raises FileNotFoundError when there is none with so many."""
    stem = COMPILED / f"switchsum_{lanes_per_frame}"
    return CompiledProgram(
        lanes_per_frame=lanes_per_frame,
        device_config=stem.with_suffix(".json").read_bytes(),
        p4info=stem.with_suffix(".p4info.txtpb").read_text(),
    )
