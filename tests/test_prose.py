"""`make prose` finds sentences of pages and public docstrings that are long or lack a verb."""

from __future__ import annotations

from tools import prose

PAGE = """# A heading without one

It stands here. Nothing of the kind.

| a cell of a table | so |

```python
of_code = "nothing at all of it"
```

- An item that has a verb ({}).
"""


def test_long_sentences_and_fragments_are_found() -> None:
    found = list(prose.sentences(prose.prose_of(PAGE.format("and a [link](somewhere/else.md) of words " * 10))))
    assert [len(prose.words(one)) for one in found] == [3, 4, 56]
    assert [prose.has_verb(one) for one in found] == [True, False, True]


def test_docstrings_are_read_by_argument_and_without_examples() -> None:
    text = 'def add(a):\n    """Add it.\n\n    Args:\n        a: What is added.\n\n    Example:\n        >>> 1\n    """'
    [found] = prose.docstrings(text)
    assert list(prose.sentences(prose.prose_of_docstring(found))) == ["Add it", "What is added"]
