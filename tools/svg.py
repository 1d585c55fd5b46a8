"""A few shapes as SVG, in the reader's colours, light or dark, and narrow enough for a telephone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

WIDTH: Final = 430
"""Units across: a telephone shows it in nearly its own size."""
LINE: Final = 17
STYLE: Final = """\
text{font:12px ui-monospace,monospace;fill:#222}.title{font:bold 14px sans-serif}.note{font:12px sans-serif;fill:#555}
.box{fill:#eef3fa;stroke:#345}.arrow{fill:none;stroke:#345;stroke-width:1.5}.head{fill:#345}.ground{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#ddd}.note{fill:#aab}.box{fill:#1d2733;stroke:#8ab}.arrow{stroke:#8ab}
.head{fill:#8ab}.ground{fill:#14181d}}"""
HEAD: Final = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" class="head"/></marker></defs>'
)


class Drawing:
    """Boxes, texts and arrows, from top to bottom."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start") -> None:
        """Add a line of text; `kind` is a class of the style."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')

    def box(self, x: float, y: float, wide: float, title: str, lines: Sequence[str] = (), kind: str = "note") -> float:
        """Add a box with a title and lines of text; return where it ends."""
        tall = 32 + LINE * len(lines)
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="8" class="box"/>')
        self.text(x + 10, y + 21, title, "title")
        for number, line in enumerate(lines):
            self.text(x + 10, y + 40 + LINE * number, line, kind)
        return y + tall

    def arrow(self, *points: tuple[float, float], both: bool = False) -> None:
        """Add an arrow along points; with `both` it has two heads."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        start = ' marker-start="url(#head)"' if both else ""
        self.parts.append(f'<path d="{path}" class="arrow"{start} marker-end="url(#head)"/>')

    def svg(self, tall: float) -> str:
        """Return the drawing."""
        return "\n".join((
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall:g}" width="{WIDTH * 3 // 2}" '
            f'role="img" aria-label="{escape(self.title)}">',
            f"<style>{STYLE}</style>",
            HEAD,
            '<rect width="100%" height="100%" class="ground"/>',
            *self.parts,
            "</svg>\n",
        ))  # fmt: skip
