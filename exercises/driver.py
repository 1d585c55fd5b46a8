"""What all checks share: a learner's code is loaded and run, and what is wrong with it is said in a sentence."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Protocol

from . import Exercise
from .frames import Answers, Frame, Kind, port_of

Lanes = tuple[int, ...]
PYTHON: Final = "switch.py"


class Wrong(Exception):
    """What is wrong with a learner's code, in a sentence."""


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
            return run()
        except Wrong:
            raise
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
            answers.setdefault(pair[0], []).append(pair[1])
        return answers

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


def load(path: Path) -> ModuleType:
    """Run a learner's file as a module; what it raises becomes a sentence."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        text = path.read_text(encoding="utf-8")
        exec(compile(text, str(path), "exec"), module.__dict__)
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
        one(attempt)
    return len(checks)
