"""Networks as data, without Mininet: shapes, routes through them, and what a crashed Mininet has left behind.

Standard library and relative imports only: `mininet/custom.py` runs under the system's Python, which has nothing else.
"""

from __future__ import annotations

from .fleet import write_fleet
from .leftovers import Leftovers, find_leftovers
from .network import NO_LIMIT, Cable, Network, parts
from .paths import Route, center, routes, spanning_tree, ways_to
from .shapes import SHAPES, fat_tree, leaf_spine, star, two_spines

__all__ = [
    "NO_LIMIT",
    "SHAPES",
    "Cable",
    "Leftovers",
    "Network",
    "Route",
    "center",
    "fat_tree",
    "find_leftovers",
    "leaf_spine",
    "parts",
    "routes",
    "spanning_tree",
    "star",
    "two_spines",
    "ways_to",
    "write_fleet",
]
