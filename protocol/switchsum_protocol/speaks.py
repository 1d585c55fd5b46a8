"""What a member and its controller must have alike to understand one another, as one digest.

Frames have a version of their own (`frame`).  Messages and the records that ranks compare have none: their digest says
at once that two programs differ, where a field that one of them does not know would say so in the midst of a job.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

from .frame import WIRE_DIGEST

RECORDS: Final = 1
"""Version of the texts whose digests ranks compare (`host.api.record`): a text of another version never matches."""
MESSAGES: Final = ("agreement_rpc", "member_rpc", "reports")
"""Modules with the messages of members.  They import this one, so it imports them when it is asked."""
DIGEST_BYTES: Final = 4


@cache
def speaks() -> str:
    """Return a digest of the frame, of the fields of all messages of members, and of the version of records.

    Several threads of a controller may ask at once.  CPython's `ast` fails if two threads parse (its issue 106905), so
    nothing is parsed here.
    """
    messages = [_fields_in(import_module(f"switchsum_protocol.{name}")) for name in MESSAGES]
    return hashlib.blake2b(repr((WIRE_DIGEST, RECORDS, messages)).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _fields_in(module: ModuleType) -> list[tuple[str, list[str]]]:
    """Return the messages of a module, each with its fields and their types."""
    classes = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == module.__name__]
    messages = filter(is_dataclass, classes)
    return [(message.__name__, [f"{one.name}: {one.type}" for one in fields(message)]) for message in messages]
