"""What errors suggest in place of a name that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return "did you mean 'x'? " with the name that is nearest to one that is unknown; empty: none is near."""
    near = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {near[0]!r}? " if near else ""
