"""What a member and its controller must have alike to understand one another, as one digest.

Frames have a version of their own (`frame`).  Messages and the records that ranks compare have none: their digest says
at once that two programs differ, where a field that one of them does not know would say so in the midst of a job.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from .frame import WIRE_DIGEST

RECORDS: Final = 1
"""Version of the texts whose digests ranks compare (`host.api.record`): a text of another version never matches."""
MESSAGES: Final = ("agreement_rpc", "member_rpc", "reports")
"""Modules with the messages of members.  They are read as text, for they import this one."""
DIGEST_BYTES: Final = 4


@cache
def speaks() -> str:
    """Return a digest of the frame, of the fields of all messages of members, and of the version of records."""
    room = files(__package__ or "switchsum.protocol")
    messages = [_fields_in(room.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in MESSAGES]
    return hashlib.blake2b(repr((WIRE_DIGEST, RECORDS, messages)).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _fields_in(source: str) -> list[tuple[str, list[str]]]:
    """Return the classes of a module, each with its fields and their types."""
    found = []
    for kind in ast.parse(source).body:
        if isinstance(kind, ast.ClassDef):
            fields = [one for one in kind.body if isinstance(one, ast.AnnAssign)]
            found.append((kind.name, [f"{ast.unparse(one.target)}: {ast.unparse(one.annotation)}" for one in fields]))
    return found
