"""Examples in the docstrings of public names run, on a switch in this process."""

from __future__ import annotations

import dataclasses
import doctest
import enum
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

MODULES = (
    "switchsum_host.api.communicator",
    "switchsum_host.api.operation_queue",
    "switchsum_host.compress.base",
    "switchsum_host.compress.block_scaled",
    "switchsum_host.compress.feedback",
    "switchsum_host.compress.global_topk",
    "switchsum_host.compress.packed",
    "switchsum_host.compress.powersgd",
    "switchsum_host.compress.quantise",
    "switchsum_host.compress.select",
    "switchsum.testing.local",
)
WITH_TORCH = tuple(
    f"switchsum.torch.{name}"
    for name in (
        "averaging",
        "compression",
        "flight_recorder",
        "groups",
        "hooks",
        "lane_choice",
        "lanes_of_models",
        "outer",
    )
)


def examples(names: tuple[str, ...]) -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in names:
        module = importlib.import_module(name)
        yield from (one for one in finder.find(module, name, globs={}) if one.examples)


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("test", list(examples(MODULES)), ids=lambda test: test.name.removeprefix("switchsum_host."))
def test_examples_of_the_worker_run(test: doctest.DocTest) -> None:
    run(test)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_the_worker_has_examples(name: str) -> None:
    assert list(examples((name,)))


ROOT = Path(__file__).resolve().parent.parent
ROOTS = ("src", "host", "controller", "protocol", "exercises", "switch/src", "lab/src")
NOT_ALONE = {
    "switchsum_host.connect": "tests/system/test_page_scripts.py runs it: it needs a switch",
    "switchsum.torch.elastic": "needs several processes; tests/pytorch/test_elastic.py has them",
    "switchsum.torch.quorum": "needs torchft, and several processes",
    "switchsum_lab.simulation.streams": "compiles a switch's program; lab/tests/simulation has more of the kind",
}
"""Modules whose examples need more than a process, with what runs instead."""


def other_modules() -> list[str]:
    """Return the modules with examples that are no page of the API: there an example may use the module's own names."""
    found = []
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            if re.search(r"^ *>>> ", path.read_text(), re.MULTILINE):
                parts = path.relative_to(ROOT / root).with_suffix("").parts
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [name for name in found if name not in {*MODULES, *WITH_TORCH, *NOT_ALONE}]


@pytest.mark.parametrize("name", other_modules())
def test_examples_of_other_modules_run(name: str) -> None:
    module = importlib.import_module(name)
    found = [one for one in doctest.DocTestFinder(exclude_empty=True).find(module, name) if one.examples]
    assert found
    for test in found:
        run(test)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("name", WITH_TORCH)
def test_examples_of_the_pytorch_backend_run(name: str) -> None:
    found = list(examples((name,)))
    assert found
    for test in found:
        run(test)


PAGES_EXAMPLE = {"Scheduled"}
"""docs/pytorch.md has its loop, which tests/pytorch/test_layers.py runs: it needs several processes."""


@pytest.mark.skipif(importlib.util.find_spec("griffe") is None, reason="needs the extra site: griffe")
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_each_function_and_class_that_users_call_has_an_example() -> None:
    from tools.api_pages import MADE_BY_OTHERS
    from tools.api_pages import MODULES as API

    seen = 0
    for module in map(importlib.import_module, API):
        for name in module.__all__:
            one = getattr(module, name)
            is_given = name in MADE_BY_OTHERS or dataclasses.is_dataclass(one) or getattr(one, "_is_protocol", False)
            is_kind = inspect.isclass(one) and not issubclass(one, BaseException | enum.Enum)
            if (inspect.isfunction(one) or is_kind) and not is_given and name not in PAGES_EXAMPLE:
                assert ">>>" in (one.__doc__ or "") + (one.__init__.__doc__ or ""), f"{module.__name__}.{name}"
                seen += 1
    assert seen
