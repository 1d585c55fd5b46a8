"""Groups that were never used end at once, although a member has not joined: counted in calls, not in seconds."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import SCRIPTS, Launch

GROUPS = 5
"""That the script makes."""


@pytest.mark.timeout(180)
def test_ending_groups_that_were_never_used_waits_for_nobody(launch: Launch) -> None:
    text = launch(3, SCRIPTS / "unused.py").check()
    found = [json.loads(line) for line in re.findall(r"^\{.*\}$", text, re.MULTILINE)]
    assert sorted(one["rank"] for one in found) == [0, 1, 2]
    for one in found:
        # Of each join the call that was under way, and one more; with no end to the wait there are two each second.
        assert one["ready"] <= 2 * GROUPS, text
        # The first rank waits for the others to leave the job of all ranks, and no other job.
        assert one["waits"] == (one["rank"] == 0), text
