"""Examples in the docstrings of public names run, on a switch in this process."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
from collections.abc import Iterator

import pytest

MODULES = (
    "switchsum.host.api.communicator",
    "switchsum.host.api.operation_queue",
    "switchsum.host.compress.base",
    "switchsum.host.compress.block_scaled",
    "switchsum.host.compress.feedback",
    "switchsum.host.compress.global_topk",
    "switchsum.host.compress.packed",
    "switchsum.host.compress.powersgd",
    "switchsum.host.compress.quantise",
    "switchsum.host.compress.select",
    "switchsum.testing.local",
)
WITH_TORCH = tuple(f"switchsum.torch.{name}" for name in ("averaging", "compression", "hooks", "lane_choice", "outer"))
FEWEST = 25


def examples(names: tuple[str, ...]) -> Iterator[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in names:
        module = importlib.import_module(name)
        yield from (one for one in finder.find(module, name, globs={}) if one.examples)


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("test", list(examples(MODULES)), ids=lambda test: test.name.removeprefix("switchsum.host."))
def test_examples_of_the_worker_run(test: doctest.DocTest) -> None:
    run(test)


def test_there_are_examples() -> None:
    assert len(list(examples(MODULES))) >= FEWEST


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("name", WITH_TORCH)
def test_examples_of_the_pytorch_backend_run(name: str) -> None:
    found = list(examples((name,)))
    assert found
    for test in found:
        run(test)
