"""Real text that every Python brings along: the pages that help() shows for topics of the language."""

from __future__ import annotations

import re
from collections import Counter
from pydoc_data.topics import topics

import torch


def pages() -> str:
    """Return all pages, in the order of their names."""
    return "\n".join(topics[name] for name in sorted(topics))


def words(vocabulary: int) -> tuple[torch.Tensor, int]:
    """Return the text as numbers of words, most frequent first, and how many there are; 0 is any other word."""
    found = re.findall(r"\w+|[^\w\s]", pages().lower())
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
