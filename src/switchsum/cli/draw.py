"""Drawings of topologies and trees: text for the terminal, SVG for a page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from switchsum.view.rounds import parts_of

if TYPE_CHECKING:
    from switchsum.topologies import Cable, Network
    from switchsum_controller.trees.forest import AggregationTree
    from switchsum_protocol.rpc import JobInfo

COLOURS: Final = ("#1b6ca8", "#c8553d", "#3f7d20", "#8e44ad", "#b7950b", "#117a65", "#7b241c", "#34495e")
"""One for each tree, in turn."""
MOST_NAMES: Final = 8
"""Hosts of a switch that are named; of more, the first and the last are."""
_STEP_X, _STEP_Y, _EDGE, _APART = 90, 110, 60, 5
"""Pixels between nodes, between rows, around the drawing, and between two trees on one link."""


def heights(network: Network) -> dict[str, int]:
    """Return how many links each node is away from the nearest host; switches that reach none have 1."""
    height = dict.fromkeys(network.hosts, 0)
    near: dict[str, list[str]] = {}
    for cable in network.cables:
        for end, far in (cable.ends, cable.ends[::-1]):
            near.setdefault(end, []).append(far)
    order = list(network.hosts)
    for node in order:
        for far in near.get(node, ()):
            if far not in height:
                height[far] = height[node] + 1
                order.append(far)
    return dict.fromkeys(network.switches, 1) | height


def topology_text(network: Network) -> str:
    """Draw a topology: a block for each switch, the highest first; its links to lower or equal switches, its hosts."""
    height, hosts = heights(network), set(network.hosts)
    lines = []
    for switch in sorted(network.switches, key=lambda name: -height[name]):
        lines.append(f"{switch}")
        below: list[tuple[str, list[str]]] = []
        for cable in network.cables:
            if switch not in cable.ends:
                continue
            far = cable.ends[1] if cable.ends[0] == switch else cable.ends[0]
            if height[far] > height[switch] or (height[far] == height[switch] and cable.ends[0] != switch):
                continue  # drawn below that one
            if far in hosts and below and below[-1][0] == capacity(cable) and below[-1][1][0] in hosts:
                below[-1][1].append(far)
            else:
                below.append((capacity(cable), [far]))
        for number, (rate, names) in enumerate(below, 1):
            lines.append(f"{'└──' if number == len(below) else '├──'} {rate} {some(names)}")
    return "\n".join(lines)


def capacity(cable: Cable) -> str:
    """Return a link's capacity as text, with what is free where some is reserved."""
    return f"{cable.free_mbit:g} of {cable.mbit:g} ──" if cable.reserved_mbit else f"{cable.mbit:g} ──"


def some(names: Sequence[str], kind: str = "hosts") -> str:
    """Return names, of many the first and the last."""
    return " ".join(names) if len(names) <= MOST_NAMES else f"{names[0]} ... {names[-1]} ({len(names)} {kind})"


def tree_text(network: Network, tree: AggregationTree) -> str:
    """Draw a tree from its root down; the hosts of a switch stand on its line."""
    return drawn(tree.root, tree.parents, set(network.hosts))


def job_text(job: JobInfo, contributions: Mapping[str, int] | None = None) -> str:
    """Draw the tree of a job that runs: the ranks of a switch, and what it took, stand on its line."""
    took = {name or "the switch": f" ({count:,} contributions)" for name, count in (contributions or {}).items()}
    drawings = []
    for _, parents, switches in parts_of(job):
        ranks = {f"{rank}": name or "the switch" for rank, name in switches.items()}
        below = parents or ranks  # of a single switch nothing else is said
        root = next(above for above in below.values() if above not in below)
        drawings.append(drawn(root, parents | ranks, set(ranks), "ranks", took))
    return "\n\n".join(drawings)


def drawn(
    root: str,
    parents: Mapping[str, str],
    hosts: Collection[str],
    what: str = "",
    notes: Mapping[str, str] | None = None,
) -> str:
    """Draw a tree from its root down; the hosts of a switch stand on its line, after what they are, and its note."""
    children: dict[str, list[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    lines: list[str] = []
    waiting = [(root, "", "")]
    while waiting:
        node, head, indent = waiting.pop()
        below = children.get(node, [])
        own = [child for child in below if child in hosts]
        names = f": {' '.join([what, some(own, what or 'hosts')]).strip()}" if own else ""
        lines.append(f"{head}{node}{names}{(notes or {}).get(node, '')}")
        inner = [child for child in below if child not in hosts]
        for number, child in reversed(list(enumerate(inner, 1))):
            last = number == len(inner)
            waiting.append((child, indent + ("└── " if last else "├── "), indent + ("    " if last else "│   ")))
    return "\n".join(lines)


def plan_svg(network: Network, trees: Sequence[AggregationTree]) -> str:
    """Draw a topology with its trees: hosts at the bottom, each tree in a colour of its own, roots framed with it."""
    height = heights(network)
    rows: dict[int, list[str]] = {}
    for node in (*network.switches, *network.hosts):
        rows.setdefault(height[node], []).append(node)
    widest, highest = max(map(len, rows.values())), max(rows)
    width, tall = (widest - 1) * _STEP_X + 2 * _EDGE, highest * _STEP_Y + 2 * _EDGE + 20 * len(trees)
    place = {
        node: (_EDGE + (number + 0.5) * (width - 2 * _EDGE) / len(row), _EDGE + (highest - level) * _STEP_Y)
        for level, row in rows.items()
        for number, node in enumerate(row)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{tall}" font-family="sans-serif">',
        f'<rect width="{width}" height="{tall}" fill="white"/>',
    ]
    for cable in network.cables:
        lines.append(_line(place[cable.ends[0]], place[cable.ends[1]], 0, "#bbbbbb", 1))
    for number, tree in enumerate(trees):
        shift = (number - (len(trees) - 1) / 2) * _APART
        for child, parent in tree.parents.items():
            lines.append(_line(place[child], place[parent], shift, COLOURS[number % len(COLOURS)], 3))
    roots = {tree.root: COLOURS[number % len(COLOURS)] for number, tree in enumerate(trees)}
    for node, (x, y) in place.items():
        frame = roots.get(node, "#555555")
        round_corners = 4 if node in network.switches else 12
        lines.append(
            f'<rect x="{x - 28:.1f}" y="{y - 12:.1f}" width="56" height="24" rx="{round_corners}" fill="white" '
            f'stroke="{frame}" stroke-width="{3 if node in roots else 1}"/>'
            f'<text x="{x:.1f}" y="{y + 4:.1f}" font-size="12" text-anchor="middle">{escape(node)}</text>'
        )
    for number, tree in enumerate(trees):
        text = f"tree {number + 1} at {escape(tree.root)}: {tree.rate_mbit:.6g} Mbit/s, {tree.slots} slots"
        y = highest * _STEP_Y + 2 * _EDGE + 20 * number
        lines.append(f'<text x="12" y="{y}" font-size="13" fill="{COLOURS[number % len(COLOURS)]}">{text}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _line(start: tuple[float, float], end: tuple[float, float], shift: float, colour: str, width: int) -> str:
    return (
        f'<line x1="{start[0] + shift:.1f}" y1="{start[1]:.1f}" x2="{end[0] + shift:.1f}" y2="{end[1]:.1f}" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )
