"""What all checks share: a learner's code is loaded and run, and what is wrong with it is said in a sentence."""

from __future__ import annotations

import faulthandler
import importlib
import io
import os
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import fields
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final, NoReturn, Protocol

from . import Exercise
from .frames import Answers, Frame, Kind, port_of

Lanes = tuple[int, ...]
PYTHON: Final = "switch.py"
LONGEST_S: Final = 10.0
"""How long a learner's code may take for one call; all of ours take milliseconds."""
MORE_S: Final = 1.0
"""How much longer if it catches everything."""


_exit: Final = os._exit
VERDICT: Final = re.compile(r"\b(right|passed)\b", re.IGNORECASE)
"""Words of the verdict: who reads or searches the output must not take a learner's line for it."""


class Wrong(Exception):
    """What is wrong with a learner's code, in a sentence."""


class _TooLong(BaseException):
    """Goes through what a learner's code catches."""


class Processor(Protocol):
    """A switch, in Python or in P4."""

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a frame that came in at a port; return what leaves."""


class Attempt:
    """A learner's code: names of a module, each of which is called with care."""

    def __init__(self, module: Any, file: str = PYTHON) -> None:
        self.module = module
        self.file = file
        """Whose lines errors name."""

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a function or class of the learner's."""
        made = getattr(self.module, name, None)
        if made is None:
            raise Wrong(f"{self.file} has no {name}; the skeleton has one")
        return self.guard(lambda: made(*arguments, **options), name)

    def guard(self, run: Callable[[], Any], what: str) -> Any:
        """Run code of the learner's; what it raises becomes a sentence that names the line."""
        try:
            # A program in P4 has no loops; BMv2 may be slow.
            limit = time_limit(self.file, what) if isinstance(self.module, ModuleType) else nullcontext()
            with limit, watched(self.file):
                return run()
        except Wrong:
            raise
        except (SystemExit, _Ends):
            raise Wrong(f"{what} ends the process, and the checks with it: return an answer instead") from None
        except NotImplementedError as error:
            raise Wrong(f"{what} is still to be written: {error or 'see the TODO there'}") from None
        except Exception as error:
            lines = [at for at in traceback.extract_tb(error.__traceback__) if Path(at.filename).name == self.file]
            where = f" in line {lines[-1].lineno} of {self.file}" if lines else ""
            raise Wrong(f"{what} raised {type(error).__name__}{where}: {error}") from error

    def switch(self, *arguments: Any, **options: Any) -> Bench:
        """Make the learner's switch."""
        return Bench(self, self.call("Switch", *arguments, **options))


class Bench:
    """A learner's switch, and the frames that it is sent."""

    def __init__(self, attempt: Attempt, switch: Any, what: str = "Switch.process") -> None:
        self.attempt = attempt
        self.switch = switch
        self.what = what
        """The method that is called, as sentences name it."""

    def send(self, port: int, frame: Frame) -> dict[int, list[Frame]]:
        """Send a frame; return what left, by port."""
        made = self.attempt.guard(lambda: self.switch.process(port, frame), self.what)
        if not isinstance(made, list):
            raise Wrong(f"{self.what} returned {made!r}; it returns a list of (port, Frame), [] for nothing")
        answers: dict[int, list[Frame]] = {}
        for pair in made:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Frame)):
                raise Wrong(f"{self.what} returned a list with {pair!r} in it, which is not (port, Frame)")
            if type(pair[0]) is not int:
                raise Wrong(f"{self.what} returned a frame for port {pair[0]!r}: a port is an int")
            self._check_types(pair[1])
            answers.setdefault(pair[0], []).append(pair[1])
        return answers

    def _check_types(self, frame: Frame) -> None:
        """Raise Wrong where a field has another type than the skeleton says: what is only equal would pass."""
        for field in fields(Frame):
            value = getattr(frame, field.name)
            if field.name == "lanes":
                if type(value) is not tuple or any(type(lane) is not int for lane in value):
                    raise Wrong(f"{self.what} returned a frame with lanes={value!r}: lanes are a tuple of ints")
            elif not (isinstance(value, int) if field.name == "kind" else type(value) is int):
                raise Wrong(f"{self.what} returned a frame with {field.name}={value!r}: {field.name} is an int")

    def contribute(self, rank: int, lanes: Lanes, **fields: Any) -> dict[int, Frame]:
        """Send a rank's contribution; return the results, by the rank that each reaches."""
        answers = self.send(port_of(rank), Frame(kind=Kind.CONTRIBUTION, rank=rank, lanes=lanes, **fields))
        results = {}
        for port, frames in answers.items():
            if len(frames) != 1:
                raise Wrong(f"{len(frames)} frames left port {port} for one contribution of rank {rank}")
            if frames[0].kind != Kind.RESULT:
                raise Wrong(f"a frame of kind {frames[0].kind!r} left port {port}: what ranks get is a RESULT")
            results[port - 1] = frames[0]
        return results


