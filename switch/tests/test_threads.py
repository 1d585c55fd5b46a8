"""Threads that use one `Switch` at once: none undoes what another has done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from support.timing import eventually, patience
from switchsum_switch import Switch

from .conftest import PROGRAMS

FRAME = bytes(64)


@pytest.fixture
def switch() -> Switch:
    return Switch.from_file(PROGRAMS / "sets.json", PROGRAMS / "sets.p4info.txtpb", engine="interpreter")


class Meanwhile:
    """Starts another thread at the first call of a method, and goes on when that thread has ended or waits."""

    def __init__(self, patch: pytest.MonkeyPatch, switch: Switch, owner: Any, name: str, other: Callable[[], Any]):
        self._lock, self._call = switch.pipeline.lock, getattr(owner, name)
        self._thread = threading.Thread(target=other)
        patch.setattr(owner, name, self)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._thread.ident is None:
            self._thread.start()
            assert eventually(lambda: self._lock.is_wanted or not self._thread.is_alive())
        return self._call(*arguments, **options)

    def join(self) -> None:
        """Wait for the other thread."""
        self._thread.join(patience(10))
        assert not self._thread.is_alive()


def test_members_that_two_threads_add_are_both_there(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = switch.value_sets["tagged"]
    other = Meanwhile(monkeypatch, switch, tagged.value_set, "set", lambda: tagged.add(8))
    tagged.add(7)
    other.join()
    assert sorted(tagged.members) == ["7", "8"]


def test_a_member_that_is_added_while_another_is_removed_stays(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = switch.value_sets["tagged"]
    tagged.add(7)
    other = Meanwhile(monkeypatch, switch, tagged.value_set, "set", lambda: tagged.add(8))
    tagged.remove(7)
    other.join()
    assert tagged.members == ["8"]


def test_a_trace_does_not_undo_what_another_thread_writes(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    tagged = switch.value_sets["tagged"]
    other = Meanwhile(monkeypatch, switch, switch.pipeline, "trace", lambda: tagged.add(8))
    switch.trace(1, FRAME)
    other.join()
    assert tagged.members == ["8"]


def test_entries_are_listed_with_their_counts_although_another_thread_removes_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch = Switch.from_file(PROGRAMS / "matching.json", PROGRAMS / "matching.p4info.txtpb", engine="interpreter")
    table = switch.tables["exact_table"]
    keys = [dict.fromkeys(table.keys, number) for number in (1, 2)]
    for key in keys:
        table.insert(key, "NoAction")
    other = Meanwhile(monkeypatch, switch, table.table, "direct_counter", lambda: table.delete(keys[1]))
    assert [entry.packets for entry in table] == [0, 0]
    other.join()
    assert len(table) == 1
