"""Networks as data, without Mininet: shapes, routes through them, and what a crashed Mininet has left behind.

Standard library and relative imports only: `mininet/custom.py` runs under the system's Python, which has nothing else.
"""

from __future__ import annotations

from .fleet import write_fleet
from .leftovers import Leftovers, find_leftovers
from .paths import Route, center, routes, spanning_tree
from .shapes import SHAPES, Link, Topology, fat_tree, leaf_spine, star, two_spines

__all__ = [
    "SHAPES",
    "Leftovers",
    "Link",
    "Route",
    "Topology",
    "center",
    "fat_tree",
    "find_leftovers",
    "leaf_spine",
    "routes",
    "spanning_tree",
    "star",
    "two_spines",
    "write_fleet",
]
