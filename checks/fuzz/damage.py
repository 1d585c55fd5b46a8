"""Good input, damaged: what parsers meet."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from checks.fuzz.choices import Choices

HOSTILE: Final = (
    *(b"", b"\0", b"\xff\xfe", b"\x1b[31m", "\u202e\u00e9".encode(), b"\\ud800", b"9" * 5000, b"-1", b"1e400", b"NaN"),
    *(
        b"0x" + b"f" * 5000,
        b"x" * 3000,
        b"[" * 3000,
        b"{" * 3000,
        b"null",
        b"true",
        b"1.5",
        b"\r\n\r\n",
        b"*a",
        b"&a [*a]",
    ),
)
MOST_CHANGES: Final = 4


def scratch_folder() -> Path:
    """Return a folder that is there until the process ends."""
    folder = tempfile.mkdtemp(prefix="switchsum-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def damaged(good: bytes, choices: Choices, more: Sequence[bytes] = HOSTILE) -> bytes:
    """Return a text in which pieces are replaced, doubled, cut out or turned, or noise in its place."""
    if choices.below(16) == 0:
        return choices.rest()
    for _ in range(1 + choices.below(MOST_CHANGES)):
        begin = choices.below(min(len(good) + 1, 65536))
        end = min(len(good), begin + choices.below(64))
        match choices.below(5):
            case 0:
                good = good[:begin] + choices.pick(more) + good[end:]
            case 1:
                good = good[:end] + good[begin:end] * (1 + choices.below(64)) + good[end:]
            case 2:
                good = good[:begin] + good[end:]
            case 3:
                good = good[:begin] + bytes(byte ^ choices.number(1) for byte in good[begin:end]) + good[end:]
            case _:
                good = good[:begin]
        if choices.is_over:
            break
    return good
