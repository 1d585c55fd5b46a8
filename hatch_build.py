"""What pyproject.toml cannot say: the URL, the README with links that work away from a clone, and p4src in wheels.

The URL is SWITCHSUM_URL, or the one of the sdist, or that of the clone's remote `origin`.  Where there is none, the
README names files without links.
"""

from __future__ import annotations

import os
import re
import subprocess
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = Path(__file__).resolve().parent
NAME = "Repository"
LINK = re.compile(r"(!?)\[([^\[\]]*)\]\((?!https?:|mailto:|#)([^()\s]+)\)")
SSH = re.compile(r"^(?:ssh://)?[\w.-]+@([\w.-]+)(?::\d+/|[:/])")
WHO = re.compile(r"^https://[^/@]*@")
"""A name or a token in a URL, which is nobody else's business."""


def url() -> str:
    """Return where the repository is on the web; empty if nobody says so."""
    found = os.environ.get("SWITCHSUM_URL") or _of_sdist() or _of_origin()
    return WHO.sub("https://", SSH.sub(r"https://\1/", found)).removesuffix("/").removesuffix(".git")


def _of_sdist() -> str:
    facts = HERE / "PKG-INFO"
    lines = HeaderParser().parsestr(facts.read_text()).get_all("Project-URL", []) if facts.exists() else []
    return next((line.partition(", ")[2] for line in lines if line.startswith(f"{NAME}, ")), "")


def _of_origin() -> str:
    try:
        asked = ["git", "-C", str(HERE), "remote", "get-url", "origin"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    found = done.stdout.strip()
    return found if found.startswith("https://") or SSH.match(found) else ""  # a path says nothing to others


def absolute(text: str, base: str) -> str:
    """Return Markdown whose links to files of the repository lead to the web, or are plain words without a base."""

    def link(found: re.Match[str]) -> str:
        picture, words, path = found.groups()
        if not base:
            return "" if picture else words
        return f"{picture}[{words}]({base}/{'raw' if picture else 'blob'}/HEAD/{path})"

    return LINK.sub(link, text).replace("<this repository>", base or "<this repository>")


class ReadmeAndUrl(MetadataHookInterface):
    """Hatchling asks it for what pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the README and, where somebody says it, the repository's URL."""
        base = url()
        text = absolute((HERE / "README.md").read_text(encoding="utf-8"), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        if base:
            metadata["urls"] = {NAME: base}


class P4Sources(BuildHookInterface[Any]):
    """Hatchling asks it for what a wheel has beside its packages."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the P4 program into a wheel; an editable install finds it in the clone (src/switchsum/p4src.py)."""
        if version != "editable":
            build_data["force_include"][str(HERE / "p4src")] = "switchsum/data/p4src"
