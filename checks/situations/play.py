"""Plays a situation with real processes, and asks `switchsum explain`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from switchsum_switch.bmv2.process import free_port
from switchsum_switch.process.runtime_directory import RUNTIME_VARIABLE

from .table import Situation

OURS: Final = [sys.executable, "-m", "switchsum"]
JOB: Final = "training"
WORKS_S: Final = 6.0
"""A job works for so long before something is done to it."""
PATIENCE_S: Final = 150.0
CULPRIT: Final = 2
RANKS: Final = 4
RAISED: Final = "switchsum_protocol.errors."


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was said, and whether it was right."""

    said: list[str] = field(default_factory=list)
    """The first sentences of all findings, the first one first."""
    is_right: bool
    is_innocent: bool
    """No part was blamed that works."""


def judge(situation: Situation, said: list[str]) -> Outcome:
    """Compare sentences with what the table expects."""
    blamed = [one for text in said for one in situation.blames_not if re.search(one, text)]
    is_right = bool(said) and re.search(situation.says, said[0]) is not None
    return Outcome(said=said, is_right=is_right, is_innocent=not blamed)


class Played:
    """The processes of a situation, in a folder of their own, of which nothing is left at the end."""

    def __init__(self, stack: ExitStack, situation: Situation) -> None:
        self._stack, self._situation = stack, situation
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="switchsum-")))
        seconds = str(WORKS_S + situation.wait_s + PATIENCE_S)
        self._environment = {
            **os.environ,
            RUNTIME_VARIABLE: str(self.folder),
            "FAULT": situation.fault,
            "SIZE": str(situation.size),
            "SECS": seconds,
        }
        self.parts: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, **environment: str) -> None:
        """Start a part; it ends with the situation."""
        with (self.folder / f"{name}.txt").open("wb") as file:
            made = subprocess.Popen(
                command, env=self._environment | environment, stdout=file, stderr=file, start_new_session=True
            )
        self.parts[name] = made
        self._stack.callback(self._end, made)

    @staticmethod
    def _end(made: subprocess.Popen[bytes]) -> None:
        for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(made.pid, number)
            if number != signal.SIGCONT:
                with suppress(subprocess.TimeoutExpired):
                    made.wait(5)

    def ours(self, *command: str, timeout_s: float = PATIENCE_S) -> str:
        """Return what one of our commands prints."""
        done = subprocess.run(
            [*OURS, *command], env=self._environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        return done.stdout + done.stderr

    def until(self, text: str, *command: str) -> str:
        """Ask until a text is there; raises TimeoutError."""
        end_s = time.monotonic() + PATIENCE_S
        while text not in (said := self.ours(*command)):
            if time.monotonic() > end_s:
                raise TimeoutError(f"{' '.join(command)} never said {text!r}: {said}\n{self.printed()}")
            time.sleep(0.5)
        return said

    def printed(self) -> str:
        """Return the end of what all parts have printed."""
        return "\n".join(f"{path.name}: {path.read_text()[-400:]}" for path in sorted(self.folder.glob("*.txt")))

    def begin(self) -> None:
        """Start switches, controller and ranks, and let them work for a while."""
        situation, port, ranks = self._situation, free_port(), RANKS
        worker = (sys.executable, "-m", "checks.situations.job")
        if situation.system == "tree":
            self.start("run", *OURS, "run", "--topology", "leaf-spine,2,1,4", "-n", "8", "--", *worker)
            self.until(" running", "job", "list")
            time.sleep(WORKS_S)
            return
        if situation.system == "aggregator":
            self._fleet(port)
        else:
            self.start("switch", *OURS, "switch", "--udp", f"127.0.0.1:{port}", *situation.switch)
            self.start("controller", *OURS, "controller")
        options = ["--slots", "shared"] if situation.system == "aggregator" else []
        self.until(f"{JOB}", "job", "list") if "exists" in self._created(options) else None
        for rank in range(ranks - situation.missing):
            at = port
            if situation.proxy and (situation.everywhere or rank == CULPRIT):
                at = free_port()
                conditions = json.dumps(situation.proxy)
                self.start(
                    f"proxy{rank}", sys.executable, "-m", "checks.situations.proxy", str(at), str(port), conditions
                )
            agent = ("agent", "--job", JOB, "--rank", str(rank), "--udp", f"127.0.0.1:{at}")
            self.start(f"rank{rank}", *OURS, *agent, "--", *worker)
        if not situation.missing:
            self.until(": running", "explain", JOB) if situation.source == "explain" and not situation.fault else None
        time.sleep(WORKS_S)

    def _created(self, options: list[str]) -> str:
        end_s = time.monotonic() + PATIENCE_S
        while True:
            said = self.ours("job", "create", JOB, "--workers", str(RANKS), *options)
            if JOB in self.ours("job", "list") or time.monotonic() > end_s:
                return said
            time.sleep(0.5)

    def _fleet(self, port: int) -> None:
        main, spare, other = free_port(), free_port(), free_port()
        at = "127.0.0.1:"
        switches = {
            "main": {"p4runtime": f"{at}{main}", "udp": f"{at}{port}"},
            "spare": {"p4runtime": f"{at}{spare}", "udp": f"{at}{other}", "role": "aggregator"},
        }
        (self.folder / "fleet.json").write_text(json.dumps({"switches": switches, "shared_slots": 256}))
        self.start("switch", *OURS, "switch", "--listen", f"{at}{main}", "--udp", f"{at}{port}")
        self.start("aggregator", *OURS, "aggregator", "--listen", f"{at}{spare}", "--udp", f"{at}{other}")
        self.start("controller", *OURS, "controller", "--fleet", str(self.folder / "fleet.json"))

    def spoil(self) -> None:
        """Do to a part what the situation says."""
        what, _, name = self._situation.during.partition(" ")
        if self._situation.during == "drop simulator":
            self.ours("drop-probability", "0.02")
        elif what in ("kill", "stop"):
            number = signal.SIGKILL if what == "kill" else signal.SIGSTOP
            part = self.parts[f"rank{CULPRIT}" if name == "rank" else name]
            os.killpg(part.pid, number)

    def said(self) -> list[str]:
        """Return the sentences that are to be judged."""
        situation = self._situation
        if situation.source == "output":
            text = "\n".join((self.folder / f"rank{rank}.txt").read_text() for rank in range(RANKS))
            return [line.removeprefix(RAISED) for line in text.splitlines() if line.startswith(RAISED)]
        printed = self.ours("explain", timeout_s=PATIENCE_S)
        found = [line[2:] for line in printed.splitlines() if line.startswith("- ")]
        return found or printed.splitlines()[-1:]


def play(situation: Situation) -> Outcome:
    """Play a situation and judge what is said of it."""
    with ExitStack() as stack:
        played = Played(stack, situation)
        played.begin()
        played.spoil()
        time.sleep(situation.wait_s)
        return judge(situation, played.said())
