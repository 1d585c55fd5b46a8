"""Runs scripts on several ranks at once, as torchrun does, in processes that have imported all they need: forked.

Reads requests from standard input, a line of JSON each, and answers with exit codes and output.  Importing PyTorch
takes each of torchrun's processes seconds; here one process has done it for all.  One switch serves all scripts that do
not ask for one of their own.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch.nn.parallel
import torch.optim  # noqa: F401 - what scripts need, imported once
from torch.distributed import TCPStore, fsdp, tensor  # noqa: F401

from switchsum.torch import groups, hooks  # noqa: F401
from switchsum.torch.services import start_alone

PORT_BYTES = 5
"""Each rank reads so many digits from the pipe that all of them share."""


def run_rank(request: dict[str, Any], rank: int, port: int, output: Path) -> None:
    """Be one rank, from start to end; does not return."""
    code = 1
    try:
        place = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(place, 1)
        os.dup2(place, 2)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        os.environ |= {"WORLD_SIZE": str(request["ranks"]), "LOCAL_WORLD_SIZE": str(request["ranks"])}
        script, *arguments = request["command"]
        sys.argv = [script, *arguments]
        sys.path[0] = str(Path(script).parent)
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run a script; return how each rank has ended, and what all of them have printed."""
    with tempfile.TemporaryDirectory() as scratch:
        # The ranks are forked before there is a store, whose thread looks up names of those that connect: a rank
        # that is forked meanwhile would wait for glibc's lock for ever.
        reading, writing = os.pipe()
        outputs = [Path(scratch, str(rank)) for rank in range(request["ranks"])]
        ranks = []
        for rank, output in enumerate(outputs):
            pid = os.fork()
            if pid == 0:
                run_rank(request, rank, int(os.read(reading, PORT_BYTES)), output)
            ranks.append(pid)
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # torchrun's agent has one, too
        os.write(writing, b"%*d" % (PORT_BYTES, store.port) * len(ranks))
        for end in (reading, writing):
            os.close(end)
        codes: list[int | None] = [None] * len(ranks)
        deadline = time.monotonic() + request["deadline_s"]
        while None in codes:
            for rank, pid in enumerate(ranks):
                if codes[rank] is None:
                    ended, status = os.waitpid(pid, os.WNOHANG)
                    codes[rank] = os.waitstatus_to_exitcode(status) if ended else None
            time.sleep(0.005)
            if time.monotonic() > deadline:
                for pid, code in zip(ranks, codes, strict=True):
                    if code is None:
                        os.kill(pid, signal.SIGKILL)
        return {"codes": codes, "outputs": [output.read_text() for output in outputs]}


def main() -> None:
    """Serve requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what switch and controller might print is no answer
    services = start_alone()
    shared = {"SWITCHSUM_CONTROLLER": services.controller, "SWITCHSUM_LINK": services.link}
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        for name, value in shared.items():
            if request["own_switch"]:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        print(json.dumps(run(request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
