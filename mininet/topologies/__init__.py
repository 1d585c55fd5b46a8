"""Networks as data, without Mininet: shapes, the way of frames through them, what a crashed Mininet leaves behind.

Pure standard library and relative imports: `mininet/custom.py` runs under the system's Python, which has nothing else.
"""

from __future__ import annotations

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
]
