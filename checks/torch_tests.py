"""Run PyTorch's own tests of process groups here, and write docs/results/pytorch-tests.md (`make torch-tests`).

They come with torch's wheel (`torch.testing._internal.distributed.distributed_test`) and know torch's own backends:
they are told that this is gloo, and the group of that name is ours.  Each runs in four processes, or eight if it asks
for them, on one switch for all; together they take a quarter of an hour.  `python -m checks.torch_tests test_broadcast
test_reduce_sum` runs some; only a run of all writes the page, or `--write`, which keeps what it says of the others.
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import shutil
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("BACKEND", "gloo")
os.environ["WORLD_SIZE"] = "4"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "90")
os.environ.setdefault("KINETO_LOG_LEVEL", "9")
if "TEMP_DIR" not in os.environ:  # the processes of a test inherit it
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="switchsum-torch-tests-")
    atexit.register(shutil.rmtree, os.environ["TEMP_DIR"], ignore_errors=True)
warnings.simplefilter("ignore")

import torch  # noqa: E402 - what follows reads the environment
import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402

from switchsum.torch.services import start_alone  # noqa: E402

PAGE = Path(__file__).resolve().parent.parent / "docs" / "results" / "pytorch-tests.md"
HEAD = """# PyTorch's own tests

What became of the cases of `torch.testing._internal.distributed.distributed_test` (torch {version}) on CPU: {summary}.
`make torch-tests` runs all and writes this page; `make torch-tests ARGS="--write test_broadcast"` runs one anew.

The cases know torch's own backends only, so they are told that this is gloo; a reason that names another one is what
the case asks for. Those that torch skips because gloo has no `all_to_all` run here. A link as a reason is torch's own:
the case is switched off there for every backend.

| case | outcome | ranks | why not |
|---|---|---|---|
"""
QUICK = [
    "test_DistributedDataParallelCPU",
    "test_all_gather",
    "test_all_gather_coalesced_simple",
    "test_all_gather_object_default_pg",
    "test_all_reduce_coalesced_sum",
    "test_all_reduce_group_sum",
    "test_all_reduce_max",
    "test_all_reduce_product",
    "test_all_reduce_sum",
    "test_all_reduce_sum_async",
    "test_all_to_all_single_equal_split",
    "test_barrier",
    "test_broadcast",
    "test_broadcast_object_list",
    "test_coalescing_manager",
    "test_ddp_hook_parity_powerSGD",
    "test_ddp_uneven_inputs",
    "test_gather",
    "test_new_subgroups",
    "test_reduce_sum",
    "test_scatter",
    "test_send_recv",
    "test_sparse_all_reduce_sum",
]
"""What continuous integration has time for: one or two of each kind."""

_MONITORED = "about monitored_barrier, which torch has for gloo only; here any time-out names the missing ranks"
NOT_OURS = {
    "test_get_backend": "asks whether the group's name is gloo, and is told the truth",
    "test_monitored_barrier_failure_order": _MONITORED,
    "test_monitored_barrier_gloo": _MONITORED,
    "test_monitored_barrier_gloo_rank_0_timeout": _MONITORED,
    "test_monitored_barrier_gloo_subgroup": _MONITORED,
    "test_monitored_barrier_wait_all_ranks": _MONITORED,
}
"""Cases that no backend but torch's own can pass, and why."""
WANTS_EIGHT = "Skipped due to small world size."
"""Why a case skips itself that wants eight ranks."""
NO_REASON = re.compile("Only MPI supports")
"""For which torch skips cases of gloo: what it is that gloo has not, this backend has."""

_init_process_group = dist.init_process_group


def init_process_group(backend: str | None = None, **options: object) -> None:
    """Make a group of ours where a test asks for gloo."""
    _init_process_group(backend="switchsum" if backend == "gloo" else backend, **options)


dist.init_process_group = init_process_group


def unskip() -> None:
    """Let cases run that torch skips without a reason that holds here."""
    for name, case in vars(DistributedTest._DistTestBase).items():
        reason = getattr(case, "__unittest_skip_why__", "")
        while name.startswith("test_") and case is not None and NO_REASON.match(reason):
            vars(case).pop("__unittest_skip__", None)  # functools.wraps has given it to every wrapper
            case = getattr(case, "__wrapped__", None)  # noqa: PLW2901


unskip()


