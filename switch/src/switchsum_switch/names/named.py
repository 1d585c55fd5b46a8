"""Objects of a program by their P4 names; a name that is unknown raises KeyError with the names that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from ..messages.suggestions import suggestion

_Found_co = TypeVar("_Found_co", covariant=True)

SHOWN: Final = 20
"""Most names that an error lists."""


class Named(Mapping[str, _Found_co]):
    """Objects by their full P4 name, or by the end of it that no other name shares.

    Example:
        `tables["ingress.ipv4"]`; also `tables["ipv4"]` if no other table's name ends in `.ipv4`.

    """

    def __init__(self, what: str, found: Mapping[str, _Found_co]) -> None:
        """Show `found`; errors call one of its objects `what`."""
        self._what = what
        self._found = found

    def __getitem__(self, name: str) -> _Found_co:
        """Return the object of that name; raises KeyError with the names that there are."""
        return self._found[resolve(self._what, name, self._found)]

    def __iter__(self) -> Iterator[str]:
        """Yield the full names."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        """Tell whether `name` finds an object."""
        try:
            resolve(self._what, name, self._found)
        except KeyError:
            return False
        return True

    def __repr__(self) -> str:
        """List the names."""
        return f"<{self._what}s: {listed(self._found)}>"

    def _repr_html_(self) -> str:
        """Show the objects in a notebook, one below the other."""
        return "".join(html_of(item) for item in self._found.values()) or f"no {self._what}s"


class Unknown(KeyError):
    """A name that is unknown; its text is a sentence, which KeyError itself would put in quotes."""

    def __str__(self) -> str:
        return str(self.args[0])


def resolve(what: str, name: object, names: Mapping[str, object]) -> str:
    """Return the full name that `name` is or ends; raises KeyError with the names that there are."""
    if name in names:
        return str(name)
    ends = [full for full in names if full.endswith(f".{name}")]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise Unknown(f"{name!r} may be one of several {what}s: {listed(ends)}")
    raise Unknown(f"no {what} is called {name!r}; {suggestion(name, names)}{_there(what, names)}")


def _there(what: str, names: Mapping[str, object]) -> str:
    return f"there are: {listed(names)}" if names else f"there is no {what}"


def listed(names: Mapping[str, object] | list[str]) -> str:
    """Return names side by side, not all of them if there are many."""
    some = list(names)
    return ", ".join(some[:SHOWN]) + (f" and {len(some) - SHOWN} more" if len(some) > SHOWN else "")


def html_of(item: object) -> str:
    """Return what a notebook shows of an object."""
    render: Callable[[], str] | None = getattr(item, "_repr_html_", None)
    return render() if render else f"<pre>{item!r}</pre>"
