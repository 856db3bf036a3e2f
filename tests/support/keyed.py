"""A server that admits pushes of jobs with a key, and remembers what it was asked."""

from __future__ import annotations

import json
from typing import Any

from henchman.store.call import Call

__all__ = ["KeyedServer"]


class KeyedServer:
    """Answers every keyed push that it is created, or what ``answers`` says, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[Call[Any]] = []
        self.answers: list[bytes] = []

    def run(self, call: Call[Any]) -> Any:
        self.calls.append(call)
        rows = (len(call.parts[0]) - 8) // 6 if call.name == "keyed_push" else 0
        return call.decode(self.answers.pop(0) if self.answers else b"\n".join([b"C"] * rows))

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """(jid, due, payload, mark, key, needs) of every job that was pushed with a key."""
        words = [one.parts[0][8:] for one in self.calls if one.name == "keyed_push"]
        return [tuple(one[at : at + 6]) for one in words for at in range(0, len(one), 6)]

    @property
    def keys(self) -> list[str]:
        return [str(row[4]) for row in self.rows]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        plain = [one for call in self.calls for part in call.parts if part[0] == "LPUSH" for one in part[2:]]
        return [json.loads(one) for one in (*(row[2] for row in self.rows), *plain)]  # type: ignore[arg-type]

    @property
    def ask(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.calls[-1].parts[0][7])
        return found
