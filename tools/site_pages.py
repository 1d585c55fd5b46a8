"""Write the pages of the site to a folder: the repository's Markdown, generated references, files that pages link to.

Run as `python -m tools.site_pages build/pages`; zensical.toml says how they are grouped, and `make site` builds them.
Pages lie as in the repository, so that their links hold.  A link to a file that is no page leads to a page with it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PATTERNS: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "*/README.md",
    "switch/docs/**/*.md",
    "lab/docs/**/*.md",
    "exercises/switchsum_exercises/*/README.md",
)
FENCE: Final = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
NAMED: Final = re.compile(r"\[[\w./-]+\.md\]\(([^)\s#]+\.md)(?=[)#])")
"""A link whose text is the name of a file."""
LANGUAGES: Final = {".py": "python", ".p4": "c", ".sh": "sh", ".sbatch": "sh", ".json": "json", ".yaml": "yaml"}
STYLE: Final = """\
.md-grid { max-width: 80rem; }
.md-typeset__table { min-width: 100%; }
.md-typeset table:not([class]) { display: table; width: 100%; }
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset img { max-width: 100%; }
.language-sh [data-md-copying] .c1 { display: none; }
"""
"""Tables use the page's width, and lines of code that are too long for it go on below.

The theme sets that attribute while its button copies what is displayed: commands are copied without comments, which
some shells refuse.
"""
ELSEWHERE: Final = ("http://", "https://", "mailto:")


def sources() -> list[Path]:
    """Return the Markdown files of the site, relative to the repository."""
    found = {path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(path for path in found if not path.parts[0].startswith("."))


def place(source: Path) -> Path:
    """Return where a file of the repository lies among the pages."""
    if source == Path("README.md"):
        return Path("index.md")
    if source.suffix == ".ipynb":
        return source.with_suffix(".md")
    return source if source.suffix in (".md", ".svg", ".png") else source.with_name(source.name + ".md")


def titled(folder: Path, target: str) -> str:
    """Return the beginning of a link to a page, with the page's title for its file name."""
    found = re.search(r"^# (.+)$", (ROOT / folder / target).read_text(), re.MULTILINE)
    return f"[{found[1] if found else target}]({target}"


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page: its text, its code, and what that printed."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [f"```text\n{''.join(output['text'])}```" for output in cell.get("outputs", ())]
    return "\n\n".join(parts) + "\n"


class Site:
    """A folder that pages are written to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.linked: set[Path] = set()
        """Files that are no pages and that a page links to."""

    def write(self, at: Path, text: str) -> None:
        """Write a page."""
        path = self.folder / at
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def page(self, source: Path) -> None:
        """Write a Markdown file, its links led to where their goals lie."""
        parts = FENCE.split((ROOT / source).read_text())
        named = [NAMED.sub(lambda found: titled(source.parent, found[1]), part) for part in parts[::2]]
        parts[::2] = [LINK.sub(lambda found: self.link(source, found), part) for part in named]
        self.write(place(source), "".join(parts))

    def link(self, source: Path, found: re.Match[str]) -> str:
        """Return a link of a page as the site has it."""
        target, anchor = found[1], found[2] or ""
        if target.startswith(ELSEWHERE):
            return found[0]
        goal = Path(os.path.normpath(source.parent / target))
        if (ROOT / goal).is_dir():
            goal /= "README.md"
        if goal.suffix != ".md":
            self.linked.add(goal)
        return f"]({os.path.relpath(place(goal), place(source).parent)}{anchor})"

    def file(self, source: Path) -> None:
        """Write a file that pages link to: a picture as it is, any other as a page with its text."""
        if place(source) == source:
            (self.folder / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / source, self.folder / source)
            return
        if source.suffix == ".ipynb":
            self.write(place(source), notebook_page(json.loads((ROOT / source).read_text())))
            return
        language = LANGUAGES.get(source.suffix, "text")
        self.write(place(source), f"# {source}\n\n`````{language}\n{(ROOT / source).read_text()}`````\n")


def write_pages(folder: Path, generated: dict[str, str]) -> None:
    """Write all pages to a folder that is made anew; `generated` are those that go to docs/, by name."""
    shutil.rmtree(folder, ignore_errors=True)
    site = Site(folder)
    site.write(Path("wide.css"), STYLE)
    for source in sources():
        site.page(source)
    for name, text in generated.items():
        site.write(Path("docs") / name, NAMED.sub(lambda found: titled(Path("docs"), found[1]), text))
    for source in sorted(site.linked):
        site.file(source)


if __name__ == "__main__":
    from tools.reference_pages import pages

    write_pages(Path(sys.argv[1]), pages())