class TestSwitchsum(TestDistBackend, DistributedTest._DistTestBase):
    """torch's cases, as torch runs them for its own backends."""

    def setUp(self) -> None:
        """Start the processes: forked, for everything is imported already."""
        if self._testMethodName in NOT_OURS:
            self.skipTest(NOT_OURS[self._testMethodName])
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    @classmethod
    def _run(cls, *arguments: Any, **options: Any) -> None:
        """Run a case in its own process; what it leaves behind must not hold slots of the switch that all share."""
        try:
            super()._run(*arguments, **options)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


Row = tuple[str, str, str]
"""Outcome, ranks, and why it is no other."""


class Outcomes(unittest.TextTestResult):
    """Remembers what became of each case."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.rows: dict[str, Row] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        """Note a pass."""
        super().addSuccess(test)
        self._note(test, "passed", "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Note a skip and its reason."""
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: object) -> None:
        """Note a failure."""
        super().addFailure(test, err)  # type: ignore[arg-type]
        self._note(test, "failed", _last_line(self.failures[-1][1]))

    def addError(self, test: unittest.TestCase, err: object) -> None:
        """Note an error."""
        super().addError(test, err)  # type: ignore[arg-type]
        self._note(test, "failed", _last_line(self.errors[-1][1]))

    def _note(self, test: unittest.TestCase, outcome: str, reason: str) -> None:
        ranks = os.environ["WORLD_SIZE"]
        self.rows[test._testMethodName] = (outcome, ranks, reason.replace("|", "/").replace("\n", " "))
        print(f"{test._testMethodName}: {outcome} ({ranks} ranks) {reason}", flush=True)


def _last_line(trace: str) -> str:
    lines = [
        line for line in trace.strip().splitlines() if re.match(r"\w*(Error|Exception|Timeout|Lost)", line.strip())
    ]
    return (lines[-1] if lines else trace.strip().splitlines()[-1]).strip()[:200]


def read_page() -> dict[str, Row]:
    """Return what the page says."""
    if not PAGE.exists():
        return {}
    rows = re.findall(r"^\| `(test_\w+)` \| (\w+) \| (\d+) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
    return {name: (outcome, ranks, reason) for name, outcome, ranks, reason in rows}


def write_page(rows: dict[str, Row]) -> None:
    """Write the page: failures first, then passes, then skips."""
    order = ["failed", "passed", "skipped"]
    lines = [
        f"| `{name}` | {outcome} | {ranks} | {reason} |"
        for name, (outcome, ranks, reason) in sorted(rows.items(), key=lambda row: (order.index(row[1][0]), row[0]))
    ]
    counts = {outcome: sum(row[0] == outcome for row in rows.values()) for outcome in order}
    summary = f"of {len(rows)}, " + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    missing = len(set(unittest.TestLoader().getTestCaseNames(TestSwitchsum)) - set(rows))
    if missing:
        summary += f"; {missing} have not been run"
    PAGE.write_text(
        HEAD.replace("{summary}", summary).replace("{version}", torch.__version__.partition("+")[0])
        + "\n".join(lines)
        + "\n"
    )


def run_case(name: str, result: Outcomes) -> None:
    """Run a case, again if it wants more ranks."""
    unittest.TestSuite([TestSwitchsum(name)]).run(result)
    if result.rows[name][2] == WANTS_EIGHT:
        os.environ["WORLD_SIZE"], before = "8", os.environ["WORLD_SIZE"]
        unittest.TestSuite([TestSwitchsum(name)]).run(result)
        os.environ["WORLD_SIZE"] = before


def main() -> int:
    """Run the cases; return the number of failures, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; all by default")
    parser.add_argument("--quick", action="store_true", help="a minute's worth of cases")
    parser.add_argument("--write", action="store_true", help="write the page after some cases, too")
    options = parser.parse_args()
    names = options.names or (QUICK if options.quick else []) or unittest.TestLoader().getTestCaseNames(TestSwitchsum)
    services = start_alone()  # one switch for all
    os.environ |= {"SWITCHSUM_CONTROLLER": services.controller, "SWITCHSUM_LINK": services.link}
    started = time.monotonic()
    result = Outcomes(unittest.runner._WritelnDecorator(sys.stdout), False, 0)
    is_whole = not options.names and not options.quick
    known = {} if is_whole else read_page()
    for name in names:
        run_case(name, result)
        if options.write or is_whole:
            write_page(known | result.rows)
    print(f"{len(result.rows)} cases in {time.monotonic() - started:.0f} s")
    for _, trace in (*result.failures, *result.errors):
        print(trace)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    raise SystemExit(main())
