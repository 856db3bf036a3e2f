"""Links to other sites, which know more of a job than we do: its logs, its trace, a ticket."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

__all__ = ["links_elsewhere"]

_FIELD = re.compile(r"\{(\w+)\}")


def links_elsewhere(templates: Mapping[str, str], **known: str | Iterable[str] | None) -> list[tuple[str, str]]:
    """(name, address) of each of ``console_links`` whose every field is known here. Of several values (the queues of an
    error) the only one counts."""
    values = {name: quote(_only(value), safe="") for name, value in known.items()}
    return [
        (name, _FIELD.sub(lambda match: values[match[1]], address))
        for name, address in templates.items()
        if all(values.get(field) for field in _FIELD.findall(address))
    ]


def _only(value: str | Iterable[str] | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    some = list(value)
    return some[0] if len(some) == 1 else ""
