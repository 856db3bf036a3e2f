"""What the JSON API tells of when jobs come due."""

from __future__ import annotations

from typing import Any

from henchman.inspector.due import due_times, span_of
from henchman.inspector.sets import SetName, key_of_set

__all__ = ["retries", "scheduled"]


def retries(api: Any, ask: Any) -> dict[str, Any]:
    return _due(api, ask, "retries")


def scheduled(api: Any, ask: Any) -> dict[str, Any]:
    return _due(api, ask, "scheduled")


def _due(api: Any, ask: Any, which: SetName) -> dict[str, Any]:
    now, keys = api._runtime.clock.now(), api._keys
    return dict(api._run(due_times(keys, key_of_set(keys, which), now, span_of(ask.word("span")))).to_json())
