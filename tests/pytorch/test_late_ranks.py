"""The rank that is delayed inside a backward pass is named, with its bucket, as profilers of single ranks cannot do."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from support.timing import patience

from .conftest import SCRIPTS, Launch

LEAST = 95
"""Of 100 steps."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("mode", "delays_ms"), [("computing", ()), ("sleeping", (5, 10, 50))])
def test_who_is_delayed_in_a_step_and_in_which_layer_is_named(
    launch: Launch, tmp_path: Path, mode: str, delays_ms: tuple[int, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path, seed = tmp_path / "found", random.randrange(10**6)
    launch(3, SCRIPTS / "delayed.py", path, mode, seed, *delays_ms, deadline_s=patience(300)).check()
    found: dict[str, Any] = json.loads(path.read_text())
    with capsys.disabled():  # what the limit was, and what was found
        sys.stdout.write(f"\n{mode}, seed {seed}: {json.dumps(found, indent=1)}\n")
    clear = [one for one in found["delays"] if one["delay_s"] >= 3 * found["spread_s"]]
    assert clear, found  # a busy machine hides shorter delays, which are printed all the same
    for one in clear:
        assert one["hits"] >= LEAST, found
        rank, layer, text = one["named"]
        assert [rank, layer] == one["stays"], found
        assert f"(layers.{layer}." in text, found
