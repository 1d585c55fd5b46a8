"""Each kind of network of `switchsum run` takes the options of its row, and refuses all others with what to do."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from switchsum.launch.link_options import Links, OptionError
from switchsum.launch.options import NETWORKS, SOME_HAVE, VIRTUAL, Network, RunOptions

GIVEN: dict[str, Any] = {
    **{"topology": "star,4", "slots": "8", "pcap": "x", "profile": "x", "web": "127.0.0.1:0", "elastic": True},
    **{"rate": "1gbit", "mtu": 9000, "switch": "/opt/bmv2", "servers": 1},
    **{"delay": "2us", "queue": "8f", "fail": "s1@1ms", "clock_factor": 1.0},
}


def asking(kind: Network) -> dict[str, Any]:
    """Return the options that ask for a kind of network."""
    chosen: dict[str, Any] = {"command": ["true"], "baseline": "switchml" if kind.is_of_others else None}
    if kind.option == VIRTUAL:
        return chosen | {"virtual_time": True}
    return chosen | {"links": kind.option.removeprefix("--links ")}


def test_there_is_a_value_for_each_option_that_some_have() -> None:
    assert {*GIVEN} == SOME_HAVE <= {one.name for one in fields(RunOptions)}


@pytest.mark.parametrize("option", sorted(GIVEN))
@pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: f"{kind.option}{' of others' * kind.is_of_others}")
def test_a_network_takes_the_options_that_it_has_and_names_the_others(kind: Network, option: str) -> None:
    asked = asking(kind)
    assert RunOptions(**asked).network is kind
    if option in kind.has:
        assert RunOptions(**asked, **{option: GIVEN[option]}).network is kind
        return
    with pytest.raises(OptionError) as caught:
        RunOptions(**asked, **{option: GIVEN[option]})
    assert caught.value.option == option
    assert option == "switch" or str(caught.value).startswith(f"--{option.replace('_', '-')} ")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"rate": "1gbit"}, "--rate needs --links veth or --virtual-time"),
        ({"delay": "2us"}, "--delay needs --virtual-time"),
        ({"servers": 1}, "--servers needs --baseline"),
        ({"servers": 1, "virtual_time": True}, "--servers needs --baseline"),
        ({"switch": "bmv2"}, "BMv2 takes frames from interfaces only: add --links veth"),
        ({"slots": "8", "virtual_time": True}, "--slots cannot be used with --virtual-time"),
        ({"baseline": "ring", "links": "veth", "topology": "star,4"}, "--topology cannot be used with --baseline"),
        ({"baseline": "ring", "links": "veth", "delay": "2us"}, "--delay needs --virtual-time"),
        ({"baseline": "ring", "virtual_time": True, "switch": "bmv2"}, "--switch cannot be used with --virtual-time"),
    ],
)
def test_a_refusal_says_what_would_do(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError) as caught:
        RunOptions(command=["true"], **asked)
    assert str(caught.value) == says


def test_every_kind_of_links_is_a_network() -> None:
    assert {f"--links {kind}" for kind in Links} | {VIRTUAL} == {kind.option for kind in NETWORKS}