class _Ends(BaseException):
    """A learner's code has called os._exit."""


@contextmanager
def watched(file: str) -> Iterator[None]:
    """Run a learner's code so that it can neither end the process nor print what looks like the verdict.

    What it prints goes on to standard error, where it does not mix with the verdict.
    """

    def end(status: int) -> NoReturn:
        raise _Ends(status)

    printed = io.StringIO()
    os._exit = end
    try:
        with redirect_stdout(printed):
            yield
    finally:
        os._exit = _exit
        sys.stderr.write(printed.getvalue())
    if found := next((line for line in printed.getvalue().splitlines() if VERDICT.search(line)), None):
        raise Wrong(f"{file} prints {found!r}, which reads like the verdict: take that line out")


@contextmanager
def time_limit(file: str, what: str) -> Iterator[None]:
    """Raise Wrong, which names the line, if a learner's code has not returned after LONGEST_S.

    Code that catches that as well, or that is inside one endless call of C's, ends with the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> NoReturn:
        lines = [line for inside, line in traceback.walk_stack(frame) if Path(inside.f_code.co_filename).name == file]
        where = f": it is in line {lines[0]} of {file}" if lines else ""
        sentence = f"{what} has not returned after {LONGEST_S:g} s{where}"
        if ended:
            sys.stderr.write(f"switchsum: {sentence}\n")
            _exit(1)
        ended.append(sentence)
        raise _TooLong

    ended: list[str] = []
    handler = signal.signal(signal.SIGALRM, end)
    before_s, began_s = signal.setitimer(signal.ITIMER_REAL, LONGEST_S, MORE_S)[0], time.monotonic()
    output = sys.__stderr__
    if output is not None:
        faulthandler.dump_traceback_later(LONGEST_S + 3 * MORE_S, exit=True, file=output)
    try:
        yield
    except _TooLong:
        pass
    finally:
        faulthandler.cancel_dump_traceback_later()
        left_s = max(before_s - (time.monotonic() - began_s), 0.001) if before_s else 0.0
        signal.setitimer(signal.ITIMER_REAL, left_s)
        signal.signal(signal.SIGALRM, handler)
    if ended:
        raise Wrong(ended[0])


def load(path: Path) -> ModuleType:
    """Run a learner's file as a module; what it raises becomes a sentence."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        with time_limit(path.name, path.name), watched(path.name):
            exec(compile(text, str(path), "exec"), module.__dict__)
    except Wrong:
        raise
    except (SystemExit, _Ends):
        raise Wrong(f"{path.name} ends the process when it is loaded: it only defines names") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Wrong(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except SyntaxError as error:
        raise Wrong(f"{path.name} is no Python, line {error.lineno}: {error.msg}") from None
    except Exception as error:
        raise Wrong(f"{path.name} raised {type(error).__name__} when it was loaded: {error}") from error
    return module


def ranks(numbers: Sequence[int]) -> str:
    """Return ranks in words."""
    if not numbers:
        return "no rank"
    return f"rank{'s' * (len(numbers) > 1)} {' and '.join(map(str, sorted(numbers)))}"


def check(exercise: Exercise, attempt: Attempt) -> int:
    """Check an attempt; return how many checks it passed; raises Wrong at the first that it does not."""
    checks = importlib.import_module(f".{exercise.name}.check", __package__).CHECKS
    for one in checks:
        try:
            one(attempt)
        except Wrong:
            raise
        except Exception as error:  # of ours: what came from the learner's code is of a type that no check expects
            what = (one.__doc__ or one.__name__).strip().rstrip(".")
            why = f"{type(error).__name__}: {error} ({what})"
            raise Wrong(f"an answer has another type or lacks something: {why}") from error
    return len(checks)
