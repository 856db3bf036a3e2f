"""The name of every key, the type that is told of it, and how long it lives."""

from __future__ import annotations

import datetime as dt
import inspect
import re
from typing import Any, Final

from frozen.conftest import Frozen
from henchman.store.keys import Keys

AT: Final = dt.datetime(2026, 1, 31, 9, 5, tzinfo=dt.UTC)
#: parameter → what stands for it
GIVEN: Final[dict[str, Any]] = {
    **{name: f"<{name}>" for name in ("batch", "day", "identity", "jid", "label", "mark", "name", "queue", "which")},
    **{name: f"<{name}>" for name in ("level", "need", "number", "outbox", "phase", "scope", "digest", "by", "kind")},
    "at": AT,
    "epoch": 3,
}
NO_KEYS: Final = {"is_held", "queue_of_flight", "identity_of_flight"}  # they read one


TYPED: Final = re.compile(r"(string|list|set|zset|hash|stream|counter|channel)\b[^:]*")
HANGING: Final = re.compile(r"((?:``:?[a-z]+:?(?:<\w+>)?``(?:, | and )?)+) (zset|hash|list|string)")


def test_keys(frozen: Frozen) -> None:
    plain, prefixed = keys_of(Keys()), keys_of(Keys("shop"))
    assert prefixed == {name: f"shop:{key}" for name, key in plain.items()}
    told = {**told_of_attributes(), **told_of_methods()}
    lines = []
    for name, key in plain.items():
        kind = TYPED.match(told.get(name, ""))
        lines.append(f"{key}  {kind[0] if kind else '(the beginning of several)'}")
        for pieces, what in HANGING.findall(told.get(name, "")):
            lines += [f"{key}{piece}  {what}" for piece in re.findall(r"``(.+?)``", pieces)]
    frozen("keys", sorted(set(lines)))


def keys_of(keys: Keys) -> dict[str, str]:
    """By the name of what makes it."""
    found = {name: key for name, key in vars(keys).items() if name != "prefix"}
    for name, one in vars(Keys).items():
        if name.startswith("_") or name in NO_KEYS:
            continue
        value = getattr(keys, name)
        if not isinstance(one, property):
            value = value(**{each: GIVEN[each] for each in inspect.signature(value).parameters})
        found[name] = value
    return found


def told_of_attributes() -> dict[str, str]:
    """The comment behind each: type, time to live, what it holds."""
    statements = re.split(r"\n\s+self\.", inspect.getsource(Keys.__init__))
    parts = [(one.partition(" = ")[0], re.search(r"# (.+)", one)) for one in statements]
    return {name: found[1] for name, found in parts if found}


def told_of_methods() -> dict[str, str]:
    """The docstring of each, which begins in the same way."""
    return {name: " ".join((inspect.getdoc(one) or "").split()) for name, one in vars(Keys).items()}
