"""Logs of all processes of a job by one environment variable: as text, or as lines of JSON.

SWITCHSUM_DEBUG=LEVEL[,json][,PATH]: `info` says what happens to a membership, `debug` each collective too.  Lines go to
standard error, or are appended to a file, which all processes may share.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from contextlib import suppress
from typing import Any, Final, TextIO

from switchsum_switch.errors import UsageError

VARIABLE: Final = "SWITCHSUM_DEBUG"
LEVELS: Final = {"warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
_NOTHING: Final = logging.CRITICAL + 1
_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s {who} %(name)s: %(message)s"
_TIME: Final = "%Y-%m-%d %H:%M:%S"


def is_wanted() -> bool:
    """Return whether the variable is set."""
    return bool(os.environ.get(VARIABLE))


def log_as(role: str, *, rank: int | None = None, job: str = "") -> None:
    """Have our loggers write as the variable says, under a role and, of a worker, its rank and job; raises UsageError.

    A process that is two ranks in turn calls this again, and writes under the later one.
    """
    level, *options = os.environ[VARIABLE].split(",")
    as_json = options[:1] == ["json"]
    paths = options[as_json:]
    if level not in LEVELS or len(paths) > 1:
        raise UsageError(f"{VARIABLE} must be {' or '.join(LEVELS)}[,json][,PATH], not {os.environ[VARIABLE]!r}")
    try:
        handler = _Lines(open(paths[0], "a") if paths else sys.stderr, own=bool(paths))  # noqa: SIM115
    except OSError as error:
        raise UsageError(f"{VARIABLE}: cannot write {paths[0]}: {error.strerror}") from error
    who = {"role": role} | ({} if rank is None else {"job": job, "rank": rank})
    text = role if rank is None else f"{job}/{rank}"
    handler.setFormatter(
        JsonLines(who) if as_json else logging.Formatter(_FORMAT.format(who=text.replace("%", "%%")), _TIME)
    )
    ours = logging.getLogger("switchsum")
    for before in [one for one in ours.handlers if one.name == VARIABLE]:
        ours.removeHandler(before)
        before.close()
    handler.name = VARIABLE
    ours.addHandler(handler)
    ours.setLevel(LEVELS[level])
    ours.propagate = False  # the program's own logging would write each line again


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines until they cannot be written, as on a disk that is full: says so once, and the job goes on."""

    def __init__(self, stream: TextIO, *, own: bool) -> None:
        super().__init__(stream)
        self._own = own

    def handleError(self, record: logging.LogRecord) -> None:
        """Write no more lines after an error of the file."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)  # a mistake in our own logging call
            return
        self.setLevel(_NOTHING)
        if self._own:
            with suppress(OSError):
                sys.stderr.write(f"switchsum: {VARIABLE}: {error.strerror}: this process logs no more\n")

    def close(self) -> None:
        """Close the file."""
        super().close()
        if self._own:
            with suppress(OSError):  # the rest cannot be written either
                self.stream.close()


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON."""

    def __init__(self, who: dict[str, Any]) -> None:
        super().__init__()
        self._who = who

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line = {
            "time": round(record.created, 6),
            "level": record.levelname.lower(),
            **self._who,
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
