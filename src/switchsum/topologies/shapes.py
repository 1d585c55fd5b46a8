"""The usual shapes of networks of switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from .network import NO_LIMIT, Cable, Network


def star(hosts: int = 4) -> Network:
    """Return one switch with `hosts` hosts."""
    _need(hosts=hosts)
    return _build(hosts, 1, [(f"h{host}", "s1") for host in _count(hosts)])


def leaf_spine(leaves: int = 2, spines: int = 2, hosts: int = 2) -> Network:
    """Return leaves with `hosts` hosts each, every leaf connected with every spine; the spines are s1, s2, ..."""
    _need(leaves=leaves, spines=spines, hosts=hosts)
    below = [(f"h{leaf * hosts + host}", f"s{spines + 1 + leaf}") for leaf in range(leaves) for host in _count(hosts)]
    above = [(f"s{spines + leaf}", f"s{spine}") for leaf in _count(leaves) for spine in _count(spines)]
    return _build(leaves * hosts, spines + leaves, below + above)


def fat_tree(k: int = 4) -> Network:
    """Return a fat tree of switches with `k` ports each: k^3 / 4 hosts below k pods and k^2 / 4 core switches.

    The cores are s1, s2, ...; each pod follows with its aggregation and then its edge switches (Al-Fares et al.,
    SIGCOMM 2008).
    """
    _need(k=k)
    if k % 2:
        raise ValueError(f"a fat tree has switches with an even number of ports, not {k}")
    half, cores = k // 2, k * k // 4
    links = []
    for pod in range(k):
        first = cores + pod * k
        upper = [f"s{first + switch}" for switch in _count(half)]
        lower = [f"s{first + half + switch}" for switch in _count(half)]
        for index, edge in enumerate(lower):
            links += [(f"h{(pod * half + index) * half + host}", edge) for host in _count(half)]
            links += [(edge, above) for above in upper]
        for index, above in enumerate(upper):
            links += [(above, f"s{index * half + core}") for core in _count(half)]
    return _build(k * half * half, cores + k * k, links)


def two_spines(hosts: int = 2, fast: float = 100, slow: float = 25) -> Network:
    """Return two leaves with `hosts` hosts each below two spines, whose links have unequal rates (Mbit/s): s1 is fast.

    Traffic between the leaves gets `fast` over the fast spine alone, and `fast + slow` if it is divided in proportion.
    """
    shape = leaf_spine(2, 2, hosts)
    rates = {"s1": float(fast), "s2": float(slow)}
    if min(rates.values()) <= 0:
        raise ValueError("a rate is more than 0 Mbit/s")
    cables = tuple(Cable(ends=cable.ends, mbit=rates.get(cable.ends[1], NO_LIMIT)) for cable in shape.cables)
    return Network(hosts=shape.hosts, switches=shape.switches, cables=cables)


SHAPES: Final[dict[str, Callable[..., Network]]] = {
    "star": star,
    "leaf-spine": leaf_spine,
    "fat-tree": fat_tree,
    "two-spines": two_spines,
}
"""The shapes, by the names that ``mn --topo`` takes."""


def _build(hosts: int, switches: int, links: list[tuple[str, str]]) -> Network:
    return Network(
        hosts=tuple(f"h{host}" for host in _count(hosts)),
        switches=tuple(f"s{switch}" for switch in _count(switches)),
        cables=tuple(Cable(ends=ends) for ends in links),
    )


def _count(number: int) -> Iterator[int]:
    return iter(range(1, number + 1))


def _need(**numbers: int) -> None:
    for name, number in numbers.items():
        if not isinstance(number, int):  # Mininet hands on what is no number as text
            raise ValueError(f"{name} is a whole number, not {number!r}")
        if number < 1:
            raise ValueError(f"{name} is at least 1, not {number}")
