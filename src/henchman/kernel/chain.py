"""A middleware chain: an ordered list of callables, compiled once into one.

A link is ``link(*context, call_next)``; it does its work around ``call_next()`` and returns what that returned (or
something else, or does not call it at all). A link may be given as a class or factory: it is called once, at ``add``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from henchman.errors import ConfigError

__all__ = ["Chain"]

Link = Callable[..., Any]


class Chain:
    """An ordered list of links; ``version`` rises with every change, so that a compiled chain knows it is stale."""

    def __init__(self) -> None:
        self._links: list[Link] = []
        self.version = 0

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._links))

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, link: object) -> bool:
        return self._find(link) is not None

    def add(self, link: Link) -> Link:
        """Append ``link``, innermost so far; usable as a decorator. A link already there moves to the end."""
        return self._place(link, lambda: len(self._links))

    def prepend(self, link: Link) -> Link:
        """Put ``link`` outermost."""
        return self._place(link, lambda: 0)

    def insert_before(self, other: Link, link: Link) -> Link:
        """Put ``link`` just outside ``other``; ConfigError when ``other`` is not in the chain."""
        return self._beside(other, link, 0)

    def insert_after(self, other: Link, link: Link) -> Link:
        """Put ``link`` just inside ``other``; ConfigError when ``other`` is not in the chain."""
        return self._beside(other, link, 1)

    def remove(self, link: Link) -> None:
        """Take ``link`` out; nothing happens when it is not there."""
        index = self._find(link)
        if index is not None:
            del self._links[index]
            self.version += 1

    def exists(self, link: Link) -> bool:
        """Whether ``link`` (or an instance of the class ``link``) is in the chain."""
        return link in self

    def clear(self) -> None:
        """Take all links out."""
        self._links.clear()
        self.version += 1

    def _find(self, link: object) -> int | None:
        for index, present in enumerate(self._links):
            if present == link or (isinstance(link, type) and isinstance(present, link)):
                return index
        return None

    def _index(self, other: Link) -> int:
        index = self._find(other)
        if index is None:
            names = ", ".join(getattr(link, "__name__", repr(link)) for link in self._links) or "nothing"
            raise ConfigError(f"{other!r} is not in this middleware chain; it holds {names}")
        return index

    def _beside(self, other: Link, link: Link, step: int) -> Link:
        if self._index(other) == self._find(link):
            return link  # beside itself it is already
        return self._place(link, lambda: self._index(other) + step)

    def _place(self, link: Link, where: Callable[[], int]) -> Link:
        if not callable(link):
            raise ConfigError(f"{link!r} cannot be a middleware: it is not callable")
        made = link() if isinstance(link, type) else link
        self.remove(link)
        self._links.insert(where(), made)
        self.version += 1
        return link
