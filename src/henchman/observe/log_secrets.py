"""The secret values of a run as texts, so that they can be taken out of whatever is said about it.

Its limit first: a value is found where it stands as it is. Two characters or less, or a value that the job has
changed (a number with its digits grouped), are not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["secrets_of"]

_SHORTEST = 3
_MOST = 100


def secrets_of(run: Any) -> tuple[str, ...]:
    """The texts that must not be shown of ``run``, the longest first; empty for a job without secret parameters."""
    signature = run.spec.signature
    if not signature.secret:
        return ()
    found: set[str] = set()
    for args, kwargs in (
        (list(run.job.get("args") or []), run.job.get("kwargs") or {}),
        (list(run.args), dict(run.kwargs)),
    ):
        masked, masked_kwargs = signature.mask(args, kwargs)
        pairs = [
            *zip(args, masked, strict=False),
            *((kwargs[name], (masked_kwargs or {}).get(name)) for name in kwargs),
        ]
        for value, shown in pairs:
            if shown == "***":
                found.update(_texts(value))
    return tuple(sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)[:_MOST])


def _texts(value: Any, level: int = 0) -> Iterator[str]:
    """``value`` and what is inside it as texts, also as ``repr`` writes a text that has escapes."""
    if value is None or isinstance(value, bool) or level > 5:
        return
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _texts(one, level + 1)
        return
    try:
        yield str(value)
        yield repr(value).strip("'\"")
    except Exception:  # somebody else's __str__: then nobody can have shown it either
        return
