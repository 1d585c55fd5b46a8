"""Real text that every Python brings along: what help() shows of the language and of the standard library."""

from __future__ import annotations

import re
import sysconfig
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import torch


def pages() -> str:
    """Return the pages about topics of the language, in the order of their names."""
    return "\n".join(topics[name] for name in sorted(topics))


def manual() -> str:
    """Return the documentation strings of the standard library, module by module."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(path for path in library.rglob("*.py") if not {"test", "site-packages"} & set(path.parts))
    return "\n".join(
        text for path in modules for text in re.findall(r'"""(.*?)"""', path.read_text(errors="replace"), re.DOTALL)
    )


def words(vocabulary: int) -> tuple[torch.Tensor, int]:
    """Return the manual as numbers of words, most frequent first, and how many there are; 0 is any other word."""
    found = re.findall(r"[a-z]+|[^\w\s]", manual().lower())
    known = {word: number for number, (word, _) in enumerate(Counter(found).most_common(vocabulary - 1), start=1)}
    return torch.tensor([known.get(word, 0) for word in found]), len(known) + 1


def characters() -> tuple[torch.Tensor, int]:
    """Return the text as numbers of characters, and how many there are."""
    text = pages()
    known = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([known[character] for character in text]), len(known)


def share(text: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """Return a rank's part of a text."""
    length = len(text) // ranks
    return text[rank * length : (rank + 1) * length]
